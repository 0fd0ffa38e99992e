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

// A requestLog notes when requests begin. It fails the test if two for one path are under way at
// once: one read of the server is one flight.
type requestLog struct {
	next http.RoundTripper
	t    *testing.T

	mu       sync.Mutex
	underway map[string]bool // by path
	began    time.Time       // the latest ones
	rounds   [][]string      // the paths of those that begin at the same time
}

func (l *requestLog) RoundTrip(req *http.Request) (*http.Response, error) {
	path := req.URL.Path
	l.mu.Lock()
	if l.underway[path] {
		l.t.Errorf("a request for %s begins while another one is under way", path)
	}
	l.underway[path] = true
	if now := time.Now(); now != l.began {
		l.began, l.rounds = now, append(l.rounds, nil)
	}
	l.rounds[len(l.rounds)-1] = append(l.rounds[len(l.rounds)-1], path)
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.underway[path] = false
	}()
	return l.next.RoundTrip(req)
}

// newLoggedMapper makes a mapper whose requests are noted.
func newLoggedMapper(t *testing.T, server *fakeapi.Server) (*apiutil.DynamicRESTMapper, *requestLog) {
	t.Helper()
	log := &requestLog{next: server.Client().Transport, t: t, underway: map[string]bool{}}
	return newMapperThrough(t, server, log, apiutil.DynamicRESTMapperOptions{}), log
}

var typical = schema.GroupVersionKind{Group: "g0001.example.com", Version: "v1", Kind: "Kind0001A"}

func typicalGroup(n int) string { return fmt.Sprintf("g%04d.example.com", n) }

// typicalAs is another kind in the same place.
func typicalAs(kind string) schema.GroupVersionKind {
	return typical.GroupVersion().WithKind(kind)
}

// The requests of one lookup that names a group follow each other. Those of one that
// searches all groups go side by side if each group has to be read.
func TestRequestsOfOneLookup(t *testing.T) {
	eachWarmMapper(t, 1, func(t *testing.T, server *fakeapi.Server, _ *apiutil.DynamicRESTMapper) {
		m, log := newLoggedMapper(t, server)
		for when, reset := range map[string]func(){
			"at first": func() {}, "after Reset": m.Reset, "after ResetGroup": func() { m.ResetGroup(typical.Group) },
		} {
			for _, form := range lookupForms(typicalAs("Absent")) {
				reset()
				log.rounds = nil
				_, _ = form.ask(context.Background(), m)
				most, why := 1, "they follow each other"
				if form.group == "" && modeOf(t) == "legacy" {
					most, why = mostGroups, "without the aggregated document all groups are read, 8 at a time"
				}
				for i, round := range log.rounds {
					if n := len(round); n > most || n < most && 2 <= i && i < len(log.rounds)-1 { // after the document
						t.Errorf("%s %s: %d requests begin at once, want %d: %s. All, by when they begin:\n%s",
							form.name, when, n, most, why, textOfLines(log.rounds))
						break
					}
				}
			}
		}
	})
}

func textOfLines[T any](list []T) (text string) {
	for _, item := range list {
		text += fmt.Sprintln("   ", item)
	}
	return text
}

// Lookups at once share their reads, and those in different groups do not wait for each other. A
// read that was under way when a lookup began is too old for it. It waits for that, and shares the
// next one with all others: each path that a lookup alone asks for is asked for twice at most, and
// it takes twice as long at most.
func TestLookupsAtOnce(t *testing.T) {
	number := func(i int) string { return fmt.Sprintf("Absent%d", i) }
	absent := func(m *apiutil.DynamicRESTMapper, group, kind string, versions ...string) error {
		_, err := m.RESTMapping(schema.GroupKind{Group: group, Kind: kind}, versions...)
		return err
	}
	for name, test := range map[string]struct {
		n      int
		lookup func(m *apiutil.DynamicRESTMapper, i int) error
	}{
		"lookups that are the first of a program": {200, func(m *apiutil.DynamicRESTMapper, _ int) error { return lookUp(m, typical) }},
		"lookups of one kind and one version":     {200, func(m *apiutil.DynamicRESTMapper, _ int) error { return miss(m, typical.Group, "v1") }},
		"lookups of other kinds in one version":   {200, func(m *apiutil.DynamicRESTMapper, i int) error { return absent(m, typical.Group, number(i), "v1") }},
		"lookups of one kind in any version":      {200, func(m *apiutil.DynamicRESTMapper, _ int) error { return miss(m, typical.Group) }},
		"lookups of other kinds in any version":   {200, func(m *apiutil.DynamicRESTMapper, i int) error { return absent(m, typical.Group, number(i)) }},
		"lookups in any group":                    {200, func(m *apiutil.DynamicRESTMapper, _ int) error { return missByResource(m, "") }},
		"lookups in absent groups, of a version":  {10, func(m *apiutil.DynamicRESTMapper, i int) error { return miss(m, number(i)+".example.com", "v1") }},
		"lookups in absent groups, of any":        {10, func(m *apiutil.DynamicRESTMapper, i int) error { return miss(m, number(i)+".example.com") }},
		"lookups in known groups, of a version":   {10, func(m *apiutil.DynamicRESTMapper, i int) error { return miss(m, typicalGroup(i+1), "v1") }},
	} {
		t.Run(name, func(t *testing.T) {
			eachWarmMapper(t, 1, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
				first := strings.Contains(name, "first")
				one, _ := newLoggedMapper(t, server)
				if first {
					m, _ = newLoggedMapper(t, server) // knows nothing yet, as the other one
				} else {
					readAll(t, one)
				}
				alone, took := map[string]int{}, time.Duration(0)
				for i := range test.n {
					server.TakeRequests()
					took = max(took, allAtOnce(1, func(int) { _ = test.lookup(one, i) }))
					for path, n := range requestsByPath(server) {
						alone[path] = max(alone[path], n)
					}
				}
				together := allAtOnce(test.n, func(i int) {
					if err := test.lookup(m, i); meta.IsNoMatchError(err) == first || first && err != nil {
						t.Error(err)
					}
				})
				for path, n := range requestsByPath(server) {
					if n > 2*alone[path] {
						t.Errorf("%d %s ask %d times for %s, want %d at most: one of them alone asks %d times",
							test.n, name, n, path, 2*alone[path], alone[path])
					}
				}
				if together > 2*took {
					t.Errorf("%d %s take %v, want %v at most: one of them alone takes %v, if a request takes %v",
						test.n, name, together, 2*took, took, latency)
				}
			})
		})
	}
}

func requestsByPath(server *fakeapi.Server) map[string]int {
	counts := map[string]int{}
	for _, r := range server.TakeRequests() {
		counts[r.Path]++
	}
	return counts
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

// What is called with a context returns when that ends, with its cause and without NoMatch,
// whatever the cause is.
// The reads go on, and their results stay. A thousand calls leave nothing behind.
func TestCallsEndWithTheirContext(t *testing.T) {
	hanging := schema.GroupVersionKind{Group: typicalGroup(10), Version: "v1", Kind: "Absent"}
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
		"IsServed": func(ctx context.Context, m *apiutil.DynamicRESTMapper) error {
			_, err := m.IsServed(ctx, hanging)
			return err
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
				if took != latency/2 || !strings.Contains(fmt.Sprint(err), reason.Error()) || meta.IsNoMatchError(err) {
					t.Fatalf("%s returned %v after %v; want the cause %q, which is no NoMatch of it, after %v", name, err, took, reason, latency/2)
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
