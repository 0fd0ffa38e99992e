// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/restmapper"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// soon fails the test if do takes longer than what a version that hangs costs nobody.
func soon(t *testing.T, what string, do func()) {
	t.Helper()
	start := time.Now()
	do()
	if took := time.Since(start); took > time.Second {
		t.Errorf("%s took %v", what, took)
	}
}

// A version that hangs delays no lookup of a deferred mapper in another group.
func TestDeferredMapperMissDoesNotWaitForAVersionThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		server.Put(metricsAPI(false))
		v := newView(t, server)
		deferred := restmapper.NewDeferredDiscoveryRESTMapper(v)
		wantServed(t, deferred, metricKind)
		server.Put(metricsAPI(true))
		server.SetFault(fakeapi.Under("/apis/metrics.example.com"), fakeapi.Timeout())
		soon(t, "a reset and a lookup", func() { deferred.Reset(); wantServed(t, deferred, fooKind) })
		soon(t, "a miss", func() { wantAbsent(t, deferred, newKind) })
		serve(server, newKind)
		soon(t, "a late kind", func() { wantServed(t, deferred, newKind) })
	})
}

// Without the aggregated document a version that hangs delays no use of what is known.
func TestCachedDiscoveryHitWaitsForNoVersionThatFails(t *testing.T) {
	quietly(t)
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Legacy())
		server.Put(metricsAPI(true))
		v := newView(t, server)
		v.preferred(t)
		server.SetFault(fakeapi.Under("/apis/metrics.example.com"), fakeapi.Timeout())
		for range 3 {
			soon(t, "another version", func() { v.wantPreferred(t, "a hit", "example.com/v1 foos", true) })
			if _, err := v.ServerResourcesForGroupVersion(metricKind.GroupVersion().String()); err == nil {
				t.Error("no error of the version that fails")
			}
			time.Sleep(11 * time.Second)
		}
	})
}

// A version that fails for an hour costs few requests, and is there after its recovery.
func TestCachedDiscoveryWithAVersionThatFailsForLong(t *testing.T) {
	quietly(t)
	for _, known := range []bool{false, true} {
		eachView(t, func(t *testing.T, server *fakeapi.Server, v *cachedView) {
			server.Put(metricsAPI(!known))
			v.preferred(t)
			server.Put(metricsAPI(true))
			v.Invalidate()
			v.preferred(t)
			v.reads.Store(0)
			for range 3600 {
				v.preferred(t)
				time.Sleep(time.Second)
			}
			if n := v.reads.Load(); n > 100 {
				t.Errorf("known %t: %d requests in an hour", known, n)
			}
			server.Put(metricsAPI(false))
			time.Sleep(defaultMaxAge + time.Second)
			for range 3 {
				v.preferred(t)
				synctest.Wait()
			}
			if names, failed := v.preferred(t); len(failed) > 0 {
				t.Errorf("known %t, after the recovery: %q, %v", known, names, failed)
			}
		})
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

// What is known goes on if the API has changed and what is there now can't be read.
func TestCachedDiscoveryGoesOnIfAChangeCannotBeRead(t *testing.T) {
	quietly(t)
	eachView(t, func(t *testing.T, server *fakeapi.Server, v *cachedView) {
		v.preferred(t)
		serve(server, newKind)
		v.refresh(t)
		v.down.Store(true)
		for range 100 {
			if list, err := v.ServerGroups(); err != nil || len(list.Groups) != 3 {
				t.Fatalf("%v, %v; want what was", list, err)
			}
			if list, err := v.ServerResourcesForGroupVersion("example.com/v1"); err != nil || list == nil {
				t.Fatalf("%v, %v; want what was", list, err)
			}
		}
		if n := v.reads.Load(); n > 20 {
			t.Errorf("%d requests", n)
		}
		v.down.Store(false)
		time.Sleep(11 * time.Second)
		v.preferred(t)
		synctest.Wait()
		v.wantPreferred(t, "after that", newResource, true)
	})
}

// Kinds that come quickly, one after the other, are each found by the first lookup.
func TestDeferredMapperFindsManyLateKindsInARow(t *testing.T) {
	eachView(t, func(t *testing.T, server *fakeapi.Server, v *cachedView) {
		deferred := restmapper.NewDeferredDiscoveryRESTMapper(v)
		wantServed(t, deferred, fooKind)
		for n := range 12 {
			late := schema.GroupVersionKind{Group: "late.example.com", Version: fmt.Sprint("v", n+1), Kind: "Late"}
			serve(server, late)
			time.Sleep(200 * time.Millisecond)
			wantServed(t, deferred, late)
		}
	})
}

// A reading that hangs, begun because something is missing, delays no use.
func TestCachedDiscoveryHitWaitsForNoReading(t *testing.T) {
	quietly(t)
	inBubble(t, func(t *testing.T) {
		ahead, behind := twoReplicas(fakeapi.Aggregated())
		v := newViewThrough(t, ahead, ahead.Client().Transport, behind.Client().Transport)
		v.preferred(t)
		behind.SetFault(fakeapi.All(), fakeapi.Timeout())
		v.reads.Store(0)
		for range 60 {
			time.Sleep(time.Second)
			soon(t, "a hit", func() { v.preferred(t) })
		}
		if n := v.reads.Load(); n == 0 || n > 6 {
			t.Errorf("%d requests in a minute", n)
		}
	})
}

// A replica that is behind fills the cache with what was. The next use after ten seconds
// starts another reading. A replica that never hears of a kind costs less and less.
func TestCachedDiscoveryOfAReplicaThatIsBehind(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, behindFor := range []time.Duration{10 * time.Second, time.Hour} {
			ahead, behind := twoReplicas(fakeapi.Aggregated())
			v := newViewThrough(t, ahead, ahead.Client().Transport, behind.Client().Transport)
			for range behindFor / time.Second {
				v.wantPreferred(t, "behind", newResource, false)
				time.Sleep(time.Second)
			}
			if n := v.reads.Swap(0); n > 150 || n > 2 && behindFor < time.Minute {
				t.Errorf("%d requests in %v", n, behindFor)
			}
			serve(behind, lateKind)
			serve(behind, newKind)
			time.Sleep(min(behindFor/10, time.Minute) + time.Second)
			v.preferred(t) // starts the reading
			synctest.Wait()
			v.wantPreferred(t, "later", newResource, true)
			v.wantReads(t, "later", 2)
			time.Sleep(time.Minute)
			v.preferred(t)
			v.wantReads(t, "all is there", 0)
		}
	})
}

// A version fails, and a kind is there, only while the cache is read: the mapper never hears of it.
func TestCachedDiscoveryForgetsWhatWasThereForAMoment(t *testing.T) {
	quietly(t)
	eachView(t, func(t *testing.T, server *fakeapi.Server, v *cachedView) {
		server.Put(metricsAPI(false))
		v.preferred(t)
		serve(server, lateKind)
		v.refresh(t)
		server.Put(metricsAPI(true))
		serve(server, newKind)
		v.preferred(t)
		server.Put(metricsAPI(false))
		server.Remove(newKind.Group)
		for range 20 {
			time.Sleep(defaultMaxAge + time.Second)
			v.preferred(t)
			synctest.Wait()
		}
		if after, failed := v.preferred(t); slices.Contains(after, newResource) || len(failed) > 0 {
			t.Errorf("%q, %v", after, failed)
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
				v.wantPreferred(t, "after it", "example.com/v1 foos", true)
				broken.Store(true)
				serve(server, newKind)
				v.refresh(t)
				v.wantPreferred(t, "broken again", "example.com/v1 foos", true)
				if reported := panics.Load(); (reported > 0) != (name == "panic") {
					t.Errorf("%d panics were reported", reported)
				}
			})
		})
	}
}
