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

// NewClient is client.New for a client that follows its mapper: options.Mapper, or a *DynamicRESTMapper of its own if
// that is nil. It fits into NewClient of ctrl.Options. It sends no request. Its errors are upstream's.
//
// If the server shows that the path of a read is wrong, the read is sent once more, to the right one. A write is sent
// once more only if the server cannot have executed the first one, and only if the scope of the kind is the same.
func NewClient(config *rest.Config, options client.Options) (client.Client, error) {
	c, err := newFollowingClient(config, &options)
	if err != nil {
		return nil, err
	}
	if c == nil {
		return newOther(config, options)
	}
	return c, nil
}

// NewWithWatch is client.NewWithWatch for a client that follows its mapper, as NewClient has it. What the options say
// of writes holds on every release of controller-runtime.
func NewWithWatch(config *rest.Config, options client.Options) (client.WithWatch, error) {
	c, err := newFollowingClient(config, &options)
	if err != nil {
		return nil, err
	}
	if c == nil {
		return newOtherWithWatch(config, options)
	}
	return followingWatch{c}, nil
}

// newFollowingClient returns nil if the mapper is not one that can be followed.
func newFollowingClient(config *rest.Config, options *client.Options) (*followingClient, error) {
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
	c := &followingClient{
		config:   named,
		options:  *options,
		mapper:   mapper,
		kinds:    follow.Kinds{Scheme: options.Scheme, Find: crapiutil.GVKForObject},
		uncached: map[schema.GroupVersionKind]bool{},
	}
	if options.DryRun != nil { // the caller may change what it has given
		c.options.DryRun = ptr.To(*options.DryRun)
	}
	if options.Cache != nil && options.Cache.Reader != nil {
		if err := c.setCache(*options.Cache); err != nil {
			return nil, err
		}
	}
	c.replacements.Store(&map[schema.GroupVersionKind]*upstreamClient{})
	c.first, err = c.newUpstream()
	return c, err
}

// setCache makes the client read from a cache. The objects of DisableFor are replaced, because the caller may change
// them.
func (c *followingClient) setCache(options client.CacheOptions) error {
	objects := options.DisableFor
	options.DisableFor = nil
	for _, obj := range objects {
		gvk, err := crapiutil.GVKForObject(obj, c.options.Scheme)
		if err != nil {
			return err
		}
		c.uncached[gvk] = true
		ofKind := &metav1.PartialObjectMetadata{}
		ofKind.SetGroupVersionKind(gvk)
		options.DisableFor = append(options.DisableFor, ofKind)
	}
	c.cache = &options
	c.options.Cache = c.cache
	return nil
}

// followingClient sends each request through an upstream client that has the right mapping.
type followingClient struct {
	config  *rest.Config
	options client.Options
	mapper  *follow.Mapper
	kinds   follow.Kinds

	cache    *client.CacheOptions // nil: nothing is read from a cache
	uncached map[schema.GroupVersionKind]bool

	// first is for each kind that has no replacement. A kind gets a replacement when its mapping is no longer the one
	// that its upstream client has. The map is replaced and never changed.
	first        *upstreamClient
	replacements atomic.Pointer[map[schema.GroupVersionKind]*upstreamClient]
	mu           sync.Mutex // held to replace the map. No request is sent meanwhile
}

// upstreamClient is a client of controller-runtime's, and the mappings that it uses.
type upstreamClient struct {
	client.Client
	mappings       *firstMappings
	withWatch      func() (client.WithWatch, error)   // makes one that also watches, at the first call
	removeHandlers func(newMapping *meta.RESTMapping) // removes the handlers of a kind that it has added to the cache
}

// newUpstream returns an upstream client that uses the first mapping of each kind, whatever the mapper says later.
func (c *followingClient) newUpstream() (*upstreamClient, error) {
	options := c.options
	u := &upstreamClient{
		mappings:       &firstMappings{RESTMapper: options.Mapper, lookup: c.mapper.Mapping},
		removeHandlers: func(*meta.RESTMapping) {},
	}
	options.Mapper = u.mappings
	if c.cache != nil {
		if following, ok := c.cache.Reader.(interface {
			View() (client.Reader, func(*meta.RESTMapping))
		}); ok {
			withView := *c.cache
			withView.Reader, u.removeHandlers = following.View()
			options.Cache = &withView
		}
	}
	u.withWatch = sync.OnceValues(func() (client.WithWatch, error) { return client.NewWithWatch(c.config, options) })
	var err error
	u.Client, err = client.New(c.config, options)
	return u, err
}

// firstMappings is a mapper that keeps the first mapping of each kind in a version.
type firstMappings struct {
	meta.RESTMapper
	lookup func(schema.GroupVersionKind) (*meta.RESTMapping, error)
	byKind follow.Map[schema.GroupVersionKind, *meta.RESTMapping]
}

func (f *firstMappings) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if len(versions) != 1 {
		return f.RESTMapper.RESTMapping(gk, versions...)
	}
	gvk := gk.WithVersion(versions[0])
	if first := f.byKind.Get(gvk); first != nil {
		return first, nil
	}
	mapping, err := f.lookup(gvk)
	if err != nil {
		return nil, err
	}
	return f.byKind.LoadOrStore(gvk, mapping), nil
}

// upstreamOf returns the upstream client of a kind.
func (c *followingClient) upstreamOf(gvk schema.GroupVersionKind) *upstreamClient {
	return cmp.Or((*c.replacements.Load())[gvk], c.first)
}

// route is how a request is sent: an upstream client, and the mapping which that has for the kind. The answer is
// compared with this mapping, and not with what the mapper knows by then.
type route struct {
	upstream *upstreamClient
	mapping  *meta.RESTMapping
}

// currentRoute returns the route to the path at which the mapper knows a kind now.
func (c *followingClient) currentRoute(gvk schema.GroupVersionKind) (route, error) {
	now, err := c.mapper.Mapping(gvk)
	if err != nil {
		return route{}, err
	}
	upstream := c.upstreamOf(gvk)
	used := upstream.mappings.byKind.LoadOrStore(gvk, now)
	if !follow.Differ(used, now) {
		return route{upstream, used}, nil
	}
	next, err := c.replace(upstream, now)
	if err != nil {
		return route{}, err
	}
	if next.mappings.byKind.LoadOrStore(gvk, now) == now {
		c.mapper.ReportSwitch("client")
		log.Log.WithName("fresh").Info("The client follows a kind to another path", "kind", gvk.String(),
			"oldResource", used.Resource.Resource, "oldScope", used.Scope.Name(),
			"resource", now.Resource.Resource, "scope", now.Scope.Name())
	}
	return route{next, next.mappings.byKind.Get(gvk)}, nil
}

// replace returns a new upstream client for the kind of a mapping, in place of one that has another mapping.
func (c *followingClient) replace(old *upstreamClient, newMapping *meta.RESTMapping) (*upstreamClient, error) {
	gvk := newMapping.GroupVersionKind
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := c.upstreamOf(gvk); other != old {
		return other, nil
	}
	next, err := c.newUpstream()
	if err != nil {
		return nil, err
	}
	replacements := maps.Clone(*c.replacements.Load())
	replacements[gvk] = next
	c.replacements.Store(&replacements)
	old.removeHandlers(newMapping)
	return next, nil
}

// operation is what a request does.
type operation int

const (
	readsObject operation = iota
	listsObjects
	writesObject
)

// request is what a program asks for.
type request struct {
	does      operation
	namespace string // that the caller has named; "" if none
	obj       any
	send      func(client *upstreamClient) error

	// onlyInContext reports whether only the context of the request has the namespace: the client that
	// NewNamespacedClient returns left it out of what is sent, because the kind was cluster-scoped then.
	onlyInContext bool
}

// emptyList removes what an answer has put into the list of a request, if it is for one. Decoding another answer into
// it would keep fields that this does not have.
func (r request) emptyList() {
	list, ok := r.obj.(client.ObjectList)
	if !ok {
		return
	}
	_ = meta.SetList(list, nil) // which only fails for a type that is no list
	list.SetResourceVersion("")
	list.SetContinue("")
	list.SetRemainingItemCount(nil)
}

// send sends a request, and once more if its path was certainly wrong and another one is right.
func (c *followingClient) send(ctx context.Context, r request) error {
	gvk, err := c.kindOf(r.obj)
	if err != nil {
		return r.send(c.first) // which has upstream's error
	}
	first, err := c.plan(ctx, gvk, r)
	if err != nil {
		return err
	}
	firstAnswer := c.try(first, r)
	newMapping, noAnswer := c.mapper.NewMapping(ctx, first.mapping, firstAnswer.reply)
	if meta.IsNoMatchError(noAnswer) && !c.mapper.Remembers(gvk) {
		return noAnswer // as for a client that is made now
	}
	if newMapping == nil {
		return firstAnswer.result(r, noAnswer)
	}
	return c.resend(gvk, r, firstAnswer)
}

// plan returns the route of a request, or why it must not be sent. One of several API servers may be behind. So
// before a request is rejected, the mapper reads the server.
func (c *followingClient) plan(ctx context.Context, gvk schema.GroupVersionKind, r request) (route, error) {
	planned, err := c.currentRoute(gvk)
	if err != nil {
		return route{}, err
	}
	if c.rejects(planned.mapping, r) == nil {
		return planned, nil
	}
	_, _ = c.mapper.NewMapping(ctx, planned.mapping, follow.ReplyContradicts)
	return c.allowedRoute(gvk, r)
}

// allowedRoute returns the current route, or why the request must not be sent by that.
func (c *followingClient) allowedRoute(gvk schema.GroupVersionKind, r request) (route, error) {
	current, err := c.currentRoute(gvk)
	if err != nil {
		return route{}, err
	}
	return current, c.rejects(current.mapping, r)
}

// rejects returns why a request must not be sent with a mapping, or nil. It is a 404 if the request would reach
// another kind, or, being a write for a namespace, a cluster-scoped object of a kind that was namespaced. It is a
// conflict if it would reach all namespaces in place of one.
func (c *followingClient) rejects(mapping *meta.RESTMapping, r request) error {
	resource := mapping.Resource.GroupResource()
	namespace := r.namespace
	if r.does != writesObject {
		namespace = ""
	}
	if why := c.mapper.Refuses(mapping, namespace); why != "" {
		rejected := apierrors.NewNotFound(resource, "")
		rejected.ErrStatus.Message = why
		return rejected
	}
	if r.does == writesObject && r.onlyInContext && mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return apierrors.NewConflict(resource, "", fmt.Errorf("%s was cluster-scoped when the request for "+
			"namespace %q was made, and is namespaced again; nothing was sent, try again",
			mapping.GroupVersionKind.Kind, r.namespace))
	}
	return nil
}

// answer is what came of a request, and what it says about the mapping with which the request was sent.
type answer struct {
	mapping *meta.RESTMapping
	err     error
	reply   follow.Reply
}

// try sends a request by a route, and compares the answer with the mapping.
func (c *followingClient) try(by route, r request) answer {
	err := r.send(by.upstream)
	reply := follow.ReplyOf(err)
	if list, ok := r.obj.(runtime.Object); ok && r.does == listsObjects {
		reply = follow.ReplyOfList(by.mapping, list, err)
	}
	if reply != follow.ReplyContradicts {
		c.mapper.Remember(by.mapping)
	}
	return answer{by.mapping, err, reply}
}

// resend sends a request once more, because the first answer contradicts its mapping and the kind has another one by
// now. If the second answer contradicts its mapping, too, the first error is the result.
func (c *followingClient) resend(gvk schema.GroupVersionKind, r request, first answer) error {
	next, err := c.allowedRoute(gvk, r)
	if err != nil {
		return first.result(r, err)
	}
	if r.does == writesObject && next.mapping.Scope.Name() != first.mapping.Scope.Name() {
		return first.err
	}
	r.emptyList()
	second := c.try(next, r)
	if first.err != nil && second.reply == follow.ReplyContradicts {
		return first.err
	}
	return second.result(r, nil)
}

// result returns the error of an answer. The list for a namespace that has the objects of other namespaces, too, is
// an error: the server lists them so while the kind is taken for cluster-scoped. reason is why the kind has no other
// mapping, if known.
func (a answer) result(r request, reason error) error {
	isForNamespace := r.namespace != "" && a.mapping.Scope.Name() == meta.RESTScopeNameRoot
	if a.err != nil || !isForNamespace || a.reply != follow.ReplyContradicts {
		return a.err
	}
	r.emptyList()
	if reason == nil {
		reason = errors.New("discovery says that the kind is cluster-scoped")
	}
	return fmt.Errorf("the list of %s in namespace %q has objects of other namespaces, so nothing is returned: %w",
		a.mapping.Resource.Resource, r.namespace, reason)
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
	default:
		return gvk, fmt.Errorf("%T has no kind", obj)
	}
}

// cached returns the upstream client through which an object is read from the cache, or nil if it is not read from
// there.
func (c *followingClient) cached(obj runtime.Object) client.Reader {
	if c.cache == nil {
		return nil
	}
	if _, ok := obj.(runtime.Unstructured); ok && !c.cache.Unstructured {
		return nil
	}
	replacements := *c.replacements.Load()
	if len(c.uncached) == 0 && len(replacements) == 0 {
		return c.first // for every kind: this spares the reads of most programs a search for the kind
	}
	gvk, err := c.kinds.Of(obj)
	if err != nil || c.uncached[gvk] {
		return nil
	}
	return cmp.Or(replacements[gvk], c.first)
}

// followingWatch is a followingClient with Watch.
type followingWatch struct{ *followingClient }

// Watch watches objects. A watch for a namespace ends if the server sends an object of another namespace.
func (c followingWatch) Watch(
	ctx context.Context, list client.ObjectList, opts ...client.ListOption,
) (watch.Interface, error) {
	namespace := (&client.ListOptions{}).ApplyOptions(opts).Namespace
	var watching watch.Interface
	err := c.send(ctx, request{does: readsObject, namespace: namespace, obj: list, send: func(u *upstreamClient) error {
		upstream, err := u.withWatch()
		if err != nil {
			return err
		}
		watching, err = upstream.Watch(ctx, list, opts...)
		return err
	}})
	if err != nil || namespace == "" {
		return watching, err
	}
	stop := watching.Stop
	ended := false
	return follow.FilterWatch(watching, func(event watch.Event) (watch.Event, bool) {
		if ended {
			return event, false
		}
		object, err := meta.Accessor(event.Object)
		if err != nil || object.GetNamespace() == "" || object.GetNamespace() == namespace {
			return event, true
		}
		ended = true
		go stop()
		expired := apierrors.NewResourceExpired(fmt.Sprintf(
			"the server sends objects of namespace %q, and not only of %q", object.GetNamespace(), namespace))
		return watch.Event{Type: watch.Error, Object: &expired.ErrStatus}, true
	}), nil
}
