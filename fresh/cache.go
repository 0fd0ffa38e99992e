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

// NewCache is cache.New for a cache that follows its mapper: opts.Mapper, or a *DynamicRESTMapper of its own if that
// is nil. It fits into NewCache of ctrl.Options. It returns the same errors as cache.New, except that a kind in
// ByObject does not have to be served.
//
// Each kind has a controller-runtime cache that is right for the path of the kind. When the mapper knows another
// path, or finds that the kind was removed and re-created, a new cache is filled and takes the place of the old one.
// Until then reads are answered by the old one: a List returns all old or all new objects. Then handlers get what is
// different.
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
	checked.Mapper = guessingMapper{opts.Mapper}
	if _, err := cache.New(named, checked); err != nil { // it has the errors of the options
		return nil, err
	}
	c := &followingCache{
		config:      named,
		opts:        opts,
		mapper:      mapper,
		objectKinds: follow.Kinds{Scheme: opts.Scheme, Find: crapiutil.GVKForObject},
		byObject:    map[schema.GroupVersionKind]map[client.Object]cache.ByObject{},
		started:     make(chan struct{}),
		kinds:       newKindTable(),
	}
	if err := c.copyOptions(); err != nil {
		return nil, err
	}
	return c, nil
}

// copyOptions copies what the caller may change later.
func (c *followingCache) copyOptions() error {
	c.opts.DefaultNamespaces = maps.Clone(c.opts.DefaultNamespaces)
	c.opts.SyncPeriod = copied(c.opts.SyncPeriod)
	c.opts.DefaultUnsafeDisableDeepCopy = copied(c.opts.DefaultUnsafeDisableDeepCopy)
	c.opts.DefaultEnableWatchBookmarks = copied(c.opts.DefaultEnableWatchBookmarks)
	for obj, by := range c.opts.ByObject {
		gvk, err := c.objectKinds.Of(obj)
		if err != nil {
			return err
		}
		by.Namespaces = maps.Clone(by.Namespaces)
		by.UnsafeDisableDeepCopy = copied(by.UnsafeDisableDeepCopy)
		by.EnableWatchBookmarks = copied(by.EnableWatchBookmarks)
		ofKind := newObject(c.opts.Scheme, gvk, follow.RepresentationOf(obj))
		c.byObject[gvk] = map[client.Object]cache.ByObject{ofKind: by}
	}
	return nil
}

func copied[T any](value *T) *T {
	if value == nil {
		return nil
	}
	return ptr.To(*value)
}

// guessingMapper is a mapper that has a mapping also for a kind that is not served. It may be served later.
type guessingMapper struct{ meta.RESTMapper }

func (m guessingMapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	mapping, err := m.RESTMapper.RESTMapping(gk, versions...)
	if meta.IsNoMatchError(err) {
		return &meta.RESTMapping{Scope: meta.RESTScopeNamespace}, nil
	}
	return mapping, err
}

// followingCache has an upstream cache for each kind, which is right until the path of the kind changes.
//
// Locks are taken in this order: mu of the cache, mu of a kind, upstream's of informers, mu of an instance. None is
// held while a request is sent or while a function of the program runs, except NewInformer of the options. So a
// transform, an index or a handler may call the cache.
type followingCache struct {
	config      *rest.Config
	opts        cache.Options
	byObject    map[schema.GroupVersionKind]map[client.Object]cache.ByObject // that of the options, by kind
	mapper      *follow.Mapper
	objectKinds follow.Kinds
	started     chan struct{} // closed by Start
	polling     atomic.Bool   // a goroutine asks whether absent kinds are served
	goroutines  atomic.Int64  // that run; a sync.WaitGroup cannot have one more while Start waits

	mu    sync.Mutex      // held to change kinds
	kinds *kindTable      // a kind stays until its last informer is removed
	ctx   context.Context // of Start; nil before. mu guards it
}

// ifAbsent is what a caller gets of a kind that is not served, if cache.Options.ByObject names it.
type ifAbsent int

const (
	// failIfAbsent is for reads: they get the error of the lookup.
	failIfAbsent ifAbsent = iota
	// waitIfAbsent is for informers and indexes: the kind is absent, and they wait for it.
	waitIfAbsent
)

// kindFor returns what the cache has of a kind, and makes it if there is nothing.
func (c *followingCache) kindFor(gvk schema.GroupVersionKind, ifAbsent ifAbsent) (*kind, error) {
	if k := c.kinds.get(gvk); k != nil {
		return k, nil
	}
	mapping, err := c.lookup(gvk)
	waits := ifAbsent == waitIfAbsent && c.isOptional(gvk) && meta.IsNoMatchError(err)
	if err != nil && !waits {
		if len(c.opts.DefaultNamespaces) > 0 { // controller-runtime's text differs
			err = fmt.Errorf("failed to get restmapping: %w", err)
		}
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
		// The kind has no informers yet. So this waits only until its instance has started.
		k.current.Load().WaitForCacheSync(context.WithoutCancel(c.ctx))
	}
	c.kinds.add(k)
	current := k.current.Load()
	if reason := current.absentBecause(); reason != nil {
		k.setWaiting(current, reason)
	}
	k.wake() // for what has happened since the lookup
	return k, nil
}

// isOptional reports whether a kind may be absent: cache.Options.ByObject names it.
func (c *followingCache) isOptional(gvk schema.GroupVersionKind) bool { return c.byObject[gvk] != nil }

// lookup returns the mapping of a kind. If the kind was removed, the mapper returns its last mapping, so that
// requests get the answers of the server. An optional kind is absent then, and the error is NoMatch.
func (c *followingCache) lookup(gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	mapping, err := c.mapper.Mapping(gvk)
	if err != nil || !c.isOptional(gvk) {
		return mapping, err
	}
	_, removed := c.mapper.KnownMapping(gvk)
	if meta.IsNoMatchError(removed) {
		return nil, removed
	}
	return mapping, nil
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

// instanceFor returns the instance from which an object or a list is read, or why the kind is absent. A caller reads
// again if the instance is retired when the read has returned: another one has taken its place, or the informer was
// removed, and then it is as if the read had begun after that.
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
	if reason := i.absentBecause(); reason != nil {
		return nil, reason
	}
	return i, nil
}

// findKind returns the kind of an object that is read, and remembers it for the next read.
func (c *followingCache) findKind(obj runtime.Object) (*kind, error) {
	gvk, err := c.objectKinds.Of(obj)
	if err != nil {
		return nil, err
	}
	if c.opts.ReaderFailOnMissingInformer && c.kinds.get(gvk) == nil {
		return nil, &cache.ErrResourceNotCached{GVK: gvk}
	}
	k, err := c.kindFor(gvk, failIfAbsent)
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
	ctx context.Context, obj client.Object, opts ...cache.InformerGetOption,
) (cache.Informer, error) {
	gvk, err := c.objectKinds.Of(obj)
	if err != nil {
		return nil, err
	}
	for {
		k, err := c.kindFor(gvk, waitIfAbsent)
		if err != nil {
			return nil, err
		}
		current := k.current.Load()
		_, err = current.GetInformer(ctx, obj, opts...)
		if err != nil && !current.is(retired) {
			return nil, current.explain(err)
		}
		i, err := k.informer(ctx, follow.RepresentationOf(obj), current)
		if i != nil || err != nil {
			return i, err
		}
	}
}

// GetInformerForKind is GetInformer for a kind of the scheme.
func (c *followingCache) GetInformerForKind(
	ctx context.Context, gvk schema.GroupVersionKind, opts ...cache.InformerGetOption,
) (cache.Informer, error) {
	ofKind, err := c.opts.Scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	obj, ok := ofKind.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%T is not a client.Object", ofKind)
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk) // a type may have several kinds
	return c.GetInformer(ctx, obj, opts...)
}

// RemoveInformer removes the informer of a kind in one representation. It waits for nothing.
func (c *followingCache) RemoveInformer(ctx context.Context, obj client.Object) error {
	gvk, err := c.objectKinds.Of(obj)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.kinds.get(gvk)
	if k == nil {
		return nil
	}
	stays, err := k.remove(ctx, follow.RepresentationOf(obj))
	if !stays { // the next informer looks the kind up anew
		c.kinds.remove(k)
		k.end()
	}
	return err
}

// IndexField adds an index, which stays when the kind switches to another path.
func (c *followingCache) IndexField(
	ctx context.Context, obj client.Object, field string, extract client.IndexerFunc,
) error {
	gvk, err := c.objectKinds.Of(obj)
	if err != nil {
		return err
	}
	representation := follow.RepresentationOf(obj)
	for {
		k, err := c.kindFor(gvk, waitIfAbsent)
		if err != nil {
			return err
		}
		ended, err := k.addIndex(&index{representation, func(i *instance) error {
			return i.IndexField(ctx, k.object(representation), field, extract)
		}})
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
	c.pollAbsentKinds()
	c.follow(ctx)
	for c.goroutines.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
	for gvk, k := range c.kinds.all() {
		c.mapper.SetWaiting(k, gvk, nil)
	}
	return nil
}

// follow wakes all kinds whenever the served API has changed, until ctx ends. It does not make the mapper read
// anything.
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

// WaitForCacheSync waits until the informers that there are now have synced.
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
	c.goroutines.Add(1)
	go func() {
		defer c.goroutines.Add(-1)
		f()
	}()
}
