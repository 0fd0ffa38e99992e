// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	reads  atomic.Int64                   // requests of the client
	down   atomic.Bool                    // they fail
	behind atomic.Pointer[fakeapi.Server] // which answers them, unless it is nil
}

func newView(t *testing.T, server *fakeapi.Server) *cachedView {
	t.Helper()
	return newViewThrough(t, server, server.Client().Transport, server.Client().Transport)
}

// newViewThrough is newView with other transports.
func newViewThrough(t *testing.T, server *fakeapi.Server, ofMapper, ofClient http.RoundTripper) *cachedView {
	t.Helper()
	return viewOf(t, newMapperThrough(t, server, ofMapper, apiutil.DynamicRESTMapperOptions{}), server, ofClient)
}

func viewOf(t testing.TB, m *apiutil.DynamicRESTMapper, server *fakeapi.Server, ofClient http.RoundTripper) *cachedView {
	t.Helper()
	v := &cachedView{mapper: m}
	counting := through(func(req *http.Request) (*http.Response, error) {
		v.reads.Add(1)
		if v.down.Load() {
			return nil, http.ErrHandlerTimeout
		}
		if behind := v.behind.Load(); behind != nil {
			return behind.Client().Transport.RoundTrip(req)
		}
		return ofClient.RoundTrip(req)
	})
	var err error
	v.client, err = discovery.NewDiscoveryClientForConfigAndClient(server.Config(), &http.Client{Transport: counting, Timeout: 32 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	v.CachedDiscoveryInterface = apiutil.NewCachedDiscovery(v.mapper, v.client)
	return v
}

// discover does the commands about a cached discovery, and a deferred mapper over it.
func (s *storyStage) discover(command string, args []string) (string, error) {
	switch command {
	case "cache":
		s.changeCache(strings.Join(args, " "))
	case "has":
		lists, err := s.cache.ServerPreferredResources()
		failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
		if err != nil && !partial {
			return "failed", nil
		}
		told := map[bool]string{true: "yes", false: "no"}[slices.Contains(resourcesIn(lists), args[0])]
		for gv := range failed {
			told += ", failed " + gv.String()
		}
		return told, nil
	case "list":
		list, err := s.cache.ServerResourcesForGroupVersion(args[0])
		var kinds []string
		if list != nil {
			kinds = resourcesIn([]*metav1.APIResourceList{list})
		}
		if errors.Is(err, memory.ErrCacheNotFound) {
			kinds = []string{"not found"}
		} else if err != nil {
			kinds = append(kinds, "failed")
		}
		return strings.Join(kinds, ", "), nil
	case "deferred":
		mapping, err := s.deferred.RESTMapping(schema.GroupKind{Group: groupOf(args[0]), Kind: args[1]}, args[2:]...)
		return answerWord(mappingText(mapping), err), nil
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
	case "reads":
		synctest.Wait()
		n := s.cache.reads.Swap(0)
		if len(args) == 0 {
			return fmt.Sprint(n), nil
		}
		if most, err := strconv.ParseInt(args[0], 10, 64); n > most || err != nil {
			return fmt.Sprintf("%d reads, %v", n, err), nil
		}
		return "yes", nil
	}
	return "", nil
}

func (s *storyStage) changeCache(how string) {
	switch how {
	case "":
		s.cache = viewOf(s.t, s.mapper, s.server, s.server.Client().Transport)
		s.deferred = restmapper.NewDeferredDiscoveryRESTMapper(s.cache)
	case "down", "up":
		s.cache.down.Store(how == "down")
	case "behind":
		behind := fakeapi.New(s.server.Groups()...)
		behind.SetForms(s.forms)
		s.cache.behind.Store(behind)
	case "ahead":
		s.cache.behind.Store(nil)
	case "hangs":
		s.cache.behind.Load().SetFault(fakeapi.All(), fakeapi.Timeout())
	}
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
			names = append(names, list.GroupVersion+"/"+r.Name)
		}
	}
	slices.Sort(names)
	return names
}

const newResource = "new.example.com/v1/news"

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

// The answers are those of client-go's cache.
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
	// Their order is a map's.
	slices.SortFunc(lists, func(a, b *metav1.APIResourceList) int { return strings.Compare(a.GroupVersion, b.GroupVersion) })
	return map[string]any{
		"groups": list.Groups, "groups, too": groups, "lists": lists, "one": one, "absent": err6 == memory.ErrCacheNotFound, //nolint:errorlint // Callers compare it.
		"preferred": resourcesIn(preferred), "namespaced": resourcesIn(namespaced),
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
				v.wantPreferred(t, "always", "example.com/v1/foos", true)
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

// Many uses at once after a change make one reading, also if that fails.
func TestCachedDiscoveryReadsOnceForAll(t *testing.T) {
	quietly(t)
	for _, down := range []bool{false, true} {
		eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) { // goroutines wait for a mutex, which hangs a bubble
			server := newServer(forms)
			v := newView(t, server)
			v.preferred(t)
			server.SetLatency(20 * time.Millisecond)
			v.Invalidate()
			v.reads.Store(0)
			v.down.Store(down)
			allAtOnce(50, func(int) { _, _ = v.ServerGroups() })
			if n := v.reads.Load(); n > 12 {
				t.Errorf("down %t: %d requests", down, n)
			}
		})
	}
}

// A use that begins during a reading is not answered from before a change that was known then.
func TestCachedDiscoveryUseDuringAReading(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		slow := through(func(req *http.Request) (*http.Response, error) {
			resp, err := server.Client().Transport.RoundTrip(req)
			time.Sleep(time.Second) // the answer is under way
			return resp, err
		})
		v := newViewThrough(t, server, server.Client().Transport, slow)
		go func() { _, _ = v.ServerGroups() }()
		time.Sleep(1500 * time.Millisecond)
		serve(server, newKind)
		v.refresh(t)
		v.wantPreferred(t, "at once", newResource, true)
	})
}

// Many lookups that miss at once are all answered from the server as it is now.
func TestDeferredMapperHealsAll(t *testing.T) {
	eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
		server := newServer(forms)
		v := newView(t, server)
		deferred := restmapper.NewDeferredDiscoveryRESTMapper(v)
		if err := lookUp(deferred, fooKind); err != nil {
			t.Fatal(err)
		}
		serve(server, newKind)
		allAtOnce(200, func(int) {
			_ = lookUp(deferred, newKind) // one whose neighbour was faster may be answered from what was
			if err := lookUp(deferred, newKind); err != nil {
				t.Error(err)
			}
		})
		if n := v.reads.Load(); n > 200 {
			t.Errorf("the discovery client sent %d requests", n)
		}
	})
}

// While each document comes from another replica, a lookup that misses ends, also if they are
// slow.
func TestDeferredMapperEndsWhileReplicasDisagree(t *testing.T) {
	for _, latency := range []time.Duration{0, time.Second} {
		inBubble(t, func(t *testing.T) {
			ahead, behind := twoReplicas(fakeapi.Aggregated())
			v := newViewThrough(t, ahead, documentsInTurn(ahead, behind), ahead.Client().Transport)
			deferred := restmapper.NewDeferredDiscoveryRESTMapper(v)
			wantServed(t, deferred, fooKind)
			ahead.SetLatency(latency)
			behind.SetLatency(latency)
			for range 3 {
				start, done := time.Now(), make(chan struct{})
				go func() {
					defer close(done)
					wantAbsent(t, deferred, schema.GroupVersionKind{Group: "example.com", Version: "v9", Kind: "Absent"})
				}()
				select {
				case <-done:
				case <-time.After(5 * time.Minute):
					t.Errorf("a lookup goes on for %v", time.Since(start))
					ahead.SetLatency(0)
					behind.SetLatency(0)
					<-done
				}
				if n := len(ahead.TakeRequests()) + len(behind.TakeRequests()); n > 60 {
					t.Errorf("latency %v: %d requests for one lookup", latency, n)
				}
				time.Sleep(10 * time.Second)
			}
		})
	}
}

// So it does while the API changes all the time, and others use the mapper.
func TestDeferredMapperEndsWhileTheAPIChanges(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		var changes atomic.Int64
		changing := through(func(req *http.Request) (*http.Response, error) {
			serve(server, schema.GroupVersionKind{Group: "busy.example.com", Version: "v1", Kind: fmt.Sprintf("Busy%d", changes.Add(1))})
			return server.Client().Transport.RoundTrip(req)
		})
		v := newViewThrough(t, server, changing, server.Client().Transport)
		deferred := restmapper.NewDeferredDiscoveryRESTMapper(v)
		wantServed(t, deferred, fooKind)
		server.SetLatency(time.Millisecond)
		ctx, cancel := context.WithCancel(context.Background())
		var others sync.WaitGroup
		for range 3 {
			others.Go(func() {
				for ctx.Err() == nil {
					_ = v.mapper.Refresh(ctx)
				}
			})
		}
		v.reads.Store(0)
		for range 20 {
			wantAbsent(t, deferred, schema.GroupVersionKind{Group: "example.com", Version: "v9", Kind: "Absent"})
			time.Sleep(time.Second)
		}
		cancel()
		others.Wait()
		if n := v.reads.Load(); n > 20*20 {
			t.Errorf("%d requests for 20 lookups", n)
		}
	})
}

// A transport of the client's that panics, or ends its goroutine as t.FailNow does, is an
// outage, and no more: what was read stays, and the next reading is as always. (Without the
// aggregated document client-go reads the versions in goroutines of its own.)
func TestCachedDiscoveryThroughATransportThatPanics(t *testing.T) {
	for name, fail := range map[string]func(){"panic": func() { panic("broken") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			panics := countPanics(t)
			inBubble(t, func(t *testing.T) {
				server := newServer(fakeapi.Aggregated())
				var broken atomic.Bool
				next := server.Client().Transport
				v := newViewThrough(t, server, next, through(func(req *http.Request) (*http.Response, error) {
					if broken.Load() {
						fail()
					}
					return next.RoundTrip(req)
				}))
				broken.Store(true)
				if _, err := v.ServerGroups(); err == nil {
					t.Error("no error, although nothing was read")
				}
				broken.Store(false)
				v.wantPreferred(t, "after it", "example.com/v1/foos", true)
				broken.Store(true)
				serve(server, newKind)
				v.refresh(t)
				v.wantPreferred(t, "broken again", "example.com/v1/foos", true)
				if reported := panics.Load(); (reported > 0) != (name == "panic") {
					t.Errorf("%d panics were reported", reported)
				}
			})
		})
	}
}
