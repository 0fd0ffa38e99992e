// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// cachedView is a cached discovery, its mapper, and the discovery client that it reads through.
type cachedView struct {
	discovery.CachedDiscoveryInterface
	mapper *apiutil.DynamicRESTMapper
	client discovery.DiscoveryInterface
	reads  atomic.Int64 // requests of the client
	down   atomic.Bool  // they fail
}

func newView(t testing.TB, server *fakeapi.Server) *cachedView {
	t.Helper()
	return newViewThrough(t, server, server.Client().Transport, server.Client().Transport)
}

// newViewThrough is newView with other transports.
func newViewThrough(t testing.TB, server *fakeapi.Server, ofMapper, ofClient http.RoundTripper) *cachedView {
	t.Helper()
	v := &cachedView{}
	var err error
	v.mapper, err = apiutil.NewDynamicRESTMapperWithOptions(server.Config(), &http.Client{Transport: ofMapper}, apiutil.DynamicRESTMapperOptions{})
	if err != nil {
		t.Fatal(err)
	}
	counting := through(func(req *http.Request) (*http.Response, error) {
		v.reads.Add(1)
		if v.down.Load() {
			return nil, http.ErrHandlerTimeout
		}
		return ofClient.RoundTrip(req)
	})
	v.client, err = discovery.NewDiscoveryClientForConfigAndClient(server.Config(), &http.Client{Transport: counting, Timeout: 32 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	v.CachedDiscoveryInterface = apiutil.NewCachedDiscovery(v.mapper, v.client)
	return v
}

// eachView runs test in a bubble with a server of each mode.
func eachView(t *testing.T, test func(t *testing.T, server *fakeapi.Server, v *cachedView)) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) { test(t, server, newView(t, server)) })
}

// quietly keeps client-go from handling errors: it pauses while it holds a mutex, which hangs a
// bubble.
func quietly(t *testing.T) {
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
}

func (v *cachedView) refresh(t *testing.T) {
	t.Helper()
	if err := v.mapper.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// preferred lists the preferred resources, as "group/version name", and what failed.
func (v *cachedView) preferred(t testing.TB) (names []string, failed map[schema.GroupVersion]error) {
	t.Helper()
	lists, err := v.ServerPreferredResources()
	failed, _ = discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && failed == nil {
		t.Fatal(err)
	}
	return resourcesIn(lists), failed
}

func (v *cachedView) wantPreferred(t testing.TB, when string, name string, want bool) {
	t.Helper()
	if names, _ := v.preferred(t); slices.Contains(names, name) != want {
		t.Errorf("%s: %q has %q: %t; want %t", when, names, name, !want, want)
	}
}

func resourcesIn(lists []*metav1.APIResourceList) (names []string) {
	for _, list := range lists {
		for _, r := range list.APIResources {
			names = append(names, list.GroupVersion+" "+r.Name)
		}
	}
	slices.Sort(names)
	return names
}

// wantReads compares how many requests the discovery client has sent since the last call.
func (v *cachedView) wantReads(t testing.TB, what string, want int64) {
	t.Helper()
	if got := v.reads.Swap(0); got != want {
		t.Errorf("%s: the discovery client sent %d requests; want %d", what, got, want)
	}
}

const newResource = "new.example.com/v1 news"

// However many uses there are, each change costs one reading, and nothing else costs a request.
func TestCachedDiscoveryReadsTheDocumentOncePerChange(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		v := newView(t, server)
		wantRequests(t, server, "constructor")
		for n := range 60 {
			v.preferred(t)
			v.wantReads(t, "a first use", 2)
			server.TakeRequests()
			for range 10 {
				v.preferred(t)
			}
			wantRequests(t, server, "more uses")
			group := fmt.Sprintf("g%d.example.com", n)
			serve(server, schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Late"})
			v.refresh(t)
			v.wantPreferred(t, "after a change", group+"/v1 lates", true)
			time.Sleep(time.Second)
		}
	})
}

// A short name is no news for a mapper. It is for the cache.
func TestCachedDiscoveryNoticesWhatAMapperDoesNotKnow(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		v := newView(t, server)
		v.preferred(t)
		foo := fakeVersion("v1", "Foo", "Bar")
		foo.Resources[0].ShortNames = []string{"f"}
		server.PutVersion("example.com", foo)
		v.refresh(t)
		list, err := v.ServerResourcesForGroupVersion("example.com/v1")
		if err != nil || !slices.Equal(list.APIResources[0].ShortNames, []string{"f"}) {
			t.Errorf("%v, %v; want the short name", list, err)
		}
	})
}

// By use alone, without Start, a change is noticed after MaxAge.
func TestCachedDiscoveryIsConfirmedByUse(t *testing.T) {
	eachView(t, func(t *testing.T, server *fakeapi.Server, v *cachedView) {
		v.preferred(t)
		serve(server, newKind)
		server.RemoveVersion("other.example.com", "v1")
		time.Sleep(defaultMaxAge + time.Second)
		v.preferred(t) // starts the refresh
		synctest.Wait()
		v.wantPreferred(t, "after MaxAge", newResource, true)
		v.wantPreferred(t, "after MaxAge", "other.example.com/v1 others", false)
		v.reads.Store(0)
		for range 10 {
			time.Sleep(defaultMaxAge + time.Second)
			v.preferred(t)
		}
		v.wantReads(t, "while nothing changes", 0)
	})
}

// The answers are those of client-go's cache, the lists in the order of the groups.
func TestCachedDiscoveryAnswersAsClientGo(t *testing.T) {
	eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
		server := fakeapi.New(fakeapi.Typical(12, 3, 2)...)
		server.SetForms(forms)
		v := newView(t, server)
		theirs := memory.NewMemCacheClient(v.client)
		if diff := cmp.Diff(answersOf(t, theirs), answersOf(t, v)); diff != "" {
			t.Errorf("client-go's answers and ours (-theirs +ours):\n%s", diff)
		}
	})
}

func answersOf(t *testing.T, d discovery.DiscoveryInterface) map[string]any {
	t.Helper()
	list, err := d.ServerGroups()
	groups, lists, err2 := d.ServerGroupsAndResources()
	preferred, err3 := d.ServerPreferredResources()
	namespaced, err4 := d.ServerPreferredNamespacedResources()
	one, err5 := d.ServerResourcesForGroupVersion("g0003.example.com/v2")
	_, err6 := d.ServerResourcesForGroupVersion("absent.example.com/v1")
	if err := errors.Join(err, err2, err3, err4, err5); err != nil {
		t.Fatal(err)
	}
	var order, inOrder []string
	for _, list := range lists {
		order = append(order, list.GroupVersion)
	}
	for _, group := range groups {
		for _, version := range group.Versions {
			inOrder = append(inOrder, version.GroupVersion)
		}
	}
	if _, ours := d.(*cachedView); ours && !slices.Equal(order, inOrder) { // client-go's order is a map's
		t.Errorf("lists of %q; want %q", order, inOrder)
	}
	slices.SortFunc(lists, func(a, b *metav1.APIResourceList) int { return strings.Compare(a.GroupVersion, b.GroupVersion) })
	return map[string]any{
		"groups": list.Groups, "groups, too": groups, "lists": lists, "one": one, "absent": err6 == memory.ErrCacheNotFound, //nolint:errorlint // Callers compare it.
		"preferred": resourcesIn(preferred), "namespaced": resourcesIn(namespaced),
	}
}

// A group-version that comes is found by the next call that asks for it.
func TestCachedDiscoveryFindsALateGroupVersion(t *testing.T) {
	eachView(t, func(t *testing.T, server *fakeapi.Server, v *cachedView) {
		if _, err := v.ServerResourcesForGroupVersion("new.example.com/v1"); !errors.Is(err, memory.ErrCacheNotFound) {
			t.Errorf("before: %v", err)
		}
		serve(server, newKind)
		if list, err := v.ServerResourcesForGroupVersion("new.example.com/v1"); err != nil || list.APIResources[0].Kind != "New" {
			t.Errorf("%v, %v; want New", list, err)
		}
	})
}

// metricsAPI is a group of an APIService.
func metricsAPI(dead bool) fakeapi.Group {
	g := fakeGroup("metrics.example.com", fakeVersion("v1beta1", "Metric"))
	g.Versions[0].Stale = dead
	return g
}

var metricKind = schema.GroupVersionKind{Group: "metrics.example.com", Version: "v1beta1", Kind: "Metric"}

// An APIService that dies costs nobody else's kinds, and not its own.
func TestCachedDiscoveryKeepsTheListOfADeadAPIService(t *testing.T) {
	quietly(t)
	eachView(t, func(t *testing.T, server *fakeapi.Server, v *cachedView) {
		server.Put(metricsAPI(false))
		before, _ := v.preferred(t)
		server.Put(metricsAPI(true))
		v.Invalidate()
		for range 2 {
			after, failed := v.preferred(t)
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("with a dead APIService (-before +after):\n%s", diff)
			}
			if len(failed) != 1 || failed[metricKind.GroupVersion()] == nil {
				t.Errorf("failed: %v; want %s", failed, metricKind.GroupVersion())
			}
			list, err := v.ServerResourcesForGroupVersion(metricKind.GroupVersion().String())
			if err == nil || list == nil || list.APIResources[0].Kind != "Metric" {
				t.Errorf("%v, %v; want the last list and an error", list, err)
			}
			wantServed(t, restmapper.NewDeferredDiscoveryRESTMapper(v), metricKind, fooKind, otherKind)
			serve(server, newKind) // and the list is kept when others change
			v.refresh(t)
			v.wantPreferred(t, "beside a dead APIService", newResource, true)
			before, _ = v.preferred(t)
		}
		server.Put(metricsAPI(false))
		v.refresh(t)
		time.Sleep(time.Minute)
		v.preferred(t) // starts a reading
		synctest.Wait()
		if after, failed := v.preferred(t); len(failed) > 0 || !slices.Equal(before, after) {
			t.Errorf("after its recovery: %q, %v; want %q", after, failed, before)
		}
	})
}

// An APIService that is dead from the start is an error beside everything else, and is
// there once it works.
func TestCachedDiscoveryFindsALateAPIService(t *testing.T) {
	quietly(t)
	eachView(t, func(t *testing.T, server *fakeapi.Server, v *cachedView) {
		server.Put(metricsAPI(true))
		names, failed := v.preferred(t)
		if len(failed) != 1 || failed[metricKind.GroupVersion()] == nil || !slices.Contains(names, "example.com/v1 foos") {
			t.Errorf("%q, %v; want all but %s", names, failed, metricKind.GroupVersion())
		}
		deferred := restmapper.NewDeferredDiscoveryRESTMapper(v)
		wantServed(t, deferred, fooKind, otherKind)
		wantAbsent(t, deferred, metricKind)
		server.Put(metricsAPI(false))
		time.Sleep(11 * time.Second)
		wantServed(t, deferred, metricKind)
	})
}

// While nothing can be read, known kinds of a deferred mapper are served, nothing loops, and
// what needs a read gets the error. The API may have changed before that.
func TestCachedDiscoveryInAnOutage(t *testing.T) {
	quietly(t)
	for _, fault := range []fakeapi.Fault{fakeapi.Status(http.StatusServiceUnavailable, 0), fakeapi.Refused(), fakeapi.EmptyGroupList(), fakeapi.LoginPage()} {
		for _, changed := range []bool{false, true} {
			eachView(t, func(t *testing.T, server *fakeapi.Server, v *cachedView) {
				deferred := restmapper.NewDeferredDiscoveryRESTMapper(v)
				wantServed(t, deferred, fooKind)
				if changed {
					serve(server, lateKind)
					v.refresh(t)
				}
				end := server.SetFault(fakeapi.All(), fault)
				wantServed(t, deferred, fooKind)
				_ = lookUp(deferred, newKind)
				if !v.Fresh() {
					t.Error("not fresh, although nothing newer can be read")
				}
				v.preferred(t)
				deferred.Reset()
				if _, err := v.ServerPreferredResources(); err == nil {
					t.Error("no error after a reset")
				}
				if _, err := v.ServerGroups(); err == nil {
					t.Error("no error after a reset")
				}
				end()
				serve(server, newKind)
				v.wantPreferred(t, "after the outage", newResource, true)
				wantServed(t, deferred, fooKind, newKind)
			})
		}
	}
}

// Uses, changes and Invalidate may come from any goroutine.
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
				v.wantPreferred(t, "always", "example.com/v1 foos", true)
			}
		})
		v.refresh(t)
		if _, err := v.ServerResourcesForGroupVersion("example.com/v11"); err != nil {
			t.Error(err)
		}
	})
}

// A use costs nothing while nothing changes.
func TestCachedDiscoveryUseAllocatesNothing(t *testing.T) {
	v := newView(t, fakeapi.New(fakeapi.Typical(100, 2, 2)...))
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
