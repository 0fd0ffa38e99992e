// SPDX-License-Identifier: Apache-2.0

package fresh

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crapiutil "sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/follow"
)

// NewCache is cache.New for a cache that follows its mapper: opts.Mapper, or a *DynamicRESTMapper of
// its own if that is nil. It fits into NewCache of ctrl.Options. It returns the same errors as cache.New, except
// that a kind in ByObject does not have to be served.
//
// Each kind has a controller-runtime cache that is right for the path of the kind. When the mapper knows
// another path, or finds that the kind was removed and re-created, a new one is filled and takes its place. Reads
// are answered by the old one until then: a List is the whole old or the whole new set. Then handlers receive
// what is different.
func NewCache(config *rest.Config, opts cache.Options) (cache.Cache, error) {
	if config == nil {
		return nil, errors.New("no cache without a rest.Config: config is nil")
	}
	named, err := follow.Defaults(config, &opts.HTTPClient, &opts.Scheme)
	if err == nil && opts.Mapper == nil {
		opts.Mapper, err = apiutil.NewDynamicRESTMapper(named, opts.HTTPClient)
	}
	if err != nil {
		return nil, err
	}
	mapper := follow.Of(opts.Mapper, follow.WaitUntilRead)
	if mapper == nil {
		return cache.New(config, opts)
	}
	checked := opts
	checked.Mapper = absentToo{opts.Mapper}
	if _, err := cache.New(named, checked); err != nil { // it has the errors of the options
		return nil, err
	}
	c := &followingCache{config: named, opts: opts, mapper: mapper, started: make(chan struct{}), kinds: newKindTable(), byObject: map[schema.GroupVersionKind]map[client.Object]cache.ByObject{}}
	c.kindsOf = follow.Kinds{Scheme: opts.Scheme, Find: crapiutil.GVKForObject}
	c.opts.DefaultNamespaces = maps.Clone(opts.DefaultNamespaces) // the caller may change what it has given
	c.opts.SyncPeriod = copied(opts.SyncPeriod)
	c.opts.DefaultUnsafeDisableDeepCopy, c.opts.DefaultEnableWatchBookmarks = copied(opts.DefaultUnsafeDisableDeepCopy), copied(opts.DefaultEnableWatchBookmarks)
	for obj, by := range opts.ByObject {
		gvk, err := c.kindsOf.Of(obj)
		if err != nil {
			return nil, err
		}
		by.Namespaces = maps.Clone(by.Namespaces)
		by.UnsafeDisableDeepCopy, by.EnableWatchBookmarks = copied(by.UnsafeDisableDeepCopy), copied(by.EnableWatchBookmarks)
		c.byObject[gvk] = map[client.Object]cache.ByObject{newObject(opts.Scheme, gvk, representationOf(obj)): by}
	}
	return c, nil
}

func copied[T any](value *T) *T {
	if value == nil {
		return nil
	}
	return ptr.To(*value)
}

// absentToo is a mapper that has a mapping for a kind that is absent: it may be served later.
type absentToo struct{ meta.RESTMapper }

func (m absentToo) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	mapping, err := m.RESTMapper.RESTMapping(gk, versions...)
	if meta.IsNoMatchError(err) {
		return &meta.RESTMapping{Scope: meta.RESTScopeNamespace}, nil
	}
	return mapping, err
}

// followingCache has an upstream cache for each kind, which is right until the path of the kind changes.
//
// Locks are taken in this order: its mu, the mu of a kind, upstream's of informers, the mu of an instance.
// None is held while a request is sent or while a function of the program runs, except NewInformer of
// the options. So a transform, an index or a handler may call the cache.
type followingCache struct {
	config   *rest.Config
	opts     cache.Options
	byObject map[schema.GroupVersionKind]map[client.Object]cache.ByObject // that of the options, by kind
	mapper   *follow.Mapper
	kindsOf  follow.Kinds
	started  chan struct{} // closed by Start
	polling  atomic.Bool   // a goroutine asks whether absent kinds are served
	running  atomic.Int64  // goroutines; a sync.WaitGroup can't have one more while Start waits

	mu    sync.Mutex      // held to change kinds
	kinds *kindTable      // a kind stays until its last informer is removed
	ctx   context.Context // of Start; nil before. mu guards it
}

// kindFor returns what the cache has of a kind, and makes it if there is nothing. A kind that is not served, and that
// the options name, is made for an informer. A read of it gets the error of its lookup.
func (c *followingCache) kindFor(gvk schema.GroupVersionKind, forInformer bool) (*kind, error) {
	if k := c.kinds.get(gvk); k != nil {
		return k, nil
	}
	mapping, err := c.mapper.Mapping(gvk)
	optional := c.byObject[gvk] != nil
	if optional && err == nil { // what is gone has its last mapping
		if _, known := c.mapper.KnownMapping(gvk); meta.IsNoMatchError(known) {
			err = known
		}
	}
	waits := optional && forInformer && meta.IsNoMatchError(err)
	switch {
	case err == nil || waits:
	case len(c.opts.DefaultNamespaces) > 0: // controller-runtime's text differs
		return nil, fmt.Errorf("failed to get restmapping: %w", err)
	default:
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.kinds.get(gvk); k != nil {
		return k, nil
	}
	var k *kind
	if waits {
		k, err = newAbsentKind(c, gvk, err)
	} else {
		k, err = newKind(c, gvk, mapping)
	}
	if err != nil {
		return nil, err
	}
	if c.ctx != nil {
		k.start(c.ctx)
		k.current.Load().WaitForCacheSync(context.WithoutCancel(c.ctx)) // that is, until it has started: it has no informers yet
	}
	c.kinds.add(k)
	current := k.current.Load()
	if why := current.absentBecause(); why != nil {
		k.waitsFor(current, why)
	}
	k.wake() // for what has happened since the lookup
	return k, nil
}

// Get reads from the current instance of the kind.
func (c *followingCache) Get(
	ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption,
) error {
	namespace := follow.NamespaceOf(ctx, obj)
	for {
		i, err := c.instanceFor(obj)
		if err != nil {
			return err
		}
		in := key
		if in.Namespace == "" && !i.clusterScoped() {
			in.Namespace = namespace
		}
		err = i.Get(ctx, in, obj, opts...)
		if !i.is(retired) {
			return i.explain(err)
		}
	}
}

// List reads from the current instance of the kind.
func (c *followingCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	namespace := follow.NamespaceOf(ctx, list)
	for {
		i, err := c.instanceFor(list)
		if err != nil {
			return err
		}
		err = i.List(ctx, list, i.inNamespace(namespace, opts)...)
		if !i.is(retired) {
			return i.explain(err)
		}
	}
}

// instanceFor returns the instance from which an object or a list is read, or why the kind is absent. A caller reads again
// if the instance is retired when the read has returned: another one has taken its place, or the informer was removed, and
// then it is as if the read had begun after that.
func (c *followingCache) instanceFor(obj runtime.Object) (*instance, error) {
	k := c.kinds.ofObject(obj)
	if k == nil {
		var err error
		k, err = c.findKind(obj)
		if err != nil {
			return nil, err
		}
	}
	i := k.current.Load()
	if why := i.absentBecause(); why != nil {
		return nil, why
	}
	return i, nil
}

// findKind returns the kind of an object that is read, and remembers it for the next read.
func (c *followingCache) findKind(obj runtime.Object) (*kind, error) {
	gvk, err := c.kindsOf.Of(obj)
	if err != nil {
		return nil, err
	}
	if c.opts.ReaderFailOnMissingInformer && c.kinds.get(gvk) == nil {
		return nil, &cache.ErrResourceNotCached{GVK: gvk}
	}
	k, err := c.kindFor(gvk, false)
	if err != nil {
		return nil, err
	}
	_, typed := typeMetaOf(obj)
	kindsOfType, _, _ := c.opts.Scheme.ObjectKinds(obj)
	if typed && len(kindsOfType) != 1 {
		return k, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kinds.remember(obj, k)
	return k, nil
}

// GetInformer returns an informer that stays when the kind switches to another path, or is absent.
func (c *followingCache) GetInformer(
	ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error,
) {
	gvk, err := c.kindsOf.Of(obj)
	if err != nil {
		return nil, err
	}
	for {
		k, err := c.kindFor(gvk, true)
		if err != nil {
			return nil, err
		}
		current := k.current.Load()
		if _, err = current.GetInformer(ctx, obj, opts...); err != nil && !current.is(retired) {
			return nil, current.explain(err)
		}
		if i, err := k.informer(ctx, representationOf(obj), current); i != nil || err != nil {
			return i, err
		}
	}
}

// GetInformerForKind is GetInformer for a kind of the scheme.
func (c *followingCache) GetInformerForKind(
	ctx context.Context, gvk schema.GroupVersionKind, opts ...cache.InformerGetOption) (cache.Informer, error,
) {
	made, err := c.opts.Scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	obj, ok := made.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%T is not a client.Object", made)
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk) // a type may have several kinds
	return c.GetInformer(ctx, obj, opts...)
}

// RemoveInformer removes the informer of a kind in one representation. It waits for nothing.
func (c *followingCache) RemoveInformer(ctx context.Context, obj client.Object) error {
	gvk, err := c.kindsOf.Of(obj)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.kinds.get(gvk)
	if k == nil {
		return nil
	}
	stays, err := k.remove(ctx, representationOf(obj))
	if !stays { // the next informer looks the kind up anew
		c.kinds.remove(k)
		k.end()
	}
	return err
}

// IndexField adds an index, which stays when the kind moves.
func (c *followingCache) IndexField(
	ctx context.Context, obj client.Object, field string, extract client.IndexerFunc,
) error {
	gvk, err := c.kindsOf.Of(obj)
	if err != nil {
		return err
	}
	of := representationOf(obj)
	for {
		k, err := c.kindFor(gvk, true)
		if err != nil {
			return err
		}
		ended, err := k.addIndex(&index{of, func(i *instance) error { return i.IndexField(ctx, k.object(of), field, extract) }})
		if !ended {
			return err
		}
	}
}

// Start runs the cache until ctx ends.
func (c *followingCache) Start(ctx context.Context) error {
	c.mu.Lock()
	if c.ctx != nil {
		c.mu.Unlock()
		return errors.New("informer already started")
	}
	c.ctx = ctx
	for _, k := range c.kinds.all() {
		k.start(ctx)
	}
	c.mu.Unlock()
	close(c.started)
	c.pollAbsent()
	c.follow(ctx)
	for c.running.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
	for gvk, k := range c.kinds.all() {
		c.mapper.SetWaiting(k, gvk, nil)
	}
	return nil
}

// follow wakes all kinds whenever the served API has changed, until ctx ends. It asks the mapper nothing
// else.
func (c *followingCache) follow(ctx context.Context) {
	for seen := c.mapper.Generation() - 1; ctx.Err() == nil; {
		changed := c.mapper.Changed()
		if now := c.mapper.Generation(); now != seen {
			seen = now
			for _, k := range c.kinds.all() {
				k.wake()
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// WaitForCacheSync waits until all that there is now has synced.
func (c *followingCache) WaitForCacheSync(ctx context.Context) bool {
	select {
	case <-c.started:
	case <-ctx.Done():
		return false
	}
	var synced []toolscache.InformerSynced
	for _, k := range c.kinds.all() {
		synced = append(synced, func() bool { return k.current.Load().synced() })
	}
	return toolscache.WaitForCacheSync(ctx.Done(), synced...)
}

// NeedLeaderElection returns false: the cache runs on every replica.
func (c *followingCache) NeedLeaderElection() bool { return false }

// run runs f in a goroutine that Start waits for.
func (c *followingCache) run(f func()) {
	c.running.Add(1)
	go func() {
		defer c.running.Add(-1)
		f()
	}()
}
