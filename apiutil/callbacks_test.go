// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
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
type callback func(method string)

func (c callback) Request(string, int) { c("Request") }

func (c callback) Reload(string, time.Duration, error) { c("Reload") }

func (c callback) Miss(string) { c("Miss") }

func (c callback) Served(uint64, int, int, time.Time) { c("Served") }

// A callback may ask the mapper anything. It may even make a lookup that misses, which
// has to read the server.
func TestCallbacksMayMiss(t *testing.T) {
	absent := func(group string, versions ...string) func(context.Context, *apiutil.DynamicRESTMapper) error {
		return func(ctx context.Context, m *apiutil.DynamicRESTMapper) error {
			_, err := m.RESTMappingWithContext(ctx, schema.GroupKind{Group: group, Kind: "Absent"}, versions...)
			return err
		}
	}
	for name, lookup := range map[string]func(context.Context, *apiutil.DynamicRESTMapper) error{
		"the same version": absent(fooKind.Group, "v1"),
		"the document":     absent("absent.example.com"),
		"any group": func(ctx context.Context, m *apiutil.DynamicRESTMapper) error {
			_, err := m.KindForWithContext(ctx, schema.GroupVersionResource{Resource: "absents"})
			return err
		},
		"after a Reset": func(ctx context.Context, m *apiutil.DynamicRESTMapper) error {
			m.Reset()
			return absent(fooKind.Group, "v1")(ctx, m)
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // ends a deadlock
				defer cancel()
				var m *apiutil.DynamicRESTMapper
				var asked atomic.Int32
				var busy atomic.Bool
				ask := callback(func(string) { // each lookup makes the next callback, until ctx ends
					if busy.Swap(true) {
						return // its own lookups cause callbacks, too
					}
					defer busy.Store(false)
					asked.Add(1)
					if err := lookup(ctx, m); !meta.IsNoMatchError(err) && ctx.Err() == nil {
						t.Errorf("a lookup in a callback: %v", err)
					}
				})
				m = newMapper(t, server, apiutil.DynamicRESTMapperOptions{
					Metrics: ask, RefreshInterval: 2 * time.Second,
					Logger: funcr.New(func(string, string) { ask("") }, funcr.Options{Verbosity: 10}),
				})
				server.SetLatency(latency)
				start := time.Now()
				for range 5 {
					if err := lookup(ctx, m); !meta.IsNoMatchError(err) {
						t.Errorf("a lookup: %v", err)
					}
				}
				if took := time.Since(start); took > 10*time.Second {
					t.Errorf("5 lookups took %v", took)
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

// Reports that take longer than their reads do not pile up. Neither lookups nor the end
// of Start wait for them.
func TestNobodyWaitsForSlowReports(t *testing.T) {
	const misses, pause = 3000, 20 * time.Millisecond // 50 a second for a minute
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		var reports atomic.Int32
		slow := callback(func(method string) {
			if method == "Reload" {
				reports.Add(1)
				time.Sleep(100 * time.Millisecond)
			}
		})
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{Metrics: slow, RefreshInterval: 10 * time.Second})
		readAll(t, m)
		stop := startMapper(t, m)
		before := goroutines()
		absent := schema.GroupKind{Group: fooKind.Group, Kind: "Absent"}
		for range misses {
			start := time.Now()
			if _, err := m.RESTMapping(absent, "v1"); !meta.IsNoMatchError(err) || time.Since(start) > 0 {
				t.Fatalf("a lookup took %v: %v", time.Since(start), err)
			}
			time.Sleep(pause)
		}
		if now := goroutines(); now > before+20 {
			t.Errorf("%d goroutines, %d before", now, before)
		}
		cancelled := time.Now()
		stop()
		if took := time.Since(cancelled); took > time.Second {
			t.Errorf("Start returned %v after its context ended", took)
		}
		time.Sleep(10 * time.Minute)
		if n := reports.Load(); n < 100 {
			t.Errorf("%d reports of %d reads", n, misses)
		}
	})
}

// Reports that wait for one that hangs do not hold what was known at each of them.
func TestWaitingReportsHoldFewSnapshots(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const reads, kinds = 64, 4000
		server := newServer(fakeapi.Aggregated())
		hang := make(chan struct{})
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{Metrics: callback(func(string) { <-hang })})
		heap := func(first, n int) (bytes uint64) {
			for i := range n {
				names := make([]string, kinds)
				for k := range names {
					names[k] = fmt.Sprintf("Kind%dOf%d", k, first+i)
				}
				server.PutVersion(newKind.Group, fakeVersion("v1", names...))
				if err := m.Refresh(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			server.TakeRequests()
			for range 3 { // what is shared goes with the second
				runtime.GC()
			}
			var stats runtime.MemStats
			runtime.ReadMemStats(&stats)
			return stats.HeapAlloc
		}
		few := heap(0, reads/4)
		if many := heap(reads/4, reads); many > few+few/2 {
			t.Errorf("%d bytes after %d reads, %d after %d", few, reads/4, many, reads/4+reads)
		}
		close(hang)
		runtime.KeepAlive(m)
	})
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
				synctest.Wait()
				wantServed(t, m, fooKind)
				serve(server, newKind)

				broken.Store(true)
				m.Reset()
				wantServed(t, m, fooKind)
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
				defer cancel()
				_, err := m.RESTMappingWithContext(ctx, newKind.GroupKind(), newKind.Version)
				if err == nil || meta.IsNoMatchError(err) || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("while it is broken: %v", err)
				}
				time.Sleep(15 * time.Minute) // until the watches have ended, too
				if m.Status().Watching {
					t.Error("watching while it is broken")
				}
				if reported := panics.Swap(0); (reported > 0) != strings.HasPrefix(name, "panic") {
					t.Errorf("%d panics were reported", reported)
				}

				broken.Store(false)
				wantServed(t, m, newKind, fooKind)
				time.Sleep(5 * time.Minute)
				if err := m.Healthz(nil); err != nil || !m.Status().Watching {
					t.Errorf("after it: %v, watching %v", err, m.Status().Watching)
				}
			})
		})
	}
}

// Transports of tests and gateways return answers without a body, or no answer at all.
// http.Client forgives that, and so does the mapper.
func TestTransportWithoutBodiesIsForgiven(t *testing.T) {
	panics := countPanics(t)
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		next := server.Client().Transport
		var nothing atomic.Bool
		m := newMapperThrough(t, server, through(func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			switch {
			case nothing.Load():
				return nil, nil //nolint:nilnil // That is the fault.
			case err == nil && resp.StatusCode != http.StatusOK:
				resp.Body = nil
			}
			return resp, err
		}), apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute, WatchAPIs: true})
		defer startMapper(t, m)()
		readAll(t, m)
		server.TakeRequests()
		readAll(t, m)
		if !slices.ContainsFunc(server.TakeRequests(), func(r fakeapi.Request) bool { return strings.Contains(r.String(), "/apis  304") }) {
			t.Error("there was no 304")
		}
		if status := m.Status(); status.LastError != nil {
			t.Errorf("after a 304 without a body: %v", status.LastError)
		}
		nothing.Store(true)
		m.Reset()
		wantServed(t, m, fooKind)
		if err := m.Status().LastError; err == nil || !strings.Contains(err.Error(), "nil *Response") {
			t.Errorf("without an answer: %v", err)
		}
		nothing.Store(false)
	})
	if n := panics.Load(); n > 0 {
		t.Errorf("%d panics", n)
	}
}
