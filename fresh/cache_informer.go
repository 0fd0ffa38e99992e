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

	"github.com/freshmapper/freshmapper/internal/follow"
)

// informer is what programs get. It stays when the kind switches to another instance. The kind's mu guards what
// changes.
type informer struct {
	cache.Informer // the first upstream informer, for methods that we do not know
	k              *kind
	representation follow.Representation
	removed        bool           // RemoveInformer was called
	public         cache.Informer // this, or a sharedInformer with it
	upstream       attachment     // the current instance, and its informer; it has no registration
	handlers       []*handler
}

func newInformer(k *kind, representation follow.Representation, upstream cache.Informer, in *instance) *informer {
	i := &informer{
		Informer:       upstream,
		k:              k,
		representation: representation,
		upstream:       attachment{upstream: upstream, in: in},
	}
	i.public = i
	if shared, ok := upstream.(toolscache.SharedIndexInformer); ok {
		i.public = &sharedInformer{i, unknownMethods{embedded{shared}}}
	}
	return i
}

// currentUpstream returns the current instance, and its informer.
func (i *informer) currentUpstream() attachment {
	i.k.mu.Lock()
	defer i.k.mu.Unlock()
	return i.upstream
}

// switchTo makes the informer that of another instance. Then each handler switches by itself. The caller holds the
// kind's mu.
func (i *informer) switchTo(ctx context.Context, next *instance) {
	upstream, err := next.informer(ctx, i.representation)
	if err != nil {
		return
	}
	i.upstream = attachment{upstream: upstream, in: next}
	for _, h := range i.handlers {
		if !h.state.CompareAndSwap(handlerAttached, handlerSwitching) {
			continue // a goroutine is about to attach it, or it was removed
		}
		go func() {
			if err := h.attach(); err != nil {
				log.Log.WithName("fresh").
					Error(err, "A handler could not be added to the new informer of its kind, and receives no more events",
						"kind", i.k.gvk.String())
			}
		}()
	}
}

// registerFunc is a method of an upstream informer that registers a handler.
type registerFunc = func(
	cache.Informer, toolscache.ResourceEventHandler,
) (toolscache.ResourceEventHandlerRegistration, error)

// add adds a handler.
func (i *informer) add(
	receiver toolscache.ResourceEventHandler, register registerFunc,
) (toolscache.ResourceEventHandlerRegistration, error) {
	h := &handler{
		i:         i,
		receiver:  receiver,
		register:  register,
		shutdown:  make(chan struct{}),
		delivered: newDeliveredObjects(),
	}
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

// forget removes a handler from those that switch.
func (i *informer) forget(h *handler) {
	i.k.mu.Lock()
	defer i.k.mu.Unlock()
	i.handlers = slices.DeleteFunc(i.handlers, func(other *handler) bool { return other == h })
}

func (i *informer) AddEventHandler(
	h toolscache.ResourceEventHandler,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.add(h, cache.Informer.AddEventHandler)
}

func (i *informer) AddEventHandlerWithResyncPeriod(
	h toolscache.ResourceEventHandler, resync time.Duration,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.add(h, func(
		upstream cache.Informer, h toolscache.ResourceEventHandler,
	) (toolscache.ResourceEventHandlerRegistration, error) {
		return upstream.AddEventHandlerWithResyncPeriod(h, resync)
	})
}

func (i *informer) AddEventHandlerWithOptions(
	h toolscache.ResourceEventHandler, options toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.add(h, func(
		upstream cache.Informer, h toolscache.ResourceEventHandler,
	) (toolscache.ResourceEventHandlerRegistration, error) {
		return upstream.AddEventHandlerWithOptions(h, options)
	})
}

func (i *informer) RemoveEventHandler(registration toolscache.ResourceEventHandlerRegistration) error {
	h, ok := registration.(*handler)
	if !ok {
		return errors.New("the registration is not of an informer that follows its kind")
	}
	if h.i != i { // upstream's informer returns no error then, either
		return nil
	}
	i.forget(h)
	return h.remove()
}

func (i *informer) AddIndexers(indexers toolscache.Indexers) error {
	if i.isRemoved() {
		return errors.New("indexers were not added, because RemoveInformer was called for the informer")
	}
	_, err := i.k.addIndex(&index{i.representation, func(in *instance) error {
		upstream, err := in.informer(context.Background(), i.representation)
		if err != nil {
			return err
		}
		return upstream.AddIndexers(indexers)
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

// sharedInformer is an informer that is a SharedIndexInformer, as upstream's is in a cache of one namespace or of
// all.
type sharedInformer struct {
	*informer
	unknownMethods
}

// unknownMethods has the methods of a SharedIndexInformer that we do not know. The methods of informer take
// precedence, because Go takes the method of the least depth: those of SharedIndexInformer are one level deeper than
// those of cache.Informer in informer.
type unknownMethods struct{ embedded }

type embedded struct{ toolscache.SharedIndexInformer }

// currentShared returns the upstream informer of the current instance. If that instance has one for each of several
// namespaces, it returns the first upstream informer.
func (s *sharedInformer) currentShared() toolscache.SharedIndexInformer {
	if current, ok := s.currentUpstream().upstream.(toolscache.SharedIndexInformer); ok {
		return current
	}
	return s.SharedIndexInformer
}

// set sets something on the upstream informer, and if that succeeds, on those of later instances.
func (s *sharedInformer) set(kept *atomic.Pointer[setting], set setting) error {
	current := s.currentShared()
	if wrapped, ok := current.(instanceInformer); ok {
		current = wrapped.SharedIndexInformer
	}
	if err := set(current); err != nil {
		return err
	}
	kept.Store(&set)
	return nil
}

func (s *sharedInformer) settings() *settings { return &s.k.settings[s.representation] }

func (s *sharedInformer) SetTransform(transform toolscache.TransformFunc) error {
	return s.set(&s.settings().transform, func(upstream toolscache.SharedIndexInformer) error {
		return upstream.SetTransform(transform)
	})
}

func (s *sharedInformer) SetWatchErrorHandler(handle toolscache.WatchErrorHandler) error {
	return s.set(&s.settings().watchErrorHandler, func(upstream toolscache.SharedIndexInformer) error {
		return upstream.SetWatchErrorHandler(handle)
	})
}

func (s *sharedInformer) SetWatchErrorHandlerWithContext(handle toolscache.WatchErrorHandlerWithContext) error {
	return s.set(&s.settings().watchErrorHandler, func(upstream toolscache.SharedIndexInformer) error {
		return upstream.SetWatchErrorHandlerWithContext(handle)
	})
}

func (s *sharedInformer) GetStore() toolscache.Store { return s.GetIndexer() }

func (s *sharedInformer) GetIndexer() toolscache.Indexer {
	return currentIndexer{s.currentShared().GetIndexer(), s}
}

func (s *sharedInformer) LastSyncResourceVersion() string {
	return s.currentShared().LastSyncResourceVersion()
}

// currentIndexer is the indexer of the current instance. A program may keep it. Its methods that write are those of
// the first indexer.
type currentIndexer struct {
	toolscache.Indexer
	s *sharedInformer
}

func (x currentIndexer) current() toolscache.Indexer { return x.s.currentShared().GetIndexer() }

func (x currentIndexer) List() []any { return x.current().List() }

func (x currentIndexer) ListKeys() []string { return x.current().ListKeys() }

func (x currentIndexer) Get(obj any) (any, bool, error) { return x.current().Get(obj) }

func (x currentIndexer) GetByKey(key string) (any, bool, error) { return x.current().GetByKey(key) }

func (x currentIndexer) Index(name string, obj any) ([]any, error) {
	return x.current().Index(name, obj)
}

func (x currentIndexer) ByIndex(name, value string) ([]any, error) {
	return x.current().ByIndex(name, value)
}

func (x currentIndexer) GetIndexers() toolscache.Indexers { return x.current().GetIndexers() }

func (x currentIndexer) IndexKeys(name, value string) ([]string, error) {
	return x.current().IndexKeys(name, value)
}

func (x currentIndexer) ListIndexFuncValues(name string) []string {
	return x.current().ListIndexFuncValues(name)
}

func (x currentIndexer) AddIndexers(indexers toolscache.Indexers) error {
	return x.s.AddIndexers(indexers)
}
