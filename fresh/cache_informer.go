// SPDX-License-Identifier: Apache-2.0

package fresh

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// informer is what programs get. It stays when its kind moves. The kind's mu guards what changes.
type informer struct {
	cache.Informer // the first upstream informer, for methods that we do not know
	k              *kind
	of             representation
	removed        bool           // RemoveInformer was called
	public         cache.Informer // this, or a sharedInformer with it
	at             attachment     // without a registration: the current instance, and its informer
	handlers       []*handler
}

func newInformer(k *kind, of representation, up cache.Informer, in *instance) *informer {
	i := &informer{Informer: up, k: k, of: of, at: attachment{upstream: up, in: in}}
	i.public = i
	if shared, ok := up.(toolscache.SharedIndexInformer); ok {
		i.public = &sharedInformer{i, deeper{deepest{shared}}}
	}
	return i
}

// currentUpstream returns the upstream informer of the current instance.
func (i *informer) currentUpstream() attachment {
	i.k.mu.Lock()
	defer i.k.mu.Unlock()
	return i.at
}

// switchTo makes the informer that of another instance, which has it, and then moves each handler by itself. The caller
// holds the kind's mu.
func (i *informer) switchTo(ctx context.Context, next *instance) {
	up, err := next.informer(ctx, i.of)
	if err != nil {
		return
	}
	i.at = attachment{upstream: up, in: next}
	for _, h := range i.handlers {
		if !h.state.CompareAndSwap(handlerAttached, handlerSwitching) {
			continue // a goroutine is about to attach it, or it was removed
		}
		go func() {
			if err := h.attach(); err != nil {
				log.Log.WithName("fresh").Error(err, "A handler does not follow its kind", "kind", i.k.gvk.String())
			}
		}()
	}
}

// add adds a handler, which stays when the kind switches to another path. register is a method of the upstream informer.
func (i *informer) add(
	receiver toolscache.ResourceEventHandler, register func(cache.Informer, toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error),
) (toolscache.ResourceEventHandlerRegistration, error) {
	h := &handler{i: i, receiver: receiver, register: register, shutdown: make(chan struct{}), delivered: newDeliveredObjects()}
	i.k.mu.Lock()
	i.handlers = append(i.handlers, h)
	i.k.mu.Unlock()
	if err := h.attach(); err != nil {
		h.state.Store(handlerRemoved)
		i.forget(h)
		return nil, err
	}
	h.ResourceEventHandlerRegistration = h.attachment.Load().ResourceEventHandlerRegistration
	return h, nil
}

func (i *informer) forget(h *handler) {
	i.k.mu.Lock()
	defer i.k.mu.Unlock()
	i.handlers = slices.DeleteFunc(i.handlers, func(other *handler) bool { return other == h })
}

func (i *informer) AddEventHandler(
	h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error,
) {
	return i.add(h, cache.Informer.AddEventHandler)
}

func (i *informer) AddEventHandlerWithResyncPeriod(
	h toolscache.ResourceEventHandler, resync time.Duration) (toolscache.ResourceEventHandlerRegistration, error,
) {
	return i.add(h, func(up cache.Informer, h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
		return up.AddEventHandlerWithResyncPeriod(h, resync)
	})
}

func (i *informer) AddEventHandlerWithOptions(
	h toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error,
) {
	return i.add(h, func(up cache.Informer, h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
		return up.AddEventHandlerWithOptions(h, options)
	})
}

func (i *informer) RemoveEventHandler(handle toolscache.ResourceEventHandlerRegistration) error {
	h, ok := handle.(*handler)
	switch {
	case !ok:
		return errors.New("the registration is not of an informer that follows its kind")
	case h.i != i: // upstream's says nothing either
		return nil
	}
	i.forget(h)
	return h.remove()
}

func (i *informer) AddIndexers(indexers toolscache.Indexers) error {
	if i.isRemoved() {
		return errors.New("indexers were not added, because RemoveInformer was called for the informer")
	}
	_, err := i.k.addIndex(&index{i.of, func(in *instance) error {
		up, err := in.informer(context.Background(), i.of)
		if err != nil {
			return err
		}
		return up.AddIndexers(indexers)
	}})
	return err
}

func (i *informer) isRemoved() bool {
	i.k.mu.Lock()
	defer i.k.mu.Unlock()
	return i.removed
}

func (i *informer) HasSynced() bool { return i.currentUpstream().upstream.HasSynced() }
func (i *informer) IsStopped() bool { return i.currentUpstream().upstream.IsStopped() }

// sharedInformer is an informer that is a SharedIndexInformer, as upstream's is for one namespace or all.
type sharedInformer struct {
	*informer
	deeper
}

// The methods of informer come first, because those of the embedded one are deeper.
type (
	deeper  struct{ deepest }
	deepest struct{ toolscache.SharedIndexInformer }
)

// present is the informer of the present instance, or the first if that has several.
func (s *sharedInformer) present() toolscache.SharedIndexInformer {
	if now, ok := s.informer.currentUpstream().upstream.(toolscache.SharedIndexInformer); ok {
		return now
	}
	return s.SharedIndexInformer
}

// set sets something on the informer now, and if that can be done on those to come.
func (s *sharedInformer) set(what *atomic.Pointer[setting], set setting) error {
	present := s.present()
	if wrapped, ok := present.(instanceInformer); ok {
		present = wrapped.SharedIndexInformer
	}
	if err := set(present); err != nil {
		return err
	}
	what.Store(&set)
	return nil
}

func (s *sharedInformer) SetTransform(transform toolscache.TransformFunc) error {
	return s.set(&s.k.settings[s.of].transform, func(up toolscache.SharedIndexInformer) error { return up.SetTransform(transform) })
}

func (s *sharedInformer) SetWatchErrorHandler(handle toolscache.WatchErrorHandler) error {
	return s.set(&s.k.settings[s.of].watchErrors, func(up toolscache.SharedIndexInformer) error { return up.SetWatchErrorHandler(handle) })
}

func (s *sharedInformer) SetWatchErrorHandlerWithContext(handle toolscache.WatchErrorHandlerWithContext) error {
	return s.set(&s.k.settings[s.of].watchErrors, func(up toolscache.SharedIndexInformer) error { return up.SetWatchErrorHandlerWithContext(handle) })
}

func (s *sharedInformer) GetStore() toolscache.Store     { return s.GetIndexer() }
func (s *sharedInformer) GetIndexer() toolscache.Indexer { return store{s.present().GetIndexer(), s} }
func (s *sharedInformer) LastSyncResourceVersion() string {
	return s.present().LastSyncResourceVersion()
}

// store is the store of the present informer, also for who keeps it.
type store struct {
	toolscache.Indexer // for what writes
	s                  *sharedInformer
}

func (x store) now() toolscache.Indexer                   { return x.s.present().GetIndexer() }
func (x store) List() []any                               { return x.now().List() }
func (x store) ListKeys() []string                        { return x.now().ListKeys() }
func (x store) Get(obj any) (any, bool, error)            { return x.now().Get(obj) }
func (x store) GetByKey(key string) (any, bool, error)    { return x.now().GetByKey(key) }
func (x store) Index(name string, obj any) ([]any, error) { return x.now().Index(name, obj) }
func (x store) ByIndex(name, value string) ([]any, error) { return x.now().ByIndex(name, value) }
func (x store) GetIndexers() toolscache.Indexers          { return x.now().GetIndexers() }
func (x store) IndexKeys(name, value string) ([]string, error) {
	return x.now().IndexKeys(name, value)
}

func (x store) ListIndexFuncValues(name string) []string {
	return x.now().ListIndexFuncValues(name)
}

func (x store) AddIndexers(added toolscache.Indexers) error { return x.s.AddIndexers(added) }
