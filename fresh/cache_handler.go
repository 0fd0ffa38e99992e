// SPDX-License-Identifier: Apache-2.0

package fresh

import (
	"fmt"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// handler is a handler of a program, and its registration. It is told by what it knows: an object that it
// knows is updated or deleted, and one that it does not know is added. So its account is exact, whichever
// generation an event comes from, and whatever that has still to tell.
type handler struct {
	toolscache.ResourceEventHandlerRegistration // the first, for methods that we do not know

	i        *informer
	to       toolscache.ResourceEventHandler
	register func(cache.Informer, toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error)

	settling sync.Mutex                 // held by settle
	at       atomic.Pointer[registered] // written with settling held
	removed  atomic.Bool
	synced   atomic.Bool // it was told the whole first list

	mu    sync.Mutex       // held during each call: there is one at a time. It guards the rest
	of    *generation      // whose events count
	knows map[identity]any // each object as the handler was told it last
}

// registered is where a handler is registered.
type registered struct {
	toolscache.ResourceEventHandlerRegistration
	up cache.Informer
	g  *generation
}

// settle registers the handler with the present generation, unless it is. Then it tells what is gone, and
// after that the generation tells all that is there.
func (h *handler) settle() error {
	h.settling.Lock()
	defer h.settling.Unlock()
	for !h.removed.Load() {
		before, next := h.at.Load(), h.i.present()
		if before != nil && before.g == next.g {
			return nil
		}
		t := &told{handler: h, by: next.g, first: !h.HasSynced(), ready: make(chan struct{})}
		h.mu.Lock()
		h.of = next.g
		h.mu.Unlock()
		var err error
		if next.ResourceEventHandlerRegistration, err = h.register(next.up, t); err != nil {
			close(t.ready)
			if next.g.retired.Load() && h.i.present().g != next.g {
				continue
			}
			return err
		}
		h.at.Store(&next)
		h.tellGone(next.g)
		close(t.ready)
	}
	return h.remove() // if that was before the registration
}

// remove makes sure that the handler is told nothing more. It waits for no call that has begun.
func (h *handler) remove() error {
	h.removed.Store(true)
	if at := h.at.Load(); at != nil {
		return at.up.RemoveEventHandler(at.ResourceEventHandlerRegistration)
	}
	return nil
}

// HasSynced reports whether the handler was told the whole first list. It stays so.
func (h *handler) HasSynced() bool {
	if at := h.at.Load(); !h.synced.Load() && at != nil && at.HasSynced() {
		h.synced.Store(true)
	}
	return h.synced.Load()
}

// tellGone tells of all objects that the handler knows and a generation does not have.
func (h *handler) tellGone(g *generation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.knows) == 0 {
		return
	}
	there := map[identity]bool{}
	for _, informer := range g.informers(h.i.form) {
		for _, obj := range informer.GetStore().List() {
			there[identityOf(obj)] = true
		}
	}
	for id, obj := range h.knows {
		if there[id] || h.removed.Load() {
			continue
		}
		delete(h.knows, id)
		key, _ := toolscache.MetaNamespaceKeyFunc(obj)
		h.to.OnDelete(toolscache.DeletedFinalStateUnknown{Key: key, Obj: obj})
	}
}

// identity is what an object is known by: another one of the same name is not the same.
type identity struct {
	namespace, name string
	uid             types.UID // some aggregated APIs have none
}

func identityOf(obj any) identity {
	object, err := meta.Accessor(obj)
	if err != nil { // a transform has made something else of it
		return identity{name: fmt.Sprintf("%p", obj)}
	}
	return identity{object.GetNamespace(), object.GetName(), object.GetUID()}
}

// told passes on the events of a generation while they count.
type told struct {
	*handler
	by    *generation
	first bool          // its first list is that of the handler
	ready chan struct{} // closed when what is gone was told
}

// tell calls call with mu held, if events of the generation count.
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
		id := identityOf(obj)
		was, known := t.knows[id]
		t.knows[id] = obj
		if known {
			t.to.OnUpdate(was, obj)
			return
		}
		t.to.OnAdd(obj, initial && t.first)
	})
}

func (t *told) OnUpdate(was, obj any) {
	t.tell(func() {
		delete(t.knows, identityOf(was))
		t.knows[identityOf(obj)] = obj
		t.to.OnUpdate(was, obj)
	})
}

func (t *told) OnDelete(obj any) {
	t.tell(func() {
		gone := obj
		if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			gone = unknown.Obj
		}
		id := identityOf(gone)
		if _, known := t.knows[id]; known {
			delete(t.knows, id)
			t.to.OnDelete(obj)
		}
	})
}
