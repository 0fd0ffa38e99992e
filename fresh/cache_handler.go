// SPDX-License-Identifier: Apache-2.0

package fresh

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// handler is an event handler of a program, and its registration. It keeps account of the objects that the program's
// handler was given: an object in the account is updated or deleted, and one that is not there is added. So the account is
// exact, whichever instance an event comes from, and whatever that instance has not delivered yet.
type handler struct {
	toolscache.ResourceEventHandlerRegistration // the first, for methods that we do not know

	i        *informer
	receiver toolscache.ResourceEventHandler // the program's
	register func(cache.Informer, toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error)

	attachment    atomic.Pointer[attachment] // where it is registered; attach writes it
	attachPending atomic.Bool                // a goroutine is about to attach it
	synced        atomic.Bool                // it was given the whole first list. It stays so
	removed       atomic.Bool                // RemoveEventHandler was called. It stays so
	ofClient      atomic.Bool                // a client of controller-runtime's reads its own writes by it
	leaving       atomic.Bool                // that client is not used any more: after the next switch the handler is removed
	shutdown      chan struct{}              // closed when it was removed and its last call has ended

	// calls is held during each call of the program's handler, so there is one at a time, and by attach, so that deletions
	// come before the events of the next instance. It guards what follows.
	calls sync.Mutex
	known *account
}

// attachment is where a handler is registered.
type attachment struct {
	toolscache.ResourceEventHandlerRegistration
	upstream cache.Informer
	in       *instance
}

// attach registers the handler with the current instance, unless it is. Then it delivers deletions of what that does not
// have, and after that the instance delivers all that it has.
func (h *handler) attach() error {
	h.calls.Lock()
	defer h.calls.Unlock()
	h.attachPending.Store(false)
	for !h.removed.Load() {
		before, next := h.attachment.Load(), h.i.present()
		if before != nil && before.in == next.in {
			return nil
		}
		d := &delivery{handler: h, from: next.in, initial: !h.HasSynced()}
		var err error
		if next.ResourceEventHandlerRegistration, err = h.register(next.upstream, d); err != nil {
			if next.in.is(retired) && h.i.present().in != next.in {
				continue
			}
			return err
		}
		next.in.delivers(h, next.HasSynced)
		h.attachment.Store(&next)
		d.deliverDeletions()
		if before != nil && h.ofClient.Load() {
			d.deliverResourceVersion()
		}
		if before != nil && h.leaving.Load() {
			return h.i.RemoveEventHandler(h)
		}
	}
	return h.remove() // if that was before the registration
}

// remove makes sure that nothing more is delivered. It waits for no call that has begun: ShutdownChan does.
func (h *handler) remove() error {
	if !h.removed.Swap(true) {
		go func() {
			h.calls.Lock()
			defer h.calls.Unlock()
			close(h.shutdown)
		}()
	}
	if at := h.attachment.Load(); at != nil {
		at.in.delivers(h, nil)
		return at.upstream.RemoveEventHandler(at.ResourceEventHandlerRegistration)
	}
	return nil
}

// ShutdownChan returns a channel that is closed when the handler was removed and its last call has ended. client-go's
// ShutDownEventHandler waits for it.
func (h *handler) ShutdownChan() <-chan struct{} { return h.shutdown }

// HasSynced reports whether the handler was given the whole first list. It stays so.
func (h *handler) HasSynced() bool {
	if at := h.attachment.Load(); !h.synced.Load() && at != nil && at.HasSynced() {
		h.synced.Store(true)
	}
	return h.synced.Load()
}

// identityOf returns the name and the UID of an object: another one of the same name is not the same. Some
// aggregated APIs have no UID.
func identityOf(obj any) (types.NamespacedName, types.UID) {
	object, err := meta.Accessor(obj)
	if err != nil { // a transform has made something else of it
		return types.NamespacedName{Name: fmt.Sprintf("%p", obj)}, ""
	}
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}, object.GetUID()
}

// uidOf returns the UID of an object.
func uidOf(obj any) types.UID {
	_, uid := identityOf(obj)
	return uid
}

// delivery passes on the events of an instance, as long as the handler is attached to that.
type delivery struct {
	*handler
	from    *instance
	initial bool // its first list is the handler's first
}

// deliverDeletions delivers deletions of all objects in the account that the instance does not have. attach calls it.
func (d *delivery) deliverDeletions() {
	given := d.known.all()
	if len(given) == 0 {
		return
	}
	there := map[types.NamespacedName]types.UID{}
	for _, lw := range d.from.listWatchesOf(d.i.of) {
		for _, obj := range lw.informer.GetStore().List() {
			name, uid := identityOf(obj)
			there[name] = uid
		}
	}
	for _, obj := range given {
		name, uid := identityOf(obj)
		if d.from.is(retired) || d.from.ctx.Err() != nil || d.removed.Load() {
			return // its store may be empty by now
		}
		if now, ok := there[name]; !ok || now != uid {
			d.deliverDeletion(name, obj)
		}
	}
}

// deliverResourceVersion tells a client that reads its own writes how new the content of the instance is. Such a client
// waits until its handler was given an object with the resource version of the write. The object may be gone with its path,
// and the instance may have none that is newer. So the handler is given a deletion, of nothing, at the resource version of
// the list, which began after the writes at the old path. attach calls it.
func (d *delivery) deliverResourceVersion() {
	lowest := int64(math.MaxInt64)
	for _, lw := range d.from.listWatchesOf(d.i.of) {
		version, err := strconv.ParseInt(lw.informer.LastSyncResourceVersion(), 10, 64)
		if err != nil { // nothing was listed: the kind is absent
			return
		}
		lowest = min(lowest, version)
	}
	nothing := d.i.k.object(d.i.of)
	nothing.SetResourceVersion(strconv.FormatInt(lowest, 10))
	d.receiver.OnDelete(nothing)
}

// deliver calls call, unless the handler is attached to another instance or was removed.
func (d *delivery) deliver(call func()) {
	d.calls.Lock()
	defer d.calls.Unlock()
	if at := d.attachment.Load(); at != nil && at.in == d.from && !d.removed.Load() {
		call()
	}
}

func (d *delivery) OnAdd(obj any, initial bool) {
	d.deliver(func() {
		if !initial || d.initial || d.has(obj) {
			d.deliverObject(obj, initial && d.initial)
		}
	})
}

// has reports whether the instance has an object now. What it delivers first may be gone since, and its deletion delivered.
func (d *delivery) has(obj any) bool {
	name, uid := identityOf(obj)
	return slices.ContainsFunc(d.from.listWatchesOf(d.i.of), func(lw *validatingListWatch) bool {
		now, ok, _ := lw.informer.GetStore().GetByKey(toolscache.NewObjectName(name.Namespace, name.Name).String())
		return ok && uidOf(now) == uid
	})
}

func (d *delivery) OnUpdate(_, obj any) {
	d.deliver(func() { d.deliverObject(obj, false) })
}

func (d *delivery) OnDelete(obj any) {
	d.deliver(func() {
		deleted := obj
		if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			deleted = unknown.Obj
		}
		name, uid := identityOf(deleted)
		if was, known := d.known.get(name); known && uidOf(was) == uid {
			d.known.remove(name)
			d.receiver.OnDelete(obj)
		}
	})
}

// deliverObject delivers an object that is there: as an update if it is in the account, and else as an add. The caller
// holds calls, as that of deliverDeletion does.
func (h *handler) deliverObject(obj any, initial bool) {
	name, uid := identityOf(obj)
	was, known := h.known.get(name)
	if known && uidOf(was) == uid {
		h.known.put(name, obj)
		h.receiver.OnUpdate(was, obj)
		return
	}
	if known { // another object of that name
		h.deliverDeletion(name, was)
	}
	h.known.put(name, obj)
	h.receiver.OnAdd(obj, initial)
}

// deliverDeletion delivers the deletion of an object, of which nobody has seen the last state.
func (h *handler) deliverDeletion(name types.NamespacedName, obj any) {
	h.known.remove(name)
	key, _ := toolscache.MetaNamespaceKeyFunc(obj)
	h.receiver.OnDelete(toolscache.DeletedFinalStateUnknown{Key: key, Obj: obj})
}
