// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A callback is metrics that call a function each time.
type callback func()

func (c callback) Request(string, int) { c() }

func (c callback) Reload(string, time.Duration, error) { c() }

func (c callback) Miss(string) { c() }

func (c callback) Served(uint64, int, int, time.Time) { c() }

// A callback may ask the mapper anything. It may even make a lookup that misses, which
// has to read the server.
func TestCallbacksMayMiss(t *testing.T) {
	for name, lookup := range map[string]func(ctx context.Context, m *apiutil.DynamicRESTMapper) error{
		"a version": func(ctx context.Context, m *apiutil.DynamicRESTMapper) error {
			_, err := m.RESTMappingWithContext(ctx, lateKind.GroupKind(), "v1")
			return err
		},
		"any group": func(ctx context.Context, m *apiutil.DynamicRESTMapper) error {
			_, err := m.KindForWithContext(ctx, schema.GroupVersionResource{Resource: "absents"})
			return err
		},
		"after a Reset": func(ctx context.Context, m *apiutil.DynamicRESTMapper) error {
			m.Reset()
			_, err := m.RESTMappingWithContext(ctx, newKind.GroupKind())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // ends a deadlock
				defer cancel()
				var m *apiutil.DynamicRESTMapper
				var asked atomic.Int32
				var busy atomic.Bool
				ask := func() { // each lookup makes the next callback, until ctx ends
					if busy.Swap(true) {
						return // its own lookups cause callbacks, too
					}
					defer busy.Store(false)
					asked.Add(1)
					if err := lookup(ctx, m); !meta.IsNoMatchError(err) && ctx.Err() == nil {
						t.Errorf("a lookup in a callback: %v; want NoMatch", err)
					}
				}
				m = newMapper(t, server, apiutil.DynamicRESTMapperOptions{
					Metrics: callback(ask), RefreshInterval: 2 * time.Second,
					Logger: funcr.New(func(string, string) { ask() }, funcr.Options{Verbosity: 10}),
				})
				server.SetLatency(latency)
				start := time.Now()
				for range 5 {
					if err := lookup(ctx, m); !meta.IsNoMatchError(err) {
						t.Errorf("a lookup: %v; want NoMatch", err)
					}
				}
				if took := time.Since(start); took > 10*time.Second {
					t.Errorf("5 lookups took %v; want a few requests of %v", took, latency)
				}
				stop := startMapper(t, m)
				time.Sleep(10 * time.Second)
				stop()
				if asked.Load() == 0 {
					t.Error("no callback")
				}
				cancel()
				time.Sleep(time.Minute) // for the lookup of the last callback to end
			})
		})
	}
}

// noMiss are metrics whose Miss, which the lookup itself calls, does nothing.
type noMiss struct{ callback }

func (noMiss) Miss(string) {}

// Nobody waits for a report that hangs: no lookup, and not the end of Start. Those that wait behind it
// do not pile up, and do not hold what was known at each of them.
func TestReportThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const reads, kinds, most = 64, 4000, 1024 // most is how many calls wait
		calls := 0
		server := newServer(fakeapi.Aggregated())
		hang := make(chan struct{})
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{Metrics: noMiss{func() { calls++; <-hang }}, RefreshInterval: time.Hour})
		stop := startMapper(t, m)
		start := time.Now()
		heap := func(first, n int) (bytes uint64) {
			for i := range n {
				names := make([]string, kinds)
				for k := range names {
					names[k] = fmt.Sprintf("Kind%dOf%d", k, first+i)
				}
				server.PutVersion(newKind.Group, fakeVersion("v1", names...))
				if err := m.Refresh(context.Background()); err != nil {
					t.Error(err)
				}
				wantAbsent(t, m, lateKind) // a miss
			}
			server.TakeRequests()
			for range 3 { // what is shared goes with the second
				runtime.GC()
			}
			var stats runtime.MemStats
			runtime.ReadMemStats(&stats)
			return stats.HeapAlloc
		}
		few, before := heap(0, reads/4), goroutines()
		if many := heap(reads/4, reads); many > few+few/2 {
			t.Errorf("%d bytes after %d reads, %d after %d; want half as many more at most", few, reads/4, many, reads/4+reads)
		}
		if now := goroutines(); now > before {
			t.Errorf("%d goroutines after %d reads, %d after %d more", before, reads/4, now, reads)
		}
		for range most {
			wantAbsent(t, m, lateKind)
		}
		stop()
		if took := time.Since(start); took > 0 {
			t.Errorf("the reads, lookups and the end of Start took %v; want none to wait for the report", took)
		}
		close(hang)
		synctest.Wait()
		if calls > 3*most || calls < most {
			t.Errorf("%d calls were made; want the latest %d reports, of one or two calls each, and the one that hung", calls, most)
		}
	})
}

// A callback that panics, or ends its goroutine as t.FailNow does, ends none of those behind it. A panic is
// reported.
func TestCallbackThatPanics(t *testing.T) {
	for name, fail := range map[string]func(){"panic": func() { panic("broken") }, "Goexit": runtime.Goexit} {
		panics := countPanics(t)
		inBubble(t, func(t *testing.T) {
			calls := 0
			m := newMapper(t, newServer(fakeapi.Aggregated()), apiutil.DynamicRESTMapperOptions{Metrics: noMiss{func() { calls++; fail() }}})
			for i := range 3 {
				readAll(t, m)
				synctest.Wait()
				if want := 3 * (i + 1); calls != want {
					t.Errorf("%s: %d calls after %d reads of the document; want %d: each time two requests, and a report that ends in its first call", name, calls, i+1, want)
				}
			}
		})
		if reported, want := panics.Load(), map[string]int32{"panic": 9}[name]; reported != want {
			t.Errorf("%s: %d panics were reported; want %d", name, reported, want)
		}
	}
}

// brokenBody panics when it is read.
type brokenBody struct{ io.ReadCloser }

func (brokenBody) Read([]byte) (int, error) { panic("broken") }

// countPanics counts the panics that are reported until the test ends.
func countPanics(t *testing.T) *atomic.Int32 {
	var reported atomic.Int32
	before := utilruntime.PanicHandlers
	utilruntime.PanicHandlers = []func(context.Context, any){func(context.Context, any) { reported.Add(1) }}
	t.Cleanup(func() { utilruntime.PanicHandlers = before })
	return &reported
}

// A transport that panics, or that ends its goroutine as t.FailNow does, is an outage: it
// ends neither the program nor the mapper.
func TestTransportThatPanicsIsAnOutage(t *testing.T) {
	for name, fail := range map[string]func(*http.Response){
		"panic":         func(*http.Response) { panic("broken") },
		"panic in body": func(resp *http.Response) { resp.Body = brokenBody{resp.Body} },
		"Goexit":        func(*http.Response) { runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			panics := countPanics(t)
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				next := newWatchServer(server)
				var broken atomic.Bool
				m := newMapperThrough(t, server, through(func(req *http.Request) (*http.Response, error) {
					resp, err := next.RoundTrip(req)
					if broken.Load() {
						fail(resp)
					}
					return resp, err
				}), apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute, WatchAPIs: true})
				defer startMapper(t, m)()
				wantServed(t, m, fooKind)
				serve(server, newKind)

				broken.Store(true)
				m.Reset()
				wantServed(t, m, fooKind)
				start := time.Now()
				if err := lookUp(m, newKind); err == nil || meta.IsNoMatchError(err) || time.Since(start) > 0 {
					t.Errorf("a new kind while it is broken: %v after %v; want an error at once that is no NoMatch", err, time.Since(start))
				}
				time.Sleep(15 * time.Minute) // until the watches have ended, too
				if reported := panics.Swap(0); (reported > 0) != strings.HasPrefix(name, "panic") || m.Status().Watching {
					t.Errorf("%d panics were reported, watching %v; want each panic, none where the goroutine ends, and no watch", reported, m.Status().Watching)
				}

				broken.Store(false)
				wantServed(t, m, newKind, fooKind)
				time.Sleep(5 * time.Minute)
				if err := m.Healthz(nil); err != nil || !m.Status().Watching {
					t.Errorf("5 minutes after it: %v, watching %v; want healthy, and watching", err, m.Status().Watching)
				}
			})
		})
	}
}
