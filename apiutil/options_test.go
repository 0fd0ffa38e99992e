// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
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
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/apiutil/fleet"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/fakeapi/bubble"
)

// Whatever the options, a constructor sends no request and leaves no goroutine.
func TestConstructorsDoNothing(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	server := newServer(fakeapi.Aggregated())
	cfg, client := server.Config(), server.Client()
	all := apiutil.DynamicRESTMapperOptions{
		RefreshInterval: time.Millisecond, WatchAPIs: true, NegativeTTL: time.Hour, UnhealthyAfter: time.Nanosecond,
	}
	for range 20 {
		meta.MaybeResetRESTMapper(must(apiutil.NewDynamicRESTMapper(cfg, client)))
		meta.MaybeResetRESTMapper(must(apiutil.DynamicRESTMapperProvider(all)(cfg, client)))
		meta.MaybeResetRESTMapper(must(apiutil.NewDynamicRESTMapperWithOptions(cfg, client, all)))
	}
	wantRequests(t, server, "constructors, and resets")
}

// What cannot be is refused, whoever makes the mapper. A host that is no URL is named without its user and password.
func TestArgumentsThatCannotBe(t *testing.T) {
	cfg, client := &rest.Config{Host: "http://fake.invalid"}, &http.Client{}
	type options = apiutil.DynamicRESTMapperOptions
	type arguments struct {
		cfg    *rest.Config
		client *http.Client
		opts   options
		want   string
	}
	rows := []arguments{{nil, client, options{}, "cfg is nil"}, {cfg, nil, options{}, "httpClient is nil"}}
	for want, opts := range map[string]options{
		"RefreshInterval": {RefreshInterval: -1}, "NegativeTTL": {NegativeTTL: -1}, "RequestTimeout": {RequestTimeout: -1},
		"MaxResponseBytes": {MaxResponseBytes: -1}, "UnhealthyAfter": {UnhealthyAfter: -1},
		"RefreshInterval is 30ns, less than 1ms: give it with its unit": {RefreshInterval: 30},
		"MaxAge is 30ns": {MaxAge: 30}, "RequestTimeout is 30ns": {RequestTimeout: 30},
	} {
		rows = append(rows, arguments{cfg, client, opts, want})
	}
	for _, host := range []string{
		"http://admin:secret@[host",
		"https://admin:my secret@host",
		"https://admin:se/secret@host%zz",
		"admin:secret@host:443/path",
		"https://admin:secret%zz@host",
		"https://admin:secret@host:port",
		"//admin:secret@host/path",
		"//admin:se/secret@host",
		"admin:secret@host%zz",
	} {
		rows = append(
			rows, arguments{&rest.Config{Host: host}, client, options{}, "host"},
			arguments{&rest.Config{Host: host}, client, options{WatchAPIs: true}, "host"},
		)
	}
	for _, row := range rows {
		m, err := apiutil.NewDynamicRESTMapperWithOptions(row.cfg, row.client, row.opts)
		byProvider, providers := apiutil.DynamicRESTMapperProvider(row.opts)(row.cfg, row.client)
		byFleet, fleets := fleet.New(row.opts).Provider("a")(row.cfg, row.client)
		if m != nil || byProvider != nil || byFleet != nil {
			t.Errorf("%s: a mapper that is not nil beside the error: %v, %v, %v", row.want, m, byProvider, byFleet)
		}
		for _, err := range []error{err, providers, fleets} {
			shows := func(part string) bool { return strings.Contains(fmt.Sprint(err), part) }
			if err == nil || !shows(row.want) || slices.ContainsFunc([]string{"admin", "my ", "secret", ":se", "zz@"}, shows) {
				t.Errorf("cfg %v, options %+v: %v; want an error with %q, and no user or password",
					row.cfg, row.opts, err, row.want)
			}
		}
	}
}

// The caller may change its arguments and its results: neither affects the mapper.
func TestArgumentsAndAnswersBelongToTheCaller(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	server := fakeapi.New(
		fakeGroup("", fakeVersion("v1", "Pod")),
		fakeGroup("example.com", fakeVersion("v1", "Foo"), fakeVersion("v2", "Foo")),
	)
	cfg, client := server.Config(), server.Client()
	m := must(apiutil.NewDynamicRESTMapper(cfg, client))
	if client.CheckRedirect != nil {
		t.Error("the caller's client was changed")
	}
	*cfg, *client = rest.Config{Host: "http://elsewhere.invalid"}, http.Client{}
	all := schema.GroupVersionResource{Group: "example.com", Resource: "foos"}
	for range 2 {
		versions := []string{"v1", "v2"}
		mappings, _ := m.RESTMappings(schema.GroupKind{Group: "example.com", Kind: "Foo"}, versions...)
		kinds, _ := m.KindsFor(all)
		resources, _ := m.ResourcesFor(all)
		best, _ := m.ResourceFor(all)
		if len(mappings) != 2 || len(kinds) != 2 || len(resources) != 2 ||
			mappings[0].Resource.Resource != "foos" || kinds[0].Kind != "Foo" || resources[0].Resource != "foos" || best != resources[0] {
			t.Fatalf("%v, %v, %v; want Foo and foos in two versions", mappings, kinds, resources)
		}
		versions[0], *mappings[0], mappings[1] = "v9", meta.RESTMapping{}, nil
		kinds[0].Kind, resources[0].Resource = "Bar", "bars"
	}
	for _, r := range server.TakeRequests() {
		if r.Host != "fake.invalid" {
			t.Errorf("%s went to %s; want the host that cfg had when the mapper was made", r, r.Host)
		}
	}
}

func TestStartRunsOnlyOnce(t *testing.T) {
	for _, opts := range []apiutil.DynamicRESTMapperOptions{{}, {RefreshInterval: time.Minute}} {
		eachServer(t, func(t *testing.T, server *fakeapi.Server) {
			m := newMapper(t, server, opts)
			stop := startMapper(t, m)
			synctest.Wait()
			if err := m.Start(context.Background()); err == nil || m.NeedLeaderElection() {
				t.Errorf("Start while the mapper runs: %v, leader election %t; want an error, and none",
					err, m.NeedLeaderElection())
			}
			stop()
			if err := m.Start(context.Background()); err == nil {
				t.Error("Start after the mapper has run: want an error")
			}
			ended, end := context.WithCancel(context.Background())
			end()
			server.TakeRequests()
			if err := newMapper(t, server, opts).Start(ended); err != nil {
				t.Errorf("Start with a context that has ended: %v", err)
			}
			wantRequests(t, server, "with a context that has ended")

			server.SetFault(fakeapi.All(), fakeapi.Timeout()) // Start cancels its read, which is no failure of the server
			m = newMapper(t, server, opts)
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			err := m.Start(ctx)
			time.Sleep(time.Minute)
			if status := m.Status(); err != nil || status.ConsecutiveFailures > 0 {
				t.Errorf("Start until a deadline, before the server has answered: %v, %+v; want no error, and no failure",
					err, status)
			}
		})
	}
}

// A callback is metrics that call a function each time.
type callback func()

func (c callback) Request(string, int) { c() }

func (c callback) Reload(string, time.Duration, error) { c() }

func (c callback) Miss(string) { c() }

func (c callback) Served(uint64, int, int, time.Time) { c() }

func (c callback) Watching(bool) { c() }

func (c callback) Followed(string) { c() }

func (c callback) WaitingKinds(schema.GroupVersionKind, int) { c() }

// A callback may ask the mapper anything. It may even make a lookup that misses, which has to read the server.
func TestCallbacksMayMiss(t *testing.T) {
	for name, ask := range map[string][]string{
		"a version":     {"kind", lateKind.Group, lateKind.Kind, "v1"},
		"any group":     {"kind-of", "", "absents"},
		"after a Reset": {"kind", newKind.Group, newKind.Kind},
	} {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // ends a deadlock
				defer cancel()
				var m *apiutil.DynamicRESTMapper
				var asked atomic.Int32
				var busy atomic.Bool
				miss := func() error {
					if name == "after a Reset" {
						m.Reset()
					}
					_, err := lookup(ctx, m, ask[0], ask[1], ask[2], ask[3:]...)
					return err
				}
				call := func() { // each lookup makes the next callback, until ctx ends
					if busy.Swap(true) {
						return // its own lookups cause callbacks, too
					}
					defer busy.Store(false)
					asked.Add(1)
					if err := miss(); !meta.IsNoMatchError(err) && ctx.Err() == nil {
						t.Errorf("a lookup in a callback: %v; want NoMatch", err)
					}
				}
				m = newMapper(t, server, apiutil.DynamicRESTMapperOptions{
					Metrics: callback(call), RefreshInterval: 2 * time.Second,
					Logger: funcr.New(func(string, string) { call() }, funcr.Options{Verbosity: 10}),
				})
				server.SetLatency(latency)
				start := time.Now()
				for range 5 {
					if err := miss(); !meta.IsNoMatchError(err) {
						t.Errorf("a lookup: %v; want NoMatch", err)
					}
				}
				took, stop := time.Since(start), startMapper(t, m)
				time.Sleep(10 * time.Second)
				stop()
				if took > 10*time.Second || asked.Load() == 0 {
					t.Errorf("5 lookups took %v, with %d callbacks; want a few requests of %v, and some", took, asked.Load(), latency)
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
	bubble.Run(t, func(t *testing.T) {
		const reads, kinds, most = 64, 4000, 1024 // most is how many calls wait
		calls, hang, start := 0, make(chan struct{}), time.Now()
		server := newServer(fakeapi.Aggregated())
		hanging := noMiss{func() { calls++; <-hang }}
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{Metrics: hanging, RefreshInterval: time.Hour})
		stop := startMapper(t, m)
		var heap [reads + 1]uint64
		running := 0
		for i := range heap {
			names := make([]string, kinds)
			for k := range names {
				names[k] = fmt.Sprintf("Kind%dOf%d", k, i)
			}
			server.PutVersion(newKind.Group, fakeVersion("v1", names...))
			if err := m.Refresh(context.Background()); err != nil {
				t.Error(err)
			}
			wantAbsent(t, m, lateKind) // a miss
			server.TakeRequests()
			for range 3 { // what is shared goes with the second
				runtime.GC()
			}
			var stats runtime.MemStats
			runtime.ReadMemStats(&stats)
			if heap[i] = stats.HeapAlloc; i == reads/4 {
				running = goroutines()
			}
		}
		if few, many := heap[reads/4], heap[reads]; many > few+few/2 || goroutines() > running {
			t.Errorf("%d bytes and %d goroutines after %d reads, %d and %d after %d; want half as many bytes more at most, "+
				"and no goroutine more",
				few, running, reads/4, many, goroutines(), reads)
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
			t.Errorf("%d calls were made; want the latest %d reports, of one or two calls each, and the one that hung",
				calls, most)
		}
	})
}

// A callback that panics, or ends its goroutine as t.FailNow does, ends none of those behind it. A panic is reported.
func TestCallbackThatPanics(t *testing.T) {
	for name, fail := range map[string]func(){"panic": func() { panic("broken") }, "Goexit": runtime.Goexit} {
		panics := countPanics(t)
		bubble.Run(t, func(t *testing.T) {
			calls := 0
			failing := noMiss{func() { calls++; fail() }}
			m := newMapper(t, newServer(fakeapi.Aggregated()), apiutil.DynamicRESTMapperOptions{Metrics: failing})
			for i := range 3 {
				readAll(t, m)
				synctest.Wait()
				if want := 3 * (i + 1); calls != want {
					t.Errorf("%s: %d calls after %d reads of the document; want %d: each time two requests, and a report that "+
						"ends in its first call",
						name, calls, i+1, want)
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
					t.Errorf("a new kind while it is broken: %v after %v; want an error at once that is no NoMatch",
						err, time.Since(start))
				}
				time.Sleep(15 * time.Minute) // until the watches have ended, too
				if reported := panics.Swap(0); (reported > 0) != strings.HasPrefix(name, "panic") || m.Status().Watching {
					t.Errorf("%d panics were reported, watching %v; want each panic, none where the goroutine ends, and no watch",
						reported, m.Status().Watching)
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
