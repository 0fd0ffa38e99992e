// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/restmapper"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// healings are R1 to R5 of hack/e2e.
var healings = map[string]struct {
	change func(*fakeapi.Server)
	before func(*cachedView, *restmapper.DeferredDiscoveryRESTMapper) // the lookup
	kind   schema.GroupKind
	want   string
}{
	"R1, R2 a version comes": {
		change: func(s *fakeapi.Server) { s.PutVersion("example.com", fakeVersion("v2", "Late")) },
		kind:   lateKind.GroupKind(), want: "example.com/v2 lates namespace",
	},
	"R2 a group comes": {
		change: func(s *fakeapi.Server) { serve(s, newKind) },
		kind:   newKind.GroupKind(), want: "new.example.com/v1 news namespace",
	},
	"R2 a group comes, and another user of the cache reads it first": {
		change: func(s *fakeapi.Server) { serve(s, newKind) },
		before: func(v *cachedView, _ *restmapper.DeferredDiscoveryRESTMapper) {
			_ = v.mapper.Refresh(context.Background())
			_, _, _ = v.ServerGroupsAndResources()
		},
		kind: newKind.GroupKind(), want: "new.example.com/v1 news namespace",
	},
	"a kind comes in a known version": {
		change: func(s *fakeapi.Server) { s.PutVersion("example.com", fakeVersion("v1", "Foo", "Bar", "Late")) },
		kind:   lateKind.GroupKind(), want: "example.com/v1 lates namespace",
	},
	"R3 a kind goes, reset": {
		change: func(s *fakeapi.Server) { s.PutVersion("example.com", fakeVersion("v1", "Bar")) },
		before: reset,
		kind:   fooKind.GroupKind(), want: "no match",
	},
	"R4 another scope, reset": {
		change: func(s *fakeapi.Server) { s.PutVersion("example.com", fakeVersion("v1", "Foo:cluster", "Bar")) },
		before: reset,
		kind:   fooKind.GroupKind(), want: "example.com/v1 foos root",
	},
	"R5 another preferred version, reset": {
		change: preferV2, before: reset,
		kind: fooKind.GroupKind(), want: "example.com/v2 foos namespace",
	},
	"R5 another preferred version, a miss": {
		change: preferV2,
		before: func(_ *cachedView, m *restmapper.DeferredDiscoveryRESTMapper) {
			_, _ = m.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Absent"})
		},
		kind: fooKind.GroupKind(), want: "example.com/v2 foos namespace",
	},
}

func reset(_ *cachedView, m *restmapper.DeferredDiscoveryRESTMapper) { m.Reset() }

func preferV2(s *fakeapi.Server) {
	s.Put(fakeGroup("example.com", fakeVersion("v2", "Foo"), fakeVersion("v1", "Foo", "Bar")))
}

func describeMapping(mapping *meta.RESTMapping, err error) string {
	switch {
	case meta.IsNoMatchError(err):
		return "no match"
	case err != nil:
		return err.Error()
	}
	return fmt.Sprintf("%s %s %s", mapping.GroupVersionKind.GroupVersion(), mapping.Resource.Resource, mapping.Scope.Name())
}

// A deferred mapper over the cache heals at the first lookup, as the mapper itself does.
func TestDeferredMapperHeals(t *testing.T) {
	for name, test := range healings {
		t.Run(name, func(t *testing.T) {
			eachView(t, func(t *testing.T, server *fakeapi.Server, v *cachedView) {
				deferred := restmapper.NewDeferredDiscoveryRESTMapper(v)
				if got := describeMapping(deferred.RESTMapping(fooKind.GroupKind())); got != "example.com/v1 foos namespace" {
					t.Fatal("before: ", got)
				}
				if got := describeMapping(deferred.RESTMapping(lateKind.GroupKind())); got != "no match" {
					t.Fatal("before: ", got)
				}
				test.change(server)
				if test.before != nil {
					test.before(v, deferred)
				}
				if got := describeMapping(deferred.RESTMapping(test.kind)); got != test.want {
					t.Errorf("the deferred mapper: %s; want %s", got, test.want)
				}
				if got := describeMapping(v.mapper.RESTMapping(test.kind)); got != test.want {
					t.Errorf("the mapper itself: %s; want %s", got, test.want)
				}
			})
		})
	}
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

// The mapper has found a kind live, which the document does not have yet. Lookups of the
// kind end, and one finds it as soon as the document has it.
func TestDeferredMapperWaitsForTheDocument(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		v := newView(t, server)
		deferred := restmapper.NewDeferredDiscoveryRESTMapper(v)
		wantAbsent(t, deferred, lateKind)
		const lag = 5 * time.Second
		server.SetLag(fakeapi.PartDocument, lag)
		serve(server, lateKind)
		wantServed(t, v.mapper, lateKind)
		v.reads.Store(0)
		wantAbsent(t, deferred, lateKind)
		v.wantReads(t, "the generation has moved", 2)
		wantAbsent(t, deferred, lateKind)
		v.wantReads(t, "and again", 0)
		time.Sleep(lag + time.Second)
		wantServed(t, deferred, lateKind)
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
