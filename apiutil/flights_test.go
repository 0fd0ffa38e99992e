// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// mostGroups is how many groups one lookup reads at a time.
const mostGroups = 8

// overlaps fails the test if two requests for one path are under way at once: one read of
// the server is one flight.
type overlaps struct {
	http.RoundTripper
	t *testing.T

	mu       sync.Mutex
	underway map[string]bool
	most     int // requests that were under way at once
}

func (o *overlaps) RoundTrip(req *http.Request) (*http.Response, error) {
	o.enter(req.URL.Path)
	defer o.leave(req.URL.Path)
	return o.RoundTripper.RoundTrip(req)
}

func (o *overlaps) enter(path string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.underway[path] {
		o.t.Errorf("two requests at once for %s", path)
	}
	o.underway[path] = true
	o.most = max(o.most, len(o.underway))
}

func (o *overlaps) leave(path string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.underway, path)
}

// newFlightsMapper makes a mapper whose requests for one path must not overlap.
func newFlightsMapper(t *testing.T, server *fakeapi.Server) (*apiutil.DynamicRESTMapper, *overlaps) {
	t.Helper()
	cfg := server.Config()
	watched := &overlaps{RoundTripper: cfg.Transport, t: t, underway: map[string]bool{}}
	m, err := apiutil.NewDynamicRESTMapperWithOptions(&rest.Config{Host: cfg.Host, QPS: -1}, &http.Client{Transport: watched}, apiutil.DynamicRESTMapperOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m, watched
}

// withFlights runs test in both modes, in a bubble, with a mapper whose requests are
// watched and that knows all of a server with 50 groups.
func withFlights(t *testing.T, test func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper)) {
	eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
		synctest.Test(t, func(t *testing.T) {
			server := fakeapi.New(fakeapi.Typical(50, 1, 2)...)
			server.SetForms(forms)
			m, _ := newFlightsMapper(t, server)
			if _, err := m.ResourceSingularizer("pods"); err != nil {
				t.Fatal(err)
			}
			server.SetLatency(latency)
			server.TakeRequests()
			test(t, server, m)
		})
	})
}

var typical = schema.GroupKind{Group: "g0001.example.com", Kind: "Kind0001A"}

func absentKind(n int) schema.GroupKind {
	return schema.GroupKind{Group: typical.Group, Kind: fmt.Sprintf("Absent%d", n)}
}

func TestHitsDoNotWait(t *testing.T) {
	withFlights(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
		server.SetLatency(300 * time.Millisecond)
		var misses sync.WaitGroup
		for i := range 10 {
			misses.Go(func() { _, _ = m.RESTMapping(absentKind(i)) })
		}
		synctest.Wait() // until they have nothing to do but wait for the server
		took := allAtOnce(100, func(int) {
			for _, form := range lookupForms(typical.WithVersion("v1")) {
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

// A lookup that begins while a flight is under way takes the next one: the kind
// came after the server had put together its answer to the first.
func TestLookupsTakeTheNextFlight(t *testing.T) {
	late := lookupForms(schema.GroupVersionKind{Group: typical.Group, Version: "v1", Kind: "Late"})
	for _, form := range late {
		t.Run(form.name, func(t *testing.T) {
			withFlights(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
				var wg sync.WaitGroup
				defer wg.Wait()
				for range 3 {
					wg.Go(func() {
						if answer, err := form.ask(context.Background(), m); err == nil && answer != form.want {
							t.Errorf("%q", answer)
						}
					})
				}
				synctest.Wait()
				server.PutVersion(typical.Group, fakeVersion("v1", "Kind0001A", "Late"))
				for range 3 {
					wg.Go(func() { form.wantAnswer(t, m, "with an older flight under way") })
				}
			})
		})
	}
}

// The requests of one lookup that names a group follow each other.
func TestRequestsOfOneLookupAreSequential(t *testing.T) {
	withFlights(t, func(t *testing.T, server *fakeapi.Server, _ *apiutil.DynamicRESTMapper) {
		m, watched := newFlightsMapper(t, server)
		for _, reset := range []func(){func() {}, m.Reset, func() { m.ResetGroup(typical.Group) }} {
			for _, form := range lookupForms(schema.GroupVersionKind{Group: typical.Group, Version: "v1", Kind: "Absent"}) {
				if form.group == "" {
					continue
				}
				reset()
				if _, err := form.ask(context.Background(), m); !meta.IsNoMatchError(err) {
					t.Errorf("%s: %v", form.name, err)
				}
			}
			if _, err := m.RESTMapping(absentKind(0), "v3", "v2", "v1"); !meta.IsNoMatchError(err) {
				t.Error(err)
			}
		}
		if watched.most != 1 {
			t.Errorf("%d requests at once", watched.most)
		}
	})
}

// The requests of a lookup that searches all groups go side by side if each group has to
// be read.
func TestSearchOfAllGroupsReadsSideBySide(t *testing.T) {
	withFlights(t, func(t *testing.T, server *fakeapi.Server, _ *apiutil.DynamicRESTMapper) {
		m, watched := newFlightsMapper(t, server)
		for _, form := range lookupForms(schema.GroupVersionKind{Group: typical.Group, Version: "v1", Kind: "Absent"}) {
			if form.group != "" {
				continue
			}
			server.TakeRequests()
			start := time.Now()
			if _, err := form.ask(context.Background(), m); err == nil {
				t.Errorf("%s: found", form.name)
			}
			requests, took := len(server.TakeRequests()), time.Since(start)
			rounds := 2 + (requests-2+mostGroups-1)/mostGroups // of the document, and of the versions
			if took != time.Duration(rounds)*latency {
				t.Errorf("%s: %d requests took %v, want %d rounds of %v", form.name, requests, took, rounds, latency)
			}
		}
		if want := map[string]int{"aggregated": 1, "legacy": mostGroups}[path.Base(t.Name())]; watched.most != want {
			t.Errorf("%d requests at once, want %d", watched.most, want)
		}
	})
}

// A lookup whose context ends leaves. The flight goes on and publishes what it finds.
func TestLookupLeavesWhenItsContextEnds(t *testing.T) {
	withFlights(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
		server.PutVersion(typical.Group, fakeVersion("v1", "Kind0001A", "Late"))
		late := schema.GroupKind{Group: typical.Group, Kind: "Late"}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := m.RESTMappingWithContext(ctx, late, "v1")
		if took := time.Since(start); took != 10*time.Millisecond {
			t.Errorf("left after %v", took)
		}
		if !errors.Is(err, context.DeadlineExceeded) || meta.IsNoMatchError(err) {
			t.Errorf("got %v", err)
		}
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		server.TakeRequests()
		if _, err := m.RESTMapping(late, "v1"); err != nil || len(server.TakeRequests()) > 0 {
			t.Errorf("what the flight found is not there: %v", err)
		}
	})
}

// Misses in different groups go side by side.
func TestMissesInDifferentGroupsGoSideBySide(t *testing.T) {
	for _, test := range []struct {
		name      string
		group     string
		versions  []string
		latencies float64 // that all may take
	}{
		{"absent groups, a version", "absent%d.example.com", []string{"v1"}, 2.5},
		{"absent groups, no version", "absent%d.example.com", nil, 5},
		{"known groups, a version", "g%04d.example.com", []string{"v1"}, 2.5},
	} {
		t.Run(test.name, func(t *testing.T) {
			eachWarmMapper(t, func(t *testing.T, _ *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
				took := allAtOnce(10, func(i int) {
					gk := schema.GroupKind{Group: fmt.Sprintf(test.group, i+1), Kind: "Absent"}
					if _, err := m.RESTMapping(gk, test.versions...); !meta.IsNoMatchError(err) {
						t.Error(err)
					}
				})
				if most := time.Duration(test.latencies * float64(latency)); took > most {
					t.Errorf("took %v, want at most %v", took, most)
				}
			})
		})
	}
}

func TestStormOfMissesCostsFewRequests(t *testing.T) {
	for _, storm := range []struct {
		name     string
		lookup   func(m *apiutil.DynamicRESTMapper, i int) error
		requests map[string]int // at most
	}{
		{"one kind, one version", func(m *apiutil.DynamicRESTMapper, _ int) error {
			_, err := m.RESTMapping(absentKind(0), "v1")
			return err
		}, map[string]int{"aggregated": 3, "legacy": 3}},
		{"200 kinds, one version", func(m *apiutil.DynamicRESTMapper, i int) error {
			_, err := m.RESTMapping(absentKind(i), "v1")
			return err
		}, map[string]int{"aggregated": 3, "legacy": 3}},
		{"one kind, any version", func(m *apiutil.DynamicRESTMapper, _ int) error {
			_, err := m.RESTMapping(absentKind(0))
			return err
		}, map[string]int{"aggregated": 8, "legacy": 4}},
		{"200 kinds, any version", func(m *apiutil.DynamicRESTMapper, i int) error {
			_, err := m.RESTMapping(absentKind(i))
			return err
		}, map[string]int{"aggregated": 8, "legacy": 4}},
		{"200 resources, any group", func(m *apiutil.DynamicRESTMapper, i int) error {
			_, err := m.KindFor(schema.GroupVersionResource{Resource: fmt.Sprintf("absent%ds", i)})
			return err
		}, map[string]int{"aggregated": 4, "legacy": 2 * 53}},
	} {
		t.Run(storm.name, func(t *testing.T) {
			withFlights(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
				took := allAtOnce(200, func(i int) {
					if err := storm.lookup(m, i); !meta.IsNoMatchError(err) {
						t.Error(err)
					}
				})
				requests := server.TakeRequests()
				if most := storm.requests[path.Base(t.Name())]; len(requests) > most {
					t.Errorf("%d requests in %v, at most %d: %v", len(requests), took, most, requests)
				}
			})
		})
	}
}

// The first lookups of a program come all at once.
func TestStormOfFirstLookupsCostsFewRequests(t *testing.T) {
	withFlights(t, func(t *testing.T, server *fakeapi.Server, _ *apiutil.DynamicRESTMapper) {
		m, _ := newFlightsMapper(t, server) // which knows nothing yet
		allAtOnce(200, func(int) {
			if _, err := m.RESTMapping(typical, "v1"); err != nil {
				t.Error(err)
			}
		})
		// The first of them starts the first flight at once, the others share the second.
		if requests := server.TakeRequests(); len(requests) > 6 {
			t.Errorf("%d requests: %v", len(requests), requests)
		}
	})
}
