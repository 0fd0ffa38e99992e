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

// handler is a handler of a program, and its registration. It is told by what it knows: an object that it
// knows is updated or deleted, and one that it does not know is added. So its account is exact, whichever
// instance an event comes from, and whatever that has still to tell.
type handler struct {
	toolscache.ResourceEventHandlerRegistration // the first, for methods that we do not know

	i        *informer
	to       toolscache.ResourceEventHandler
	register func(cache.Informer, toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error)

	waiting  atomic.Bool                // a move has still to settle it
	settling sync.Mutex                 // held by settle
	at       atomic.Pointer[registered] // written with settling held
	removed  atomic.Bool
	ofClient atomic.Bool   // a client of controller-runtime's reads its own writes by it
	leaving  atomic.Bool   // that client is not used any more: after the next switch the handler goes
	shutdown chan struct{} // closed when the handler was removed and its last call has ended
	synced   atomic.Bool   // it was told the whole first list

	mu    sync.Mutex                   // held during each call: there is one at a time. It guards the rest
	of    *instance                    // whose events count
	knows map[types.NamespacedName]any // each object as the handler was told it last
}

// registered is where a handler is registered.
type registered struct {
	toolscache.ResourceEventHandlerRegistration
	up cache.Informer
	in *instance
}

// settle registers the handler with the present instance, unless it is. Then it tells what is gone, and
// after that the instance tells all that is there.
func (h *handler) settle() error {
	h.settling.Lock()
	defer h.settling.Unlock()
	h.waiting.Store(false)
	for !h.removed.Load() {
		before, next := h.at.Load(), h.i.present()
		if before != nil && before.in == next.in {
			return nil
		}
		t := &told{handler: h, by: next.in, first: !h.HasSynced(), ready: make(chan struct{})}
		h.mu.Lock()
		h.of = next.in
		h.mu.Unlock()
		var err error
		if next.ResourceEventHandlerRegistration, err = h.register(next.up, t); err != nil {
			close(t.ready)
			if next.in.is(retired) && h.i.present().in != next.in {
				continue
			}
			return err
		}
		next.in.delivers(h, next.HasSynced)
		h.at.Store(&next)
		t.tellGone()
		close(t.ready)
		if before != nil && h.ofClient.Load() {
			t.tellResourceVersion()
		}
		if before != nil && h.leaving.Load() {
			return h.i.RemoveEventHandler(h)
		}
	}
	return h.remove() // if that was before the registration
}

// remove makes sure that the handler is told nothing more. It waits for no call that has begun: ShutdownChan does.
func (h *handler) remove() error {
	if !h.removed.Swap(true) {
		go func() {
			h.mu.Lock() // held during each call
			defer h.mu.Unlock()
			close(h.shutdown)
		}()
	}
	if at := h.at.Load(); at != nil {
		at.in.delivers(h, nil)
		return at.up.RemoveEventHandler(at.ResourceEventHandlerRegistration)
	}
	return nil
}

// ShutdownChan returns a channel that is closed when the handler was removed and its last call has ended. client-go's
// ShutDownEventHandler waits for it.
func (h *handler) ShutdownChan() <-chan struct{} { return h.shutdown }

// HasSynced reports whether the handler was told the whole first list. It stays so.
func (h *handler) HasSynced() bool {
	if at := h.at.Load(); !h.synced.Load() && at != nil && at.HasSynced() {
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

// told passes on the events of a instance while they count.
type told struct {
	*handler
	by    *instance
	first bool          // its first list is that of the handler
	ready chan struct{} // closed when what is gone was told
}

// tellGone tells of all objects that the handler knows and the instance does not have.
func (t *told) tellGone() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.knows) == 0 {
		return
	}
	there := map[types.NamespacedName]types.UID{}
	for _, lw := range t.by.listWatchesOf(t.i.of) {
		for _, obj := range lw.informer.GetStore().List() {
			name, uid := identityOf(obj)
			there[name] = uid
		}
	}
	for name, obj := range t.knows {
		if t.by.is(retired) || t.by.ctx.Err() != nil || t.removed.Load() {
			return // its store may be empty by now
		}
		if now, ok := there[name]; !ok || now != uidOf(obj) {
			t.forget(name, obj)
		}
	}
}

// tellResourceVersion tells a client that reads its own writes how new the content of the instance is. Such a client waits
// until its handler was given an object with the resource version of the write. The object may be gone with its path, and
// the instance may have none that is newer. So the handler is given a deletion, of nothing, at the resource version of the
// list, which began after the writes at the old path.
func (t *told) tellResourceVersion() {
	versions := map[string]bool{}
	for _, lw := range t.by.listWatchesOf(t.i.of) {
		versions[lw.informer.LastSyncResourceVersion()] = true
	}
	lowest, found := int64(math.MaxInt64), false
	for version := range versions {
		if number, err := strconv.ParseInt(version, 10, 64); err == nil {
			lowest, found = min(lowest, number), true
		}
	}
	if !found { // nothing was listed: the kind is absent
		return
	}
	nothing := t.i.k.object(t.i.of)
	nothing.SetResourceVersion(strconv.FormatInt(lowest, 10))
	t.tell(func() { t.to.OnDelete(nothing) })
}

// tell calls call with mu held, if events of the instance count.
func (t *told) tell(call func()) {
	<-t.ready
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == t.by && !t.removed.Load() {
		call()
	}
}

func (t *told) OnAdd(obj any, initial bool) {
	t.tell(func() {
		if !initial || t.first || t.has(obj) {
			t.learn(obj, initial && t.first)
		}
	})
}

// has reports whether the instance has an object now. What it tells first may be gone since, and told to be gone.
func (t *told) has(obj any) bool {
	name, uid := identityOf(obj)
	return slices.ContainsFunc(t.by.listWatchesOf(t.i.of), func(lw *validatingListWatch) bool {
		now, ok, _ := lw.informer.GetStore().GetByKey(toolscache.NewObjectName(name.Namespace, name.Name).String())
		return ok && uidOf(now) == uid
	})
}

func (t *told) OnUpdate(_, obj any) {
	t.tell(func() { t.learn(obj, false) })
}

func (t *told) OnDelete(obj any) {
	t.tell(func() {
		gone := obj
		if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			gone = unknown.Obj
		}
		name, uid := identityOf(gone)
		if was, known := t.knows[name]; known && uidOf(was) == uid {
			delete(t.knows, name)
			t.to.OnDelete(obj)
		}
	})
}

// learn tells of an object that is there. The caller holds mu, as that of forget does.
func (h *handler) learn(obj any, initial bool) {
	name, uid := identityOf(obj)
	was, known := h.knows[name]
	switch {
	case known && uidOf(was) == uid:
		h.knows[name] = obj
		h.to.OnUpdate(was, obj)
		return
	case known:
		h.forget(name, was)
	}
	h.knows[name] = obj
	h.to.OnAdd(obj, initial)
}

// forget tells that an object is gone. Nobody has seen how it went.
func (h *handler) forget(name types.NamespacedName, obj any) {
	delete(h.knows, name)
	key, _ := toolscache.MetaNamespaceKeyFunc(obj)
	h.to.OnDelete(toolscache.DeletedFinalStateUnknown{Key: key, Obj: obj})
}

func uidOf(obj any) types.UID {
	_, uid := identityOf(obj)
	return uid
}
