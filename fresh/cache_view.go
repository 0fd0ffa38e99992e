// SPDX-License-Identifier: Apache-2.0

package fresh

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crapiutil "sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/freshmapper/freshmapper/internal/follow"
)

// View returns the cache for a client of controller-runtime's, which adds handlers if it reads its own writes. It
// also returns a function that removes these handlers from a kind, when another client takes the place of this one
// because the kind has another mapping.
func (c *followingCache) View() (client.Reader, func(newMapping *meta.RESTMapping)) {
	v := &view{followingCache: c, added: map[schema.GroupVersionKind][]*handler{}}
	return v, v.removeHandlers
}

// view is a cache that notes the handlers which a client adds.
type view struct {
	*followingCache
	mu    sync.Mutex // guards added
	added map[schema.GroupVersionKind][]*handler
}

// removeHandlers removes the handlers that a client has added to a kind, because the client is no longer used. A read
// through that client may still wait for one of its own writes. So the handlers stay until the cache has the new
// mapping, too, and has delivered a resource version to them.
func (v *view) removeHandlers(newMapping *meta.RESTMapping) {
	gvk := newMapping.GroupVersionKind
	v.mu.Lock()
	handlers := v.added[gvk]
	delete(v.added, gvk)
	v.mu.Unlock()
	for _, h := range handlers {
		h.reads.Store(clientReplaced)
		if !follow.Differ(h.i.currentUpstream().in.mapping, newMapping) {
			_ = h.i.RemoveEventHandler(h)
		}
	}
}

// GetInformer returns an informer that notes the handlers.
func (v *view) GetInformer(
	ctx context.Context, obj client.Object, opts ...cache.InformerGetOption,
) (cache.Informer, error) {
	i, err := v.followingCache.GetInformer(ctx, obj, opts...)
	if err != nil {
		return nil, err
	}
	gvk, err := crapiutil.GVKForObject(obj, v.opts.Scheme)
	return viewInformer{i, v, gvk}, err
}

// viewInformer is an informer that notes the handlers which are added to it.
type viewInformer struct {
	cache.Informer
	v   *view
	gvk schema.GroupVersionKind
}

func (i viewInformer) AddEventHandler(
	h toolscache.ResourceEventHandler,
) (toolscache.ResourceEventHandlerRegistration, error) {
	registration, err := i.Informer.AddEventHandler(h)
	added, ok := registration.(*handler)
	if err != nil || !ok {
		return registration, err
	}
	added.reads.Store(clientReadsWrites)
	i.v.mu.Lock()
	defer i.v.mu.Unlock()
	i.v.added[i.gvk] = append(i.v.added[i.gvk], added)
	return registration, nil
}
