// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// mostGroups is how many groups one lookup reads at a time.
const mostGroups = 8

// overlaps fails the test if two requests for one path are under way at once: one read of
// the server is one flight.
type overlaps struct {
	next http.RoundTripper
	t    *testing.T

	mu       sync.Mutex
	underway map[string]int // by path; "" for all
	most     int            // requests that were under way at once
}

func (o *overlaps) RoundTrip(req *http.Request) (*http.Response, error) {
	o.count(req.URL.Path, 1)
	defer o.count(req.URL.Path, -1)
	return o.next.RoundTrip(req)
}

func (o *overlaps) count(path string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.underway[path] += n
	o.underway[""] += n
	if o.underway[path] > 1 {
		o.t.Errorf("two requests at once for %s", path)
	}
	o.most = max(o.most, o.underway[""])
}

// newWatchedMapper makes a mapper whose requests for one path must not overlap.
func newWatchedMapper(t *testing.T, server *fakeapi.Server) (*apiutil.DynamicRESTMapper, *overlaps) {
	t.Helper()
	watched := &overlaps{next: server.Client().Transport, t: t, underway: map[string]int{}}
	return newMapperThrough(t, server, watched, apiutil.DynamicRESTMapperOptions{}), watched
}

var typical = schema.GroupVersionKind{Group: "g0001.example.com", Version: "v1", Kind: "Kind0001A"}

func typicalGroup(n int) string { return fmt.Sprintf("g%04d.example.com", n) }

// typicalAs is another kind in the same place.
func typicalAs(kind string) schema.GroupVersionKind {
	return typical.GroupVersion().WithKind(kind)
}

func TestHitsDoNotWait(t *testing.T) {
	eachWarmMapper(t, 1, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
		var misses sync.WaitGroup
		for range 10 {
			misses.Go(func() { _ = miss(m, typical.Group) })
		}
		synctest.Wait() // until they have nothing to do but wait for the server
		took := allAtOnce(100, func(int) {
			for _, form := range lookupForms(typical) {
				form.wantAnswer(t, m, "during a slow discovery")
			}
		})
		if took != 0 {
			t.Errorf("hits took %v", took)
		}
		if requests := server.TakeRequests(); len(requests) > 2 {
			t.Errorf("%d requests, not only those under way: %v", len(requests), requests)
		}
		misses.Wait()
	})
}

// The requests of one lookup that names a group follow each other. Those of one that
// searches all groups go side by side if each group has to be read.
func TestRequestsOfOneLookup(t *testing.T) {
	eachWarmMapper(t, 1, func(t *testing.T, server *fakeapi.Server, _ *apiutil.DynamicRESTMapper) {
		m, watched := newWatchedMapper(t, server)
		for _, reset := range []func(){func() {}, m.Reset, func() { m.ResetGroup(typical.Group) }} {
			for _, form := range lookupForms(typicalAs("Absent")) {
				reset()
				server.TakeRequests()
				watched.most = 0
				start := time.Now()
				if _, err := form.ask(context.Background(), m); !meta.IsNoMatchError(err) && form.name != "ResourceSingularizer" {
					t.Errorf("%s: %v", form.name, err)
				}
				requests, took, most := len(server.TakeRequests()), time.Since(start), 1
				if form.group == "" && modeOf(t) == "legacy" {
					most = mostGroups
				}
				rounds := 2 + (requests-2+most-1)/most // of the document, and of the versions
				if watched.most != most || most > 1 && took != time.Duration(rounds)*latency {
					t.Errorf("%s: %d requests took %v, %d at once; want %d at once", form.name, requests, took, watched.most, most)
				}
			}
		}
	})
}

// Lookups at once share their reads, and those in different groups do not wait for each other.
func TestLookupsAtOnce(t *testing.T) {
	type bounds struct{ aggregated, legacy int } // of the requests
	number := func(i int) string { return fmt.Sprintf("Absent%d", i) }
	absent := func(m *apiutil.DynamicRESTMapper, group, kind string, versions ...string) error {
		_, err := m.RESTMapping(schema.GroupKind{Group: group, Kind: kind}, versions...)
		return err
	}
	for name, test := range map[string]struct {
		n         int
		lookup    func(m *apiutil.DynamicRESTMapper, i int) error
		latencies float64 // that all may take
		requests  bounds
	}{
		"the first of a program":       {200, func(m *apiutil.DynamicRESTMapper, _ int) error { return lookUp(m, typical) }, 6, bounds{6, 6}},
		"one kind, one version":        {200, func(m *apiutil.DynamicRESTMapper, _ int) error { return miss(m, typical.Group, "v1") }, 3, bounds{3, 3}},
		"200 kinds, one version":       {200, func(m *apiutil.DynamicRESTMapper, i int) error { return absent(m, typical.Group, number(i), "v1") }, 3, bounds{3, 3}},
		"one kind, any version":        {200, func(m *apiutil.DynamicRESTMapper, _ int) error { return miss(m, typical.Group) }, 5, bounds{8, 4}},
		"200 kinds, any version":       {200, func(m *apiutil.DynamicRESTMapper, i int) error { return absent(m, typical.Group, number(i)) }, 5, bounds{8, 4}},
		"200 lookups, any group":       {200, func(m *apiutil.DynamicRESTMapper, _ int) error { return missByResource(m, "") }, 12, bounds{4, 2 * 23}},
		"10 absent groups, a version":  {10, func(m *apiutil.DynamicRESTMapper, i int) error { return miss(m, number(i)+".example.com", "v1") }, 2.5, bounds{10, 10}},
		"10 absent groups, no version": {10, func(m *apiutil.DynamicRESTMapper, i int) error { return miss(m, number(i)+".example.com") }, 5, bounds{40, 40}},
		"10 known groups, a version":   {10, func(m *apiutil.DynamicRESTMapper, i int) error { return miss(m, typicalGroup(i+1), "v1") }, 2.5, bounds{10, 10}},
	} {
		t.Run(name, func(t *testing.T) {
			eachWarmMapper(t, 1, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
				first := name == "the first of a program"
				if first {
					m, _ = newWatchedMapper(t, server) // which knows nothing yet
				}
				took := allAtOnce(test.n, func(i int) {
					if err := test.lookup(m, i); meta.IsNoMatchError(err) == first || first && err != nil {
						t.Error(err)
					}
				})
				most := map[string]int{"aggregated": test.requests.aggregated, "legacy": test.requests.legacy}[modeOf(t)]
				requests := server.TakeRequests()
				if len(requests) > most || took > time.Duration(test.latencies*float64(latency)) {
					t.Errorf("%d requests in %v, want at most %d in %v latencies: %v", len(requests), took, most, test.latencies, requests)
				}
			})
		})
	}
}

// What a lookup in many groups holds while it reads them grows with their number, and not
// with its square.
func TestLookupInManyGroupsHoldsLittle(t *testing.T) {
	const groups, most = 4000, 40 << 20
	heap := func() uint64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	inBubble(t, func(t *testing.T) {
		server := fakeapi.New(fakeapi.Typical(groups, 1, 1)...)
		server.SetForms(fakeapi.Legacy())
		next := server.Client().Transport
		before, held := heap(), uint64(0)
		m := newMapperThrough(t, server, through(func(req *http.Request) (*http.Response, error) {
			if strings.HasPrefix(req.URL.Path, fmt.Sprintf("/apis/g%d.", groups)) {
				held = heap() // nearly all others were read
			}
			return next.RoundTrip(req)
		}), apiutil.DynamicRESTMapperOptions{})
		if _, err := m.KindFor(schema.GroupVersionResource{Resource: "absents"}); !meta.IsNoMatchError(err) {
			t.Error(err)
		}
		if held == 0 || held > before+most {
			t.Errorf("%d bytes before, %d at the last group", before, held)
		}
	})
}

// hangingGroups are custom groups that do not answer.
var hangingGroups = []string{typicalGroup(10), typicalGroup(11), typicalGroup(12)}

// F9: a miss in one group does not wait for others that hang, however often they
// are asked for. Nor does the first lookup of a known kind after a Reset.
func TestNobodyWaitsForHangingGroups(t *testing.T) {
	askings := [][]string{nil, {"v1"}, {"v1", "v2", "v3"}} // the versions that are named
	lookups := map[string]func(m *apiutil.DynamicRESTMapper) error{}
	for _, versions := range askings {
		for where, group := range map[string]string{"known": typical.Group, "absent": "nowhere.example.com", "core": ""} {
			lookups[fmt.Sprintf("miss of %q in %s", versions, where)] = func(m *apiutil.DynamicRESTMapper) error { return miss(m, group, versions...) }
		}
	}
	for _, gvk := range []schema.GroupVersionKind{{Version: "v1", Kind: "Pod"}, {Group: typical.Group, Version: "v3", Kind: typical.Kind}} {
		lookups[gvk.Kind+" after a Reset"] = func(m *apiutil.DynamicRESTMapper) error { m.Reset(); return lookUp(m, gvk) }
	}
	timed := func(t *testing.T, m *apiutil.DynamicRESTMapper, what string) time.Duration {
		start := time.Now()
		if err := lookups[what](m); err != nil && !meta.IsNoMatchError(err) {
			t.Error(err)
		}
		return time.Since(start)
	}
	for _, asked := range askings {
		for what := range lookups {
			t.Run(fmt.Sprintf("%q/%s", asked, what), func(t *testing.T) {
				eachWarmMapper(t, 3, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
					undisturbed := timed(t, m, what)
					server.SetFault(fakeapi.InGroup(hangingGroups...), fakeapi.Timeout())
					ctx, cancel := context.WithCancel(context.Background())
					var others sync.WaitGroup
					for n := range 9 {
						others.Go(func() {
							for ctx.Err() == nil {
								_, _ = m.RESTMappingWithContext(ctx, schema.GroupKind{Group: hangingGroups[n%3], Kind: fmt.Sprint("Absent", n)}, asked...)
							}
						})
					}
					time.Sleep(5 * time.Second) // until they do nothing but hang
					for n := range 3 {
						if took := timed(t, m, what); took > undisturbed*3/2 {
							t.Errorf("try %d took %v, and %v undisturbed", n, took, undisturbed)
						}
						time.Sleep(13 * time.Second)
					}
					cancel()
					others.Wait()
				})
			})
		}
	}
}

// What is called with a context returns when that ends, with its cause and without NoMatch,
// whatever the cause is.
// The reads go on, and their results stay. A thousand calls leave nothing behind.
func TestCallsEndWithTheirContext(t *testing.T) {
	hanging := schema.GroupVersionKind{Group: hangingGroups[0], Version: "v1", Kind: "Absent"}
	known := schema.GroupVersionKind{Group: hanging.Group, Version: "v1", Kind: "Known"}
	lookup := func(versions ...string) func(context.Context, *apiutil.DynamicRESTMapper) error {
		return func(ctx context.Context, m *apiutil.DynamicRESTMapper) error {
			_, err := m.RESTMappingWithContext(ctx, hanging.GroupKind(), versions...)
			return err
		}
	}
	calls := map[string]func(context.Context, *apiutil.DynamicRESTMapper) error{
		"a lookup": lookup(), "of a version": lookup("v1"), "of two": lookup("v1", "v2"),
		"of a known kind after a reset": func(ctx context.Context, m *apiutil.DynamicRESTMapper) error {
			m.ResetGroup(hanging.Group)
			_, err := m.RESTMappingWithContext(ctx, known.GroupKind(), known.Version)
			return err
		},
		"Refresh of a group": func(ctx context.Context, m *apiutil.DynamicRESTMapper) error {
			return m.Refresh(ctx, typical.Group, hanging.Group)
		},
		"WaitForKinds": func(ctx context.Context, m *apiutil.DynamicRESTMapper) error {
			return m.WaitForKinds(ctx, typical, hanging)
		},
	}
	eachWarmMapper(t, 3, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
		serve(server, known)
		wantServed(t, m, known)
		server.SetFault(fakeapi.InGroup(hanging.Group), fakeapi.Timeout())
		before, reason := goroutines(), &meta.NoKindMatchError{GroupKind: typical.GroupKind()} // of another lookup, which says nothing of this one
		for range 200 {
			for name, call := range calls {
				ctx, cancel := context.WithTimeoutCause(context.Background(), latency/2, reason)
				start := time.Now()
				err := call(ctx, m)
				took := time.Since(start)
				if name == "of a known kind after a reset" && err == nil && took == 0 {
					cancel()
					continue // nobody with an old answer waits for what is unanswered (R7)
				}
				if took != latency/2 || !strings.Contains(err.Error(), reason.Error()) || meta.IsNoMatchError(err) {
					t.Fatalf("%s returned after %v: %v", name, took, err)
				}
				cancel()
			}
		}
		synctest.Wait()
		if now := goroutines(); now > before+20 {
			t.Errorf("%d goroutines, %d before", now, before)
		}
		time.Sleep(5 * time.Minute)
		server.ClearFaults()
		serve(server, hanging)
		ctx, cancel := context.WithTimeout(context.Background(), latency/2)
		defer cancel()
		if err := lookup("v1")(ctx, m); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("5 minutes later: %v", err)
		}
		time.Sleep(latency / 2)
		synctest.Wait()
		server.TakeRequests()
		wantServed(t, m, hanging)
		wantRequests(t, server, "after the read of a lookup that has left")
	})
}

// mostPatient is for how long a lookup of something known waits for what hangs.
const mostPatient = 3 * time.Second
