// SPDX-License-Identifier: Apache-2.0

package fresh

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crapiutil "sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// View returns the cache as a client of upstream's gets it, which adds handlers if it reads its own writes;
// and what removes those of a kind, for when another client takes its place.
func (c *followingCache) View() (client.Reader, func(schema.GroupVersionKind)) {
	v := &view{followingCache: c, added: map[schema.GroupVersionKind][]func() error{}}
	return v, v.leave
}

type view struct {
	*followingCache
	mu    sync.Mutex // guards added
	added map[schema.GroupVersionKind][]func() error
}

func (v *view) leave(gvk schema.GroupVersionKind) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, remove := range v.added[gvk] {
		_ = remove()
	}
	delete(v.added, gvk)
}

func (v *view) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
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

func (i viewed) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	registration, err := i.Informer.AddEventHandler(h)
	if err == nil {
		i.v.mu.Lock()
		defer i.v.mu.Unlock()
		i.v.added[i.gvk] = append(i.v.added[i.gvk], func() error { return i.RemoveEventHandler(registration) })
	}
	return registration, err
}
