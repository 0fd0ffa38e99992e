// SPDX-License-Identifier: Apache-2.0

package fresh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crapiutil "sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/freshmapper/freshmapper/internal/follow"
)

// NewClient is client.New for a client that follows its mapper: options.Mapper, or a
// *DynamicRESTMapper of its own if that is nil. It fits into NewClient of ctrl.Options. It sends no
// request. Its errors are upstream's.
//
// A read that meets a wrong path is sent once more, to the right one. A write is sent once more only if
// the server cannot have executed the first, and only to the same scope.
func NewClient(config *rest.Config, options client.Options) (client.Client, error) {
	c, err := newFollowing(config, &options)
	switch {
	case err != nil:
		return nil, err
	case c == nil:
		return newOther(config, options)
	}
	return c, nil
}

// NewWithWatch is client.NewWithWatch for a client that follows its mapper, as NewClient has it. What
// options say of writes holds on every release of controller-runtime.
func NewWithWatch(config *rest.Config, options client.Options) (client.WithWatch, error) {
	c, err := newFollowing(config, &options)
	switch {
	case err != nil:
		return nil, err
	case c == nil:
		return newOtherWithWatch(config, options)
	}
	return followingWatch{c}, nil
}

// newFollowing returns nil if the mapper is not one that is followed.
func newFollowing(config *rest.Config, options *client.Options) (*followingClient, error) {
	if config == nil {
		return nil, nil // upstream has the error
	}
	own := options.HTTPClient == nil
	named, err := follow.Defaults(config, &options.HTTPClient, &options.Scheme)
	if err == nil && options.Mapper == nil {
		options.Mapper, err = mapperOf(config, options.HTTPClient, own)
	}
	if err != nil {
		return nil, err
	}
	mapper := follow.Of(options.Mapper, follow.WaitBriefly)
	if mapper == nil {
		return nil, nil
	}
	c := &followingClient{config: named, options: *options, mapper: mapper, uncached: map[schema.GroupVersionKind]bool{}}
	c.kinds = follow.Kinds{Scheme: options.Scheme, Find: crapiutil.GVKForObject}
	if options.DryRun != nil { // the caller may change what it has given
		c.options.DryRun = ptr.To(*options.DryRun)
	}
	if options.Cache != nil && options.Cache.Reader != nil {
		c.cache = ptr.To(*options.Cache)
		c.cache.DisableFor = nil
		for _, obj := range options.Cache.DisableFor {
			gvk, err := crapiutil.GVKForObject(obj, options.Scheme)
			if err != nil {
				return nil, err
			}
			c.uncached[gvk] = true
			kind := &metav1.PartialObjectMetadata{}
			kind.SetGroupVersionKind(gvk)
			c.cache.DisableFor = append(c.cache.DisableFor, kind)
		}
		c.options.Cache = c.cache
	}
	c.moved.Store(&map[schema.GroupVersionKind]*pinned{})
	c.first, err = c.pin()
	return c, err
}

// followingClient sends each request through an upstream client that has the right mapping.
type followingClient struct {
	config  *rest.Config
	options client.Options
	mapper  *follow.Mapper
	kinds   follow.Kinds
	first   *pinned                                             // for the kinds that have not moved since it was made
	moved   atomic.Pointer[map[schema.GroupVersionKind]*pinned] // for the others; the map is never changed, but replaced
	mu      sync.Mutex                                          // held to replace one of these; no request is sent meanwhile

	cache    *client.CacheOptions // nil: nothing is read from a cache
	uncached map[schema.GroupVersionKind]bool
}

// pinned is an upstream client, and the mappings that it has.
type pinned struct {
	client.Client
	pins     *pins
	watching func() (client.WithWatch, error) // an upstream client that watches with them
	leave    func(now *meta.RESTMapping)      // removes the handlers that it has left at the cache
}

// pin returns an upstream client that keeps the first mapping of each kind.
func (c *followingClient) pin() (p *pinned, err error) {
	options := c.options
	p = &pinned{pins: &pins{RESTMapper: options.Mapper, lookup: c.mapper.Mapping}, leave: func(*meta.RESTMapping) {}}
	options.Mapper = p.pins
	if c.cache != nil {
		if has, ok := c.cache.Reader.(interface {
			View() (client.Reader, func(*meta.RESTMapping))
		}); ok {
			viewed := *c.cache
			viewed.Reader, p.leave = has.View()
			options.Cache = &viewed
		}
	}
	p.watching = sync.OnceValues(func() (client.WithWatch, error) { return client.NewWithWatch(c.config, options) })
	p.Client, err = client.New(c.config, options)
	return p, err
}

// pins is a mapper that keeps the first mapping of each kind in a version.
type pins struct {
	meta.RESTMapper
	lookup func(schema.GroupVersionKind) (*meta.RESTMapping, error)
	first  follow.Map[schema.GroupVersionKind, *meta.RESTMapping]
}

func (p *pins) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if len(versions) != 1 {
		return p.RESTMapper.RESTMapping(gk, versions...)
	}
	gvk := gk.WithVersion(versions[0])
	if first := p.first.Get(gvk); first != nil {
		return first, nil
	}
	mapping, err := p.lookup(gvk)
	if err != nil {
		return nil, err
	}
	return p.first.LoadOrStore(gvk, mapping), nil
}

// of returns the client for a kind.
func (c *followingClient) of(gvk schema.GroupVersionKind) *pinned {
	return cmp.Or((*c.moved.Load())[gvk], c.first)
}

// at returns the client that has the present mapping of a kind, and that mapping: the one that a request is
// judged by is the one that it is sent with.
func (c *followingClient) at(gvk schema.GroupVersionKind) (*pinned, *meta.RESTMapping, error) {
	now, err := c.mapper.Mapping(gvk)
	if err != nil {
		return nil, nil, err
	}
	has := c.of(gvk)
	used := has.pins.first.LoadOrStore(gvk, now)
	if !follow.Differ(used, now) {
		return has, used, nil
	}
	next, err := c.replace(now, has)
	if err != nil {
		return nil, nil, err
	}
	if next.pins.first.LoadOrStore(gvk, now) == now {
		c.mapper.ReportSwitch("client")
		log.Log.WithName("fresh").Info("The client follows a kind to another path", "kind", gvk.String(),
			"oldResource", used.Resource.Resource, "oldScope", used.Scope.Name(), "resource", now.Resource.Resource, "scope", now.Scope.Name())
	}
	return next, next.pins.first.Get(gvk), nil
}

// replace returns a new client for a kind, which has no mapping yet, instead of one that has an old mapping.
func (c *followingClient) replace(now *meta.RESTMapping, has *pinned) (*pinned, error) {
	gvk := now.GroupVersionKind
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := c.of(gvk); other != has {
		return other, nil
	}
	next, err := c.pin()
	if err == nil {
		moved := maps.Clone(*c.moved.Load())
		moved[gvk] = next
		c.moved.Store(&moved)
		has.leave(now)
	}
	return next, err
}

// access says what a request does.
type access int

const (
	reads access = iota
	lists
	writes
)

// request is what a program asks for.
type request struct {
	does      access
	namespace string // that the caller has named; "" if none
	obj       any
	send      func(*pinned) error

	// contextOnly reports whether only the context of the request has the namespace: the client that
	// NewNamespacedClient has made left it out of what is sent, because the kind was cluster-scoped then.
	contextOnly bool
}

// send sends a request, and once more if its path was certainly wrong and another one is right.
func (c *followingClient) send(ctx context.Context, r request) error {
	gvk, err := c.kindOf(r.obj)
	if err != nil {
		return r.send(c.first) // which has upstream's error
	}
	at, used, err := c.allowed(gvk, r)
	if used != nil && err != nil { // one of several API servers may be behind
		_, _ = c.mapper.NewMapping(ctx, used, follow.ReplyContradicts)
		at, used, err = c.allowed(gvk, r)
	}
	if err != nil {
		return err
	}
	err = r.send(at)
	doubt := c.judge(used, r, err)
	now, unproven := c.mapper.NewMapping(ctx, used, doubt)
	switch {
	case meta.IsNoMatchError(unproven) && !c.mapper.Remembers(gvk):
		return unproven // as for a client that is made now
	case now == nil:
		return r.answer(used, doubt, err, unproven)
	}
	at, now, failed := c.allowed(gvk, r)
	if failed != nil {
		return r.answer(used, doubt, err, failed)
	}
	if r.does == writes && now.Scope.Name() != used.Scope.Name() {
		return err
	}
	again := r.send(at)
	if doubt := c.judge(now, r, again); err == nil || doubt != follow.ReplyContradicts {
		return r.answer(now, doubt, again, nil)
	}
	return err
}

// judge returns the doubt that an answer casts on the mapping with which its request was sent.
func (c *followingClient) judge(used *meta.RESTMapping, r request, err error) follow.Reply {
	doubt := follow.ReplyOf(err)
	if list, ok := r.obj.(runtime.Object); ok && r.does == lists {
		doubt = follow.ReplyOfList(used, list, err)
	}
	if doubt != follow.ReplyContradicts {
		c.mapper.Remember(used)
	}
	return doubt
}

// answer returns err, but no list for a namespace that has what is in others. why is nil or tells why the
// mapping that was used is still the known one.
func (r request) answer(used *meta.RESTMapping, doubt follow.Reply, err, why error) error {
	if err != nil || r.namespace == "" || doubt != follow.ReplyContradicts || used.Scope.Name() != meta.RESTScopeNameRoot {
		return err
	}
	if why == nil {
		why = errors.New("discovery says so")
	}
	return fmt.Errorf("the server lists %s of all namespaces, and not of %q, as if they were cluster-scoped: %w", used.Resource.Resource, r.namespace, why)
}

// allowed returns what at returns, and an error if a request must not be sent with that mapping: a 404 if it would reach
// another kind or what is cluster-scoped, and a conflict if it would reach all namespaces in place of one.
func (c *followingClient) allowed(gvk schema.GroupVersionKind, r request) (*pinned, *meta.RESTMapping, error) {
	at, used, err := c.at(gvk)
	if err != nil {
		return nil, nil, err
	}
	namespace := r.namespace
	if r.does != writes {
		namespace = ""
	}
	if why := c.mapper.Refuses(used, namespace); why != "" {
		refused := apierrors.NewNotFound(used.Resource.GroupResource(), "")
		refused.ErrStatus.Message = why
		return nil, used, refused
	}
	if r.does == writes && r.contextOnly && used.Scope.Name() == meta.RESTScopeNameNamespace {
		return nil, used, apierrors.NewConflict(used.Resource.GroupResource(), "", fmt.Errorf("%s was cluster-scoped when the "+
			"request for namespace %q was made, and is namespaced again; nothing was sent, try again", gvk.Kind, r.namespace))
	}
	return at, used, nil
}

// kindOf returns the kind of an object, of the objects in a list, or of an apply configuration.
func (c *followingClient) kindOf(obj any) (gvk schema.GroupVersionKind, err error) {
	switch obj := obj.(type) {
	case runtime.Object:
		return c.kinds.Of(obj)
	case interface {
		GetKind() *string
		GetAPIVersion() *string
	}:
		gv, err := schema.ParseGroupVersion(ptr.Deref(obj.GetAPIVersion(), ""))
		return gv.WithKind(ptr.Deref(obj.GetKind(), "")), err
	}
	return gvk, fmt.Errorf("%T has no kind", obj)
}

// cached returns the client through which an object is read from the cache, or nil.
func (c *followingClient) cached(obj runtime.Object) client.Reader {
	if c.cache == nil {
		return nil
	}
	if _, ok := obj.(runtime.Unstructured); ok && !c.cache.Unstructured {
		return nil
	}
	moved := *c.moved.Load()
	if len(c.uncached) == 0 && len(moved) == 0 {
		return c.first // of whatever kind the object is: this spares each read of most programs a search for it
	}
	gvk, err := c.kinds.Of(obj)
	if err != nil || c.uncached[gvk] {
		return nil
	}
	return cmp.Or(moved[gvk], c.first)
}

// followingWatch is a followingClient with Watch.
type followingWatch struct{ *followingClient }

func (c followingWatch) Watch(ctx context.Context, list client.ObjectList, opts ...client.ListOption) (watching watch.Interface, err error) {
	namespace := (&client.ListOptions{}).ApplyOptions(opts).Namespace
	err = c.send(ctx, request{does: reads, namespace: namespace, obj: list, send: func(at *pinned) error {
		with, err := at.watching()
		if err == nil {
			watching, err = with.Watch(ctx, list, opts...)
		}
		return err
	}})
	if err != nil || namespace == "" {
		return watching, err
	}
	stop, ends := watching.Stop, false
	return follow.FilterWatch(watching, func(event watch.Event) (watch.Event, bool) {
		object, err := meta.Accessor(event.Object)
		if ends || err != nil || object.GetNamespace() == "" || object.GetNamespace() == namespace {
			return event, !ends
		}
		ends = true
		go stop()
		ended := apierrors.NewResourceExpired(fmt.Sprintf("the server tells of namespace %q, and not only of %q", object.GetNamespace(), namespace))
		return watch.Event{Type: watch.Error, Object: &ended.ErrStatus}, true
	}), nil
}
