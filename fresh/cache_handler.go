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

// handler is an event handler of a program, and its registration. It stays when the kind switches to another
// instance.
//
// It keeps the objects that were delivered to the program's handler. An object that is among them is delivered as an
// update or a deletion, and any other one as an add. So the program never gets an update of an object that it does
// not know, nor two adds of one object, whichever instance an event comes from, and whatever that instance has not
// delivered yet. At a switch it gets an update of every object that both instances have.
type handler struct {
	toolscache.ResourceEventHandlerRegistration // the first one, for methods that we do not know

	i        *informer
	receiver toolscache.ResourceEventHandler // the program's
	register registerFunc

	state      atomic.Int32               // a handlerState
	attachment atomic.Pointer[attachment] // where it is registered; nil before the first registration. attach writes it
	synced     atomic.Bool                // the whole first list was delivered. It stays so
	reads      atomic.Int32               // a clientReads
	shutdown   chan struct{}              // closed when it was removed and its last call has ended

	// calls is held during each call of the program's handler, so that there is one at a time. attach holds it, too,
	// so that deletions come before the events of the next instance. It guards what follows.
	calls     sync.Mutex
	delivered *deliveredObjects
}

// handlerState is whether a handler gets events.
//
//	attached  -> switching  the kind has switched to another instance
//	switching -> attached   a goroutine registers the handler with the current instance
//	any       -> removed    RemoveEventHandler was called, or the first registration has failed
//
// A handler whose registration with a later instance fails stays attached to the old one, which is logged, and tries
// again when the kind next switches.
type handlerState = int32

const (
	// handlerAttached: the handler gets the events of the instance in its attachment.
	handlerAttached handlerState = iota

	// handlerSwitching: a goroutine is about to register the handler with the current instance, once the program's
	// handler has returned from the call in progress.
	handlerSwitching

	// handlerRemoved: the handler gets no more events.
	handlerRemoved
)

// clientReads is whether a client of controller-runtime's uses a handler to read its own writes.
type clientReads = int32

const (
	// noClientReads: the handler is of the program itself.
	noClientReads clientReads = iota

	// clientReadsWrites: a client waits, before it reads, until its handler has got what it wrote.
	clientReadsWrites

	// clientReplaced: another client has taken the place of that one, whose last reads may still wait. The handler is
	// removed after the next switch, which ends their wait.
	clientReplaced
)

// attachment is where a handler is registered.
type attachment struct {
	toolscache.ResourceEventHandlerRegistration
	upstream cache.Informer
	in       *instance
}

// attach registers the handler with the current instance, unless it is. Then it delivers the deletions of all objects
// that this instance does not have. After that the instance delivers those that it has.
func (h *handler) attach() error {
	h.calls.Lock()
	defer h.calls.Unlock()
	h.state.CompareAndSwap(handlerSwitching, handlerAttached)
	for h.state.Load() != handlerRemoved {
		before, next := h.attachment.Load(), h.i.currentUpstream()
		if before != nil && before.in == next.in {
			return nil
		}
		d := &delivery{handler: h, from: next.in, initial: !h.HasSynced()}
		var err error
		next.ResourceEventHandlerRegistration, err = h.register(next.upstream, d)
		if err != nil {
			if next.in.is(retired) && h.i.currentUpstream().in != next.in {
				continue
			}
			return err
		}
		next.in.addRegistration(h, next.HasSynced)
		d.stores = next.in.storesOf(h.i.representation)
		h.attachment.Store(&next) // from now on the delivery of the instance before drops its events
		d.deliverDeletions()
		if before == nil {
			continue
		}
		reads := h.reads.Load()
		if reads != noClientReads {
			d.deliverResourceVersion()
		}
		if reads == clientReplaced {
			return h.i.RemoveEventHandler(h)
		}
	}
	return h.remove() // RemoveEventHandler may have been called before the registration
}

// remove makes sure that nothing more is delivered. It does not wait for a call in progress: a caller that needs that
// waits for ShutdownChan.
func (h *handler) remove() error {
	if h.state.Swap(handlerRemoved) != handlerRemoved {
		go func() {
			h.calls.Lock()
			defer h.calls.Unlock()
			close(h.shutdown)
		}()
	}
	at := h.attachment.Load()
	if at == nil {
		return nil
	}
	at.in.removeRegistration(h)
	return at.upstream.RemoveEventHandler(at.ResourceEventHandlerRegistration)
}

// ShutdownChan returns a channel that is closed when the handler was removed and its last call has ended. client-go's
// ShutDownEventHandler waits for it.
func (h *handler) ShutdownChan() <-chan struct{} { return h.shutdown }

// HasSynced reports whether the whole first list was delivered. It stays so.
func (h *handler) HasSynced() bool {
	if h.synced.Load() {
		return true
	}
	at := h.attachment.Load()
	if at == nil || !at.HasSynced() {
		return false
	}
	h.synced.Store(true)
	return true
}

// identityOf returns the name and the UID of an object. An object with the same name and another UID is another
// object. Some aggregated APIs have no UIDs.
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

// delivery passes on the events of one instance, as long as the handler is attached to that instance.
type delivery struct {
	*handler
	from    *instance
	stores  []toolscache.Store // of the instance, for the representation of the handler
	initial bool               // the first list of the instance is also the first of the handler
}

// deliverDeletions delivers the deletions of all objects that were delivered before and that the instance does not
// have. attach calls it.
func (d *delivery) deliverDeletions() {
	for obj := range d.delivered.all() {
		if d.from.is(retired) || d.from.ctx.Err() != nil || d.state.Load() == handlerRemoved {
			return // the stores of the instance may be empty by now
		}
		name, uid := identityOf(obj)
		key := storeKey(name)
		if !d.has(key, uid) {
			d.deliverDeletion(name, key, obj)
		}
	}
}

// deliverResourceVersion lets a client that reads its own writes know how recent the instance is. Such a client waits
// until its handler gets an object whose resource version is that of the write, or a later one. That object may have
// been removed with the old path, and the instance may have none that is newer. So the handler gets the deletion of
// an object without a name, with the resource version of the list, which began after all writes at the old path.
// attach calls it.
func (d *delivery) deliverResourceVersion() {
	lowest := int64(math.MaxInt64)
	for _, lw := range d.from.listWatchesOf(d.i.representation) {
		version, err := strconv.ParseInt(lw.informer.LastSyncResourceVersion(), 10, 64)
		if err != nil { // nothing was listed: the kind is absent
			return
		}
		lowest = min(lowest, version)
	}
	nothing := d.i.k.object(d.i.representation)
	nothing.SetResourceVersion(strconv.FormatInt(lowest, 10))
	d.receiver.OnDelete(nothing)
}

// begin reports whether an event of the instance is passed on. If so, the caller must end what begin has begun.
func (d *delivery) begin() bool {
	d.calls.Lock()
	at := d.attachment.Load()
	if at != nil && at.in == d.from && d.state.Load() != handlerRemoved {
		return true
	}
	d.calls.Unlock()
	return false
}

func (d *delivery) end() { d.calls.Unlock() }

func (d *delivery) OnAdd(obj any, initial bool) {
	if !d.begin() {
		return
	}
	defer d.end()
	// An object of a first list may have been deleted since. If this is not the first list of the handler, that
	// deletion may have been delivered by deliverDeletions.
	if initial && !d.initial {
		name, uid := identityOf(obj)
		if !d.has(storeKey(name), uid) {
			return
		}
	}
	d.deliverObject(obj, initial && d.initial)
}

func (d *delivery) OnUpdate(_, obj any) {
	if !d.begin() {
		return
	}
	defer d.end()
	d.deliverObject(obj, false)
}

func (d *delivery) OnDelete(obj any) {
	if !d.begin() {
		return
	}
	defer d.end()
	deleted := obj
	if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		deleted = unknown.Obj
	}
	name, uid := identityOf(deleted)
	was, found := d.delivered.get(name)
	if found && uidOf(was) == uid {
		d.delivered.remove(name)
		d.receiver.OnDelete(obj)
	}
}

// storeKey returns the key under which a store has the object of a name.
func storeKey(name types.NamespacedName) string {
	return toolscache.NewObjectName(name.Namespace, name.Name).String()
}

// has reports whether the instance has the object of a key and a UID now.
func (d *delivery) has(key string, uid types.UID) bool {
	return slices.ContainsFunc(d.stores, func(store toolscache.Store) bool {
		now, ok, _ := store.GetByKey(key)
		return ok && uidOf(now) == uid
	})
}

// deliverObject delivers an object that exists: as an update if it was delivered before, and as an add if not. The
// caller holds calls, as that of deliverDeletion does.
func (h *handler) deliverObject(obj any, initial bool) {
	name, uid := identityOf(obj)
	was, found := h.delivered.get(name)
	if found && uidOf(was) == uid {
		h.delivered.put(name, obj)
		h.receiver.OnUpdate(was, obj)
		return
	}
	if found { // another object of that name
		h.deliverDeletion(name, storeKey(name), was)
	}
	h.delivered.put(name, obj)
	h.receiver.OnAdd(obj, initial)
}

// deliverDeletion delivers the deletion of an object whose last state is not known.
func (h *handler) deliverDeletion(name types.NamespacedName, key string, obj any) {
	h.delivered.remove(name)
	h.receiver.OnDelete(toolscache.DeletedFinalStateUnknown{Key: key, Obj: obj})
}
