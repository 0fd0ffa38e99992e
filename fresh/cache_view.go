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

// View returns the cache as a client of controller-runtime's gets it, which adds handlers if it reads its own writes; and
// what removes those of a kind, for when another client takes its place because the kind has another mapping.
func (c *followingCache) View() (client.Reader, func(*meta.RESTMapping)) {
	v := &view{followingCache: c, added: map[schema.GroupVersionKind][]*handler{}}
	return v, v.leave
}

// view notes the handlers that a client adds.
type view struct {
	*followingCache
	mu    sync.Mutex // guards added
	added map[schema.GroupVersionKind][]*handler
}

// leave removes the handlers of a kind, those of a client that is no longer used. A read through that client may still wait
// for a write of its own, so they stay until the cache has the new mapping, too, and were given a resource version then.
func (v *view) leave(now *meta.RESTMapping) {
	gvk := now.GroupVersionKind
	v.mu.Lock()
	handlers := v.added[gvk]
	delete(v.added, gvk)
	v.mu.Unlock()
	for _, h := range handlers {
		h.reads.Store(clientReplaced)
		if !follow.Differ(h.i.currentUpstream().in.mapping, now) {
			_ = h.i.RemoveEventHandler(h)
		}
	}
}

func (v *view) GetInformer(
	ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error,
) {
	i, err := v.followingCache.GetInformer(ctx, obj, opts...)
	if err != nil {
		return nil, err
	}
	gvk, err := crapiutil.GVKForObject(obj, v.opts.Scheme)
	return viewed{i, v, gvk}, err
}

// viewed is an informer that notes who adds handlers to it.
type viewed struct {
	cache.Informer
	v   *view
	gvk schema.GroupVersionKind
}

func (i viewed) AddEventHandler(
	h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error,
) {
	registration, err := i.Informer.AddEventHandler(h)
	if added, ok := registration.(*handler); ok && err == nil {
		added.reads.Store(clientReadsWrites)
		i.v.mu.Lock()
		defer i.v.mu.Unlock()
		i.v.added[i.gvk] = append(i.v.added[i.gvk], added)
	}
	return registration, err
}
