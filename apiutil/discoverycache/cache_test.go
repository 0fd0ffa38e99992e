// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package discoverycache_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/apiutil/discoverycache"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/fakeapi/bubble"
)

// The stories in apiutil/testdata/stories/discovery.txt play what a cache does over time, with deferred mappers over
// it.

// cacheTest is a cache, its mapper and its server.
type cacheTest struct {
	discovery.CachedDiscoveryInterface
	server *fakeapi.Server
	mapper *apiutil.DynamicRESTMapper

	client         discovery.DiscoveryInterface // for what is not cached
	clientRequests atomic.Int64
}

func newCacheTest(t *testing.T, server *fakeapi.Server, opts apiutil.DynamicRESTMapperOptions) *cacheTest {
	t.Helper()
	mapper, err := apiutil.NewDynamicRESTMapperWithOptions(server.Config(), server.Client(), opts)
	if err != nil {
		t.Fatal(err)
	}
	c := &cacheTest{server: server, mapper: mapper}
	counting := roundTripper(func(req *http.Request) (*http.Response, error) {
		c.clientRequests.Add(1)
		return server.Client().Transport.RoundTrip(req)
	})
	client, err := discovery.NewDiscoveryClientForConfigAndClient(server.Config(), &http.Client{Transport: counting})
	if err != nil {
		t.Fatal(err)
	}
	c.client = client
	c.CachedDiscoveryInterface = discoverycache.New(mapper, client)
	return c
}

type roundTripper func(*http.Request) (*http.Response, error)

func (rt roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return rt(req) }

// kinds returns a group that serves namespaced kinds in one version.
func kinds(group, version string, names ...string) fakeapi.Group {
	v := fakeapi.Version{Name: version}
	for _, kind := range names {
		singular := strings.ToLower(kind)
		v.Resources = append(v.Resources, fakeapi.Resource{
			Name: singular + "s", Singular: singular, Kind: kind, Namespaced: true, Subresources: []string{"status"},
		})
	}
	return fakeapi.Group{Name: group, Versions: []fakeapi.Version{v}}
}

func newServer(forms fakeapi.Forms) *fakeapi.Server {
	server := fakeapi.New(
		kinds("", "v1", "Pod", "Node"),
		kinds("example.com", "v1", "Foo", "Bar"),
		kinds("other.example.com", "v1", "Other"),
	)
	server.SetForms(forms)
	return server
}

// forms are how a server speaks.
var forms = map[string]fakeapi.Forms{"aggregated": fakeapi.Aggregated(), "legacy": fakeapi.Legacy()}

// ignoreErrors keeps client-go from handling errors: it pauses while it holds a mutex, which hangs a bubble.
func ignoreErrors(t *testing.T) {
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
}

// resourcesIn lists resources as "group/version/name".
func resourcesIn(lists []*metav1.APIResourceList) (names []string) {
	for _, list := range lists {
		for _, r := range list.APIResources {
			names = append(names, list.GroupVersion+"/"+r.Name)
		}
	}
	slices.Sort(names)
	return names
}

// resources lists all resources. It fails the test if the lists do not follow the groups, or if an error is
// a NotFound.
func (c *cacheTest) resources(t *testing.T) ([]string, error) {
	t.Helper()
	groups, lists, err := c.ServerGroupsAndResources()
	failed, _ := discovery.GroupDiscoveryFailedErrorGroups(err)
	for gv, err := range failed {
		if apierrors.IsNotFound(err) {
			t.Errorf("%s is not found: %v", gv, err)
		}
	}
	if apierrors.IsNotFound(err) {
		t.Errorf("the API is not found: %v", err)
	}
	if err == nil && len(groups) == 0 {
		t.Error("an empty API, and no error")
	}
	last := -1
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		position := slices.IndexFunc(groups, func(g *metav1.APIGroup) bool { return g.Name == gv.Group })
		if position < max(last, 0) {
			t.Errorf("the list of %s is of no group, or in the wrong place", gv)
		}
		last = position
	}
	return resourcesIn(lists), err
}

// Whatever a server or a gateway answers in an outage, it never looks as if APIs had been removed: there is an error,
// or what was known.
func TestOutageIsNeverAnEmptyAPI(t *testing.T) {
	ignoreErrors(t)
	panics := utilruntime.PanicHandlers
	utilruntime.PanicHandlers = nil
	t.Cleanup(func() { utilruntime.PanicHandlers = panics })

	all := []string{"example.com/v1/bars", "example.com/v1/foos", "other.example.com/v1/others", "v1/nodes", "v1/pods"}
	isWhole := func(names []string) bool {
		missing := func(name string) bool { return !slices.Contains(names, name) }
		return !slices.ContainsFunc(all, missing)
	}
	another := newServer(fakeapi.Legacy())
	faults := map[string]fakeapi.Fault{
		"the list of another group": fakeapi.Func("another's list", func(req *http.Request) (*http.Response, error) {
			req = req.Clone(req.Context())
			req.URL.Path = "/apis/other.example.com/v1"
			return another.Client().Transport.RoundTrip(req)
		}),
		"a gateway's 404":            fakeapi.StatusText(404),
		"an empty 404":               fakeapi.Empty(404),
		"the text of a server's 404": fakeapi.Text(404, "404 page not found\n"),
		"refused":                    fakeapi.Refused(),
		"login":                      fakeapi.LoginPage(),
		"{}":                         fakeapi.EmptyObject(),
		"403":                        fakeapi.Status(403, 0),
		"500":                        fakeapi.Status(500, 0),
		"cut":                        fakeapi.TruncatedClean(),
		"nothing":                    fakeapi.Empty200(),
		"panic":                      fakeapi.Func("panic", func(*http.Request) (*http.Response, error) { panic("broken") }),
		"Goexit": fakeapi.Func("Goexit", func(*http.Request) (*http.Response, error) {
			runtime.Goexit()
			return nil, nil
		}),
	}
	places := map[string]func(*http.Request) bool{
		"all": fakeapi.All(), "/api": fakeapi.At("/api"), "/apis": fakeapi.At("/apis"), "/api/v1": fakeapi.At("/api/v1"),
		"/apis/example.com/v1": fakeapi.At("/apis/example.com/v1"),
	}
	for form, speaks := range forms {
		for name, fault := range faults {
			for place, at := range places {
				t.Run(form+"/"+name+" at "+place, func(t *testing.T) {
					bubble.Run(t, func(t *testing.T) {
						server := newServer(speaks)
						opts := apiutil.DynamicRESTMapperOptions{RequestTimeout: 10 * time.Second}
						cold, warm := newCacheTest(t, server, opts), newCacheTest(t, server, opts)
						if names, err := warm.resources(t); !isWhole(names) || err != nil {
							t.Fatal(names, err)
						}

						server.Put(kinds("new.example.com", "v1", "New"))
						server.SetFault(at, fault)
						warm.mapper.Reset()
						if names, err := warm.resources(t); !isWhole(names) {
							t.Errorf("known before: %q, %v; want all that was known", names, err)
						}
						if names, err := cold.resources(t); !isWhole(names) && err == nil {
							t.Errorf("nothing was known: %q without an error", names)
						}
					})
				})
			}
		}
	}
}

// Answers, and their order, are those of client-go's cache over the same server.
func TestAnswersAreThoseOfClientGo(t *testing.T) {
	for form, speaks := range forms {
		t.Run(form, func(t *testing.T) {
			server := fakeapi.New(fakeapi.Typical(12, 3, 2)...)
			server.SetForms(speaks)
			c := newCacheTest(t, server, apiutil.DynamicRESTMapperOptions{})
			theirs := memory.NewMemCacheClient(c.client)
			if diff := cmp.Diff(answersOf(t, theirs), answersOf(t, c)); diff != "" {
				t.Errorf("client-go's answers and ours (-theirs +ours):\n%s", diff)
			}
		})
	}
}

func answersOf(t *testing.T, d discovery.DiscoveryInterface) map[string]any {
	t.Helper()
	groups, lists, err := d.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	byName := func(a, b *metav1.APIResourceList) int { return strings.Compare(a.GroupVersion, b.GroupVersion) }
	slices.SortFunc(lists, byName) // client-go has them in any order
	for i, list := range lists {
		// A list of the aggregated document has no kind.
		lists[i] = &metav1.APIResourceList{GroupVersion: list.GroupVersion, APIResources: list.APIResources}
	}
	one := must(d.ServerResourcesForGroupVersion("g0003.example.com/v2"))
	_, absent := d.ServerResourcesForGroupVersion("absent.example.com/v1")
	_, malformed := d.ServerResourcesForGroupVersion("a/b/c")
	return map[string]any{
		"groups":       must(d.ServerGroups()),
		"groups, too":  groups,
		"lists":        lists,
		"one list":     one.APIResources,
		"preferred":    resourcesIn(must(d.ServerPreferredResources())),
		"namespaced":   resourcesIn(must(d.ServerPreferredNamespacedResources())),
		"malformed":    malformed != nil,
		"is not found": absent == memory.ErrCacheNotFound, //nolint:errorlint // Callers compare it.
	}
}

// An empty version has an empty list and no error. One that is down keeps its place among the versions of its group,
// and its last list.
func TestEmptyAndFailingVersions(t *testing.T) {
	for form, speaks := range forms {
		t.Run(form, func(t *testing.T) {
			server := fakeapi.New(fakeapi.Typical(12, 3, 2)...)
			server.SetForms(speaks)
			c := newCacheTest(t, server, apiutil.DynamicRESTMapperOptions{})
			before := must(c.ServerGroups())

			server.PutVersion("g0002.example.com", fakeapi.Version{Name: "v4"})
			c.Invalidate()
			list, err := c.ServerResourcesForGroupVersion("g0002.example.com/v4")
			if err != nil || len(list.APIResources) != 0 {
				t.Errorf("an empty version: %v, %v; want an empty list", list, err)
			}

			down := server.Groups()[3]
			down.Versions = slices.Clone(down.Versions)
			down.Versions[0].Stale = true
			server.Put(down)
			c.Invalidate()
			groups, lists, err := c.ServerGroupsAndResources()
			failed, _ := discovery.GroupDiscoveryFailedErrorGroups(err)
			if len(lists) != 1+12*3+1 || len(failed) != 1 {
				t.Errorf("%d lists, %v; want all 38, and an error of the version that is down", len(lists), err)
			}
			if diff := cmp.Diff(before.Groups[3].Versions, groups[3].Versions); diff != "" {
				t.Errorf("a version is down (-before +now):\n%s", diff)
			}
		})
	}
}

// A version whose list cannot be decoded as a whole is served, and has an error in place of a list: a part of the list
// would be taken for all, and none for a version that is not served.
func TestListThatCannotBeDecoded(t *testing.T) {
	gv := schema.GroupVersion{Group: "g0003.example.com", Version: "v1"}
	server := fakeapi.New(fakeapi.Typical(12, 3, 2)...)
	server.SetForms(fakeapi.Legacy())
	server.SetFault(fakeapi.At("/apis/"+gv.String()), fakeapi.Func("malformed", func(req *http.Request) (*http.Response, error) {
		body := `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"` + gv.String() + `","resources":[` +
			`{"name":"as","singularName":"a","kind":"A","namespaced":true,"verbs":["get"],"shortNames":["a",7]}]}`
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
	}))
	c := newCacheTest(t, server, apiutil.DynamicRESTMapperOptions{})

	list, err := c.ServerResourcesForGroupVersion(gv.String())
	if list != nil || err == nil || errors.Is(err, memory.ErrCacheNotFound) {
		t.Errorf("%v, %v; want an error, and not that the version is not served", list, err)
	}
	_, _, err = c.ServerGroupsAndResources()
	if failed, _ := discovery.GroupDiscoveryFailedErrorGroups(err); len(failed) != 1 || failed[gv] == nil {
		t.Errorf("all: %v; want an error of %v alone", err, gv)
	}
}

// What is cached costs no request of the client, which has all else. Velero needs AggregatedDiscoveryInterface.
func TestClientHasWhatIsNotCached(t *testing.T) {
	c := newCacheTest(t, newServer(fakeapi.Aggregated()), apiutil.DynamicRESTMapperOptions{})
	aggregated, ok := c.CachedDiscoveryInterface.(discovery.AggregatedDiscoveryInterface)
	if !ok {
		t.Fatal("it is no AggregatedDiscoveryInterface")
	}
	groups, lists, failed, err := aggregated.GroupsAndMaybeResources()
	if err != nil || len(groups.Groups) != 3 || len(lists) != 3 || len(failed) != 0 {
		t.Errorf("%d groups, %d lists, %v, %v; want 3 and 3", len(groups.Groups), len(lists), failed, err)
	}
	if n := c.clientRequests.Load(); n != 0 {
		t.Errorf("%d requests of the client for what is cached", n)
	}
	_, _ = c.OpenAPISchema()
	if n := c.clientRequests.Load(); n != 1 {
		t.Errorf("%d requests of the client for an OpenAPI document; want 1", n)
	}
}

// Uses, changes and Invalidate may come from any goroutine.
func TestConcurrentUses(t *testing.T) {
	for form, speaks := range forms {
		t.Run(form, func(t *testing.T) {
			server := newServer(speaks)
			c := newCacheTest(t, server, apiutil.DynamicRESTMapperOptions{})
			deferred := restmapper.NewDeferredDiscoveryRESTMapper(c)
			foo := schema.GroupKind{Group: "example.com", Kind: "Foo"}
			late := schema.GroupKind{Group: "new.example.com", Kind: "New"}
			allAtOnce(16, func(i int) {
				for n := range 10 {
					switch i {
					case 0:
						server.PutVersion("example.com", kinds("", fmt.Sprint("v", n+2), "Late").Versions[0])
					case 1:
						c.Invalidate()
					case 2:
						_ = c.mapper.Refresh(context.Background())
					}
					if _, err := deferred.RESTMapping(foo, "v1"); err != nil {
						t.Error(err)
					}
					if names, err := c.resources(t); err != nil || !slices.Contains(names, "example.com/v1/foos") {
						t.Errorf("while versions come, and it is invalidated: %q, %v; want foos among them", names, err)
					}
				}
			})

			server.SetLatency(20 * time.Millisecond)
			server.Put(kinds(late.Group, "v1", late.Kind))
			allAtOnce(200, func(int) {
				_, _ = deferred.RESTMapping(late, "v1") // one whose neighbor was faster may be answered from what was
				if _, err := deferred.RESTMapping(late, "v1"); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func allAtOnce(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

// A use costs nothing while nothing changes.
func TestUseAllocatesNothing(t *testing.T) {
	c := newCacheTest(t, fakeapi.New(fakeapi.Typical(100, 2, 2)...), apiutil.DynamicRESTMapperOptions{})
	got := testing.AllocsPerRun(100, func() { // which calls it once before it counts
		_, err := c.ServerGroups()
		list, listErr := c.ServerResourcesForGroupVersion("g0050.example.com/v1")
		if err != nil || listErr != nil || list == nil {
			t.Error(err, listErr)
		}
	})
	if got > 0 {
		t.Errorf("%v allocations; want none", got)
	}
}

// The cache reads with the bounds of its mapper, and a document that is the same is not sent again.
func TestReadsAreThoseOfTheMapper(t *testing.T) {
	server := newServer(fakeapi.Aggregated())
	c := newCacheTest(t, server, apiutil.DynamicRESTMapperOptions{})
	if _, err := c.resources(t); err != nil {
		t.Fatal(err)
	}
	server.TakeRequests()
	c.mapper.Reset()
	if names, err := c.resources(t); err != nil || len(names) == 0 {
		t.Errorf("after a reset: %q, %v", names, err)
	}
	for _, r := range server.TakeRequests() {
		if r.Code != http.StatusNotModified {
			t.Errorf("GET %s was answered %d; want 304", r.Path, r.Code)
		}
	}

	bounded := newCacheTest(t, server, apiutil.DynamicRESTMapperOptions{MaxResponseBytes: 100})
	if names, err := bounded.resources(t); err == nil {
		t.Errorf("with answers of 100 bytes at most: %q, nil; want an error", names)
	}
}
