// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
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
)

// cachedView is a cached discovery, and its mapper.
type cachedView struct {
	discovery.CachedDiscoveryInterface
	mapper   *apiutil.DynamicRESTMapper
	client   discovery.DiscoveryInterface // for what is not cached
	passedOn atomic.Int64                 // requests of that client
}

func newView(t *testing.T, server *fakeapi.Server) *cachedView {
	return viewOf(newMapper(t, server, apiutil.DynamicRESTMapperOptions{RequestTimeout: 10 * time.Second}), server)
}

func viewOf(m *apiutil.DynamicRESTMapper, server *fakeapi.Server) *cachedView {
	v := &cachedView{mapper: m}
	counting := through(func(req *http.Request) (*http.Response, error) {
		v.passedOn.Add(1)
		return server.Client().Transport.RoundTrip(req)
	})
	v.client = must(discovery.NewDiscoveryClientForConfigAndClient(server.Config(), &http.Client{Transport: counting}))
	v.CachedDiscoveryInterface = discoverycache.New(v.mapper, v.client)
	return v
}

// inCache prints what a cached discovery has: whether it prefers a resource, or a list.
func (s *storyStage) inCache(command, name string) string {
	if command == "has" {
		lists, err := s.cache.ServerPreferredResources()
		failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
		if err != nil && !partial {
			return "failed"
		}
		told := map[bool]string{true: "yes", false: "no"}[slices.Contains(resourcesIn(lists), name)]
		if len(failed) >= len(lists) {
			return told + ", failed all"
		}
		var names []string
		for gv := range failed {
			names = append(names, ", failed "+gv.String())
		}
		slices.Sort(names)
		return told + strings.Join(names, "")
	}
	list, err := s.cache.ServerResourcesForGroupVersion(name)
	if errors.Is(err, memory.ErrCacheNotFound) {
		return "not found"
	}
	told := strings.Join(resourcesIn([]*metav1.APIResourceList{list}), ", ")
	if err != nil {
		told = strings.TrimPrefix(told+", failed", ", ")
	}
	return told
}

// discover does the commands about a cached discovery, and a deferred mapper over it.
func (s *storyStage) discover(command string, args []string) (string, error) {
	switch command {
	case "cache":
		s.cache = viewOf(s.mapper, s.server)
		s.deferred = restmapper.NewDeferredDiscoveryRESTMapper(s.cache)
	case "deferred":
		mapping, err := s.deferred.RESTMapping(schema.GroupKind{Group: groupOf(args[0]), Kind: args[1]}, args[2:]...)
		return answerWord(mappingText(mapping), err), nil
	case "short": // as kubectl looks up what its user has typed
		kind, err := restmapper.NewShortcutExpander(s.deferred, s.cache, nil).KindFor(schema.GroupVersionResource{Resource: args[0]})
		return answerWord(kindText(kind), err), nil
	case "reset-deferred":
		s.deferred.Reset()
	case "invalidate":
		s.cache.Invalidate()
	case "fresh":
		return fmt.Sprint(s.cache.Fresh()), nil
	case "poll":
		n, _ := strconv.Atoi(args[0])
		pause, _ := time.ParseDuration(args[1])
		for range n {
			_, _ = s.cache.ServerGroups()
			time.Sleep(pause)
		}
	}
	return "", nil
}

// quietly keeps client-go from handling errors: it pauses while it holds a mutex, which hangs a bubble.
func quietly(t *testing.T) {
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
}

// resourcesIn lists resources as "group/version/name".
func resourcesIn(lists []*metav1.APIResourceList) (names []string) {
	for _, list := range lists {
		if list != nil {
			for _, r := range list.APIResources {
				names = append(names, list.GroupVersion+"/"+r.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// served lists all resources. It fails the test if the lists do not follow the groups, or an error is a NotFound.
func (v *cachedView) served(t *testing.T) ([]string, error) {
	t.Helper()
	groups, lists, err := v.ServerGroupsAndResources()
	failed, _ := discovery.GroupDiscoveryFailedErrorGroups(err)
	for gv, err := range failed {
		if apierrors.IsNotFound(err) {
			t.Errorf("%s is said not to be there: %v", gv, err)
		}
	}
	if apierrors.IsNotFound(err) || err == nil && len(groups) == 0 {
		t.Errorf("the API is said not to be there: %v", err)
	}
	place := -1
	for _, list := range lists {
		before, gv := place, must(schema.ParseGroupVersion(list.GroupVersion))
		if place = slices.IndexFunc(groups, func(g *metav1.APIGroup) bool { return g.Name == gv.Group }); place < max(before, 0) {
			t.Errorf("the list of %s is of no group, or in the wrong place", gv)
		}
	}
	return resourcesIn(lists), err
}

// What a server or a gateway may answer in an outage never looks as if APIs had gone: there is an
// error, or what was known.
func TestCachedDiscoveryInAnOutage(t *testing.T) {
	quietly(t)
	countPanics(t)
	all := []string{"example.com/v1/bars", "example.com/v1/foos", "other.example.com/v1/others", "v1/nodes", "v1/pods"}
	whole := func(names []string) bool {
		return !slices.ContainsFunc(all, func(name string) bool { return !slices.Contains(names, name) })
	}
	another := newServer(fakeapi.Legacy())
	for name, fault := range map[string]fakeapi.Fault{
		"the list of another group": fakeapi.Func("another's list", func(req *http.Request) (*http.Response, error) {
			req = req.Clone(req.Context())
			req.URL.Path = "/apis/other.example.com/v1"
			return another.Client().Transport.RoundTrip(req)
		}),
		"a gateway's 404": fakeapi.StatusText(404), "an empty 404": fakeapi.Empty(404), "the server's own 404": fakeapi.Text(404, "404 page not found\n"), "refused": fakeapi.Refused(),
		"login": fakeapi.LoginPage(), "{}": fakeapi.EmptyObject(), "403": fakeapi.Status(403, 0), "500": fakeapi.Status(500, 0), "cut": fakeapi.TruncatedClean(), "nothing": fakeapi.Empty200(),
		"panic":  fakeapi.Func("panic", func(*http.Request) (*http.Response, error) { panic("broken") }),
		"Goexit": fakeapi.Func("Goexit", func(*http.Request) (*http.Response, error) { runtime.Goexit(); return nil, nil }),
	} {
		for _, place := range []string{"all", "/api", "/apis", "/api/v1", "/apis/example.com/v1"} {
			t.Run(name+" at "+place, func(t *testing.T) {
				eachServer(t, func(t *testing.T, server *fakeapi.Server) {
					outage := fakeapi.New(server.Groups()...)
					outage.SetForms(map[bool]fakeapi.Forms{true: fakeapi.Legacy(), false: fakeapi.Aggregated()}[strings.HasSuffix(t.Name(), "legacy")])
					outage.SetFault(faultPlace(place), fault)
					cold, warm := newView(t, server), newView(t, server)
					if names, err := warm.served(t); !whole(names) || err != nil {
						t.Fatal(names, err)
					}
					serve(server, newKind)
					server.SetFault(fakeapi.All(), fakeapi.Func("outage", outage.Client().Transport.RoundTrip))
					for _, v := range []*cachedView{cold, warm} {
						v.mapper.Reset()
						if names, err := v.served(t); !whole(names) && (v == warm || err == nil) {
							t.Errorf("known before: %t: %q, %v", v == warm, names, err)
						}
					}
				})
			})
		}
	}
}

// Answers, and their order, are those of client-go's cache over the same server. An empty version is
// no error here, and one that is down keeps its place.
func TestCachedDiscoveryAnswersAsClientGo(t *testing.T) {
	quietly(t)
	eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
		server := fakeapi.New(fakeapi.Typical(12, 3, 2)...)
		server.SetForms(forms)
		v := newView(t, server)
		theirs := memory.NewMemCacheClient(v.client)
		if diff := cmp.Diff(answersOf(t, theirs), answersOf(t, v)); diff != "" {
			t.Errorf("client-go's answers and ours (-theirs +ours):\n%s", diff)
		}
		before := must(theirs.ServerGroups())
		server.PutVersion("g0002.example.com", fakeapi.Version{Name: "v4"})
		v.Invalidate()
		if list, err := v.ServerResourcesForGroupVersion("g0002.example.com/v4"); err != nil || len(list.APIResources) != 0 {
			t.Errorf("an empty version: %v, %v; want an empty list", list, err)
		}
		if _, lists, err := v.ServerGroupsAndResources(); len(lists) != 1+12*3+1 || err != nil {
			t.Errorf("%d lists, %v; want core/v1, 3 versions of 12 groups, and the empty one", len(lists), err)
		}
		down := server.Groups()[3]
		down.Versions = slices.Clone(down.Versions)
		down.Versions[0].Stale = true
		server.Remove("g0002.example.com")
		server.Put(down)
		v.Invalidate()
		groups, lists, err := v.ServerGroupsAndResources()
		if failed, _ := discovery.GroupDiscoveryFailedErrorGroups(err); len(lists) != 1+11*3 || len(failed) != 1 {
			t.Errorf("%d lists, %v; want core/v1, 3 versions of 11 groups, and one version that failed", len(lists), err)
		}
		if diff := cmp.Diff(before.Groups[3].Versions, groups[2].Versions); diff != "" {
			t.Errorf("a version is down (-before +now):\n%s", diff)
		}
		server.TakeRequests()
		v.passedOn.Store(0)
		_, _ = v.OpenAPISchema()
		aggregated, ok := v.CachedDiscoveryInterface.(discovery.AggregatedDiscoveryInterface) // Velero needs that
		if !ok {
			t.Fatal("it is no AggregatedDiscoveryInterface")
		}
		if list, byVersion, failed, err := aggregated.GroupsAndMaybeResources(); err != nil || len(list.Groups) != len(groups) || len(byVersion) != 1+11*3 || len(failed) != 1 {
			t.Errorf("GroupsAndMaybeResources: %d groups, %d lists, %v, %v; want what the other methods return", len(list.Groups), len(byVersion), failed, err)
		}
		if all, passed := len(server.TakeRequests()), v.passedOn.Load(); all != 1 || passed != 1 {
			t.Errorf("%d requests, and %d of the client, want 1, and that: OpenAPI is not kept, and all else is", all, passed)
		}
	})
}

func answersOf(t *testing.T, d discovery.DiscoveryInterface) map[string]any {
	t.Helper()
	groups, lists, err := d.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.ServerResourcesForGroupVersion("absent.example.com/v1")
	slices.SortFunc(lists, func(a, b *metav1.APIResourceList) int { return strings.Compare(a.GroupVersion, b.GroupVersion) })
	for i := range lists { // a list of the document has no kind
		lists[i] = &metav1.APIResourceList{GroupVersion: lists[i].GroupVersion, APIResources: lists[i].APIResources}
	}
	return map[string]any{
		"groups": must(d.ServerGroups()).Groups, "groups, too": groups, "lists": lists, "one": must(d.ServerResourcesForGroupVersion("g0003.example.com/v2")),
		"preferred": resourcesIn(must(d.ServerPreferredResources())), "namespaced": resourcesIn(must(d.ServerPreferredNamespacedResources())),
		"absent": err == memory.ErrCacheNotFound, //nolint:errorlint // Callers compare it.
	}
}

// Uses, changes and Invalidate may come from any goroutine. All that miss at once are answered from
// the server as it is now.
func TestCachedDiscoveryConcurrently(t *testing.T) {
	eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
		server := newServer(forms)
		v := newView(t, server)
		deferred := restmapper.NewDeferredDiscoveryRESTMapper(v)
		allAtOnce(16, func(i int) {
			for n := range 10 {
				switch i {
				case 0:
					serve(server, schema.GroupVersionKind{Group: "example.com", Version: fmt.Sprint("v", n+2), Kind: "Late"})
				case 1:
					v.Invalidate()
				case 2:
					_ = v.mapper.Refresh(t.Context())
				}
				wantServed(t, deferred, fooKind)
				if names, err := v.served(t); err != nil || !slices.Contains(names, "example.com/v1/foos") {
					t.Errorf("while versions come, and it is invalidated: %q, %v; want foos among them", names, err)
				}
			}
		})
		server.SetLatency(20 * time.Millisecond)
		serve(server, newKind)
		allAtOnce(200, func(int) {
			_ = lookUp(deferred, newKind) // one whose neighbour was faster may be answered from what was
			wantServed(t, deferred, newKind)
		})
	})
}

// A use costs nothing while nothing changes.
func TestCachedDiscoveryUseAllocatesNothing(t *testing.T) {
	server := fakeapi.New(fakeapi.Typical(100, 2, 2)...)
	v := newView(t, server)
	if got := testing.AllocsPerRun(100, func() { // once before it counts
		_, err := v.ServerGroups()
		list, err2 := v.ServerResourcesForGroupVersion("g0050.example.com/v1")
		if err != nil || err2 != nil || list == nil {
			t.Error(err, err2)
		}
	}); got > 0 {
		t.Errorf("%v allocations; want none", got)
	}
}

// The cache reads with the bounds of its mapper, and a document that is the same is not sent again.
func TestCachedDiscoveryReadsAsTheMapper(t *testing.T) {
	server := newServer(fakeapi.Aggregated())
	v := newView(t, server)
	if _, err := v.served(t); err != nil {
		t.Fatal(err)
	}
	server.TakeRequests()
	v.mapper.Reset()
	if names, err := v.served(t); err != nil || len(names) == 0 {
		t.Errorf("after a reset: %q, %v", names, err)
	}
	for _, r := range server.TakeRequests() {
		if r.Code != http.StatusNotModified {
			t.Errorf("GET %s was answered %d; want 304", r.Path, r.Code)
		}
	}
	bounded := viewOf(newMapper(t, server, apiutil.DynamicRESTMapperOptions{MaxResponseBytes: 100}), server)
	if names, err := bounded.served(t); err == nil {
		t.Errorf("with answers of 100 bytes at most: %q, nil; want an error", names)
	}
}
