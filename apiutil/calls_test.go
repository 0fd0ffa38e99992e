// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/apiutil/served"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/fakeapi/bubble"
)

// goroutines counts those of the caller's bubble. Other tests may run beside it.
func goroutines() int {
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	bubble := regexp.MustCompile(`synctest bubble \d+`).Find(stacks) // the caller's stack is the first
	return bytes.Count(stacks, append(bubble, ']'))
}

// eachServer runs test with a server of each mode, in a bubble.
func eachServer(t *testing.T, test func(t *testing.T, server *fakeapi.Server)) {
	eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
		bubble.Run(t, func(t *testing.T) { test(t, newServer(forms)) })
	})
}

// latency is what a request takes where time is counted in requests.
const latency = 20 * time.Millisecond

// eachWarmMapper runs test in both modes, with a mapper that knows all of a server
// with 20 groups of so many versions, and whose requests are watched.
func eachWarmMapper(
	t *testing.T, versions int, test func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper),
) {
	eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
		bubble.Run(t, func(t *testing.T) {
			server := fakeapi.New(fakeapi.Typical(20, versions, 2)...)
			server.SetForms(forms)
			m := newMapperOfFlights(t, server)
			if _, err := m.ResourceSingularizer("pods"); err != nil {
				t.Fatal(err)
			}
			server.SetLatency(latency)
			server.TakeRequests()
			test(t, server, m)
		})
	})
}

// allAtOnce calls lookup n times at once and returns how long that takes.
func allAtOnce(n int, lookup func(i int)) time.Duration {
	start := time.Now()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { lookup(i) })
	}
	wg.Wait()
	return time.Since(start)
}

// A callLog fails the test if two requests for one path are under way at once: callers share a read.
type callLog struct {
	next     http.RoundTripper
	t        *testing.T
	underway sync.Map // by path
	failed   sync.Map // likewise: a failure is reported once
}

func (l *callLog) RoundTrip(req *http.Request) (*http.Response, error) {
	if _, is := l.underway.LoadOrStore(req.URL.Path, true); !is {
		defer l.underway.Delete(req.URL.Path)
	} else if _, reported := l.failed.LoadOrStore(req.URL.Path, true); !reported {
		l.t.Errorf("a request for %s begins while another one is under way", req.URL.Path)
	}
	return l.next.RoundTrip(req)
}

func newMapperOfFlights(t *testing.T, server *fakeapi.Server) *apiutil.DynamicRESTMapper {
	t.Helper()
	return newMapperThrough(t, server, &callLog{next: server.Client().Transport, t: t}, apiutil.DynamicRESTMapperOptions{})
}

var typical = schema.GroupVersionKind{Group: "g0001.example.com", Version: "v1", Kind: "Kind0001A"}

// Lookups at once share their reads, and those in different groups do not wait for each other. A read that was under
// way when a lookup began is too old for it. It waits for that, and shares the next one with all others: each path that
// a lookup alone asks for is asked for twice at most, and it takes twice as long at most.
func TestLookupsAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		n                 int
		what, group, kind string // # is the number of the lookup
		versions          []string
	}{
		"lookups that are the first of a program": {200, "kind", typical.Group, typical.Kind, []string{"v1"}},
		"lookups of one kind and one version":     {200, "kind", typical.Group, "Absent", []string{"v1"}},
		"lookups of other kinds in one version":   {200, "kind", typical.Group, "Absent#", []string{"v1"}},
		"lookups of one kind in any version":      {200, "kind", typical.Group, "Absent", nil},
		"lookups of other kinds in any version":   {200, "kind", typical.Group, "Absent#", nil},
		"lookups in any group":                    {200, "kind-of", "", "absents", nil},
		"lookups in absent groups, of a version":  {10, "kind", "absent#.example.com", "Absent", []string{"v1"}},
		"lookups in absent groups, of any":        {10, "kind", "absent#.example.com", "Absent", nil},
		"lookups in known groups, of a version":   {10, "kind", "g001#.example.com", "Absent", []string{"v1"}},
	} {
		ask := func(m *apiutil.DynamicRESTMapper, i int) error {
			numbered := strings.NewReplacer("#", strconv.Itoa(i))
			_, err := lookup(
				context.Background(), m, test.what, numbered.Replace(test.group), numbered.Replace(test.kind), test.versions...,
			)
			return err
		}
		t.Run(name, func(t *testing.T) {
			eachWarmMapper(t, 1, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
				first := strings.Contains(name, "first")
				one := newMapperOfFlights(t, server)
				if first {
					m = newMapperOfFlights(t, server) // knows nothing yet, as the other one
				} else {
					readAll(t, one)
				}
				alone, took := map[string]int{}, time.Duration(0)
				for i := range test.n {
					server.TakeRequests()
					took = max(took, allAtOnce(1, func(int) { _ = ask(one, i) }))
					for path, n := range requestsByPath(server) {
						alone[path] = max(alone[path], n)
					}
				}
				together := allAtOnce(test.n, func(i int) {
					if err := ask(m, i); meta.IsNoMatchError(err) == first || first && err != nil {
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

// requestsByPath counts the requests since they were last taken.
func requestsByPath(server *fakeapi.Server) map[string]int {
	counts := map[string]int{}
	for _, r := range server.TakeRequests() {
		counts[r.Path]++
	}
	return counts
}

// What a lookup in many groups holds while it reads them grows with their number, and not with its square.
func TestLookupInManyGroupsHoldsLittle(t *testing.T) {
	const groups, most = 4000, 40 << 20
	heap := func() uint64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	bubble.Run(t, func(t *testing.T) {
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
// whatever the cause is. A thousand calls leave nothing behind.
func TestCallsEndWithTheirContext(t *testing.T) {
	hanging := schema.GroupVersionKind{Group: "g0010.example.com", Version: "v1", Kind: "Absent"}
	find := func(versions ...string) func(context.Context, *apiutil.DynamicRESTMapper) error {
		return func(ctx context.Context, m *apiutil.DynamicRESTMapper) error {
			_, err := m.RESTMappingWithContext(ctx, hanging.GroupKind(), versions...)
			return err
		}
	}
	calls := map[string]func(context.Context, *apiutil.DynamicRESTMapper) error{
		"a lookup": find(), "of a version": find("v1"), "of two": find("v1", "v2"),
		"served.Is": func(ctx context.Context, m *apiutil.DynamicRESTMapper) error {
			_, err := served.Is(ctx, m, hanging)
			return err
		},
		"Refresh of a group": func(ctx context.Context, m *apiutil.DynamicRESTMapper) error {
			return m.Refresh(ctx, typical.Group, hanging.Group)
		},
		"served.Wait": func(ctx context.Context, m *apiutil.DynamicRESTMapper) error {
			return served.Wait(ctx, m, typical, hanging)
		},
	}
	eachWarmMapper(t, 3, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
		server.SetFault(fakeapi.InGroup(hanging.Group), fakeapi.Timeout())
		// of another lookup, which says nothing of this one
		before, reason := goroutines(), &meta.NoKindMatchError{GroupKind: typical.GroupKind()}
		for range 200 {
			for name, call := range calls {
				ctx, cancel := context.WithTimeoutCause(context.Background(), latency/2, reason)
				start := time.Now()
				err := call(ctx, m)
				took := time.Since(start)
				if took != latency/2 || !strings.Contains(fmt.Sprint(err), reason.Error()) || meta.IsNoMatchError(err) {
					t.Fatalf("%s returned %v after %v; want the cause %q, which is no NoMatch of it, after %v",
						name, err, took, reason, latency/2)
				}
				cancel()
			}
		}
		synctest.Wait()
		if now := goroutines(); now > before+20 {
			t.Errorf("%d goroutines, %d before", now, before)
		}
	})
}

// miss looks up a kind that is not served.
func miss(m *apiutil.DynamicRESTMapper, group string, versions ...string) error {
	_, err := m.RESTMapping(schema.GroupKind{Group: group, Kind: "Absent"}, versions...)
	return err
}

// missByResource is the same by resource.
func missByResource(m *apiutil.DynamicRESTMapper, group string) error {
	_, err := m.KindFor(schema.GroupVersionResource{Group: group, Resource: "absents"})
	return err
}
