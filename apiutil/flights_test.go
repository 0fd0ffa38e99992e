// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"strings"
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

// mostGroups is how many groups a mapper reads at a time, beside the document.
const mostGroups = 8

// lanes lets at most one request a lane pass at a time: those of a group are a lane,
// and those for the document; and at most mostGroups groups at once.
type lanes struct {
	http.RoundTripper
	t *testing.T

	mu       sync.Mutex
	underway map[string]int
	most     int // lanes that were in use at once
}

// laneOf is the group that a request is for, or "the document".
func laneOf(path string) string {
	segments := strings.Split(path, "/")
	switch {
	case len(segments) == 2:
		return "the document"
	case segments[1] == "api":
		return ""
	default:
		return segments[2]
	}
}

func (l *lanes) RoundTrip(req *http.Request) (*http.Response, error) {
	lane := laneOf(req.URL.Path)
	l.enter(lane)
	defer l.leave(lane)
	return l.RoundTripper.RoundTrip(req)
}

func (l *lanes) enter(lane string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.underway[lane]++; l.underway[lane] != 1 {
		l.t.Errorf("%d requests at once for %q", l.underway[lane], lane)
	}
	l.most = max(l.most, len(l.underway))
	if groups := len(l.underway) - l.underway["the document"]; groups > mostGroups {
		l.t.Errorf("%d groups are read at once", groups)
	}
}

func (l *lanes) leave(lane string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.underway[lane]--; l.underway[lane] == 0 {
		delete(l.underway, lane)
	}
}

// newLanesMapper makes a mapper whose requests of one lane must not overlap.
func newLanesMapper(t *testing.T, server *fakeapi.Server) (*apiutil.DynamicRESTMapper, *lanes) {
	t.Helper()
	cfg := server.Config()
	watched := &lanes{RoundTripper: cfg.Transport, t: t, underway: map[string]int{}}
	m, err := apiutil.NewDynamicRESTMapperWithOptions(&rest.Config{Host: cfg.Host, QPS: -1}, &http.Client{Transport: watched}, apiutil.DynamicRESTMapperOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m, watched
}

// withLanes runs test in both modes, in a bubble, with a mapper whose lanes are
// watched and that knows all of a server with 50 groups.
func withLanes(t *testing.T, test func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper)) {
	eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
		synctest.Test(t, func(t *testing.T) {
			server := fakeapi.New(fakeapi.Typical(50, 1, 2)...)
			server.SetForms(forms)
			m, _ := newLanesMapper(t, server)
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
	withLanes(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
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
		if requests := server.TakeRequests(); len(requests) != 1 {
			t.Errorf("%d requests, not the one under way: %v", len(requests), requests)
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
			withLanes(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
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

// Reads of different groups run side by side, 8 at a time, and that of the document
// beside them.
func TestGroupsAtOnce(t *testing.T) {
	withLanes(t, func(t *testing.T, server *fakeapi.Server, _ *apiutil.DynamicRESTMapper) {
		m, watched := newLanesMapper(t, server)
		if _, err := m.ResourceSingularizer("pods"); err != nil {
			t.Fatal(err)
		}
		server.TakeRequests()
		took := allAtOnce(1+2*mostGroups, func(i int) {
			gk, versions := schema.GroupKind{Group: "absent.example.com", Kind: "Absent"}, []string(nil)
			if i > 0 {
				gk.Group, versions = fmt.Sprintf("g%04d.example.com", i), []string{"v1"}
			}
			if _, err := m.RESTMapping(gk, versions...); !meta.IsNoMatchError(err) {
				t.Errorf("%s: %v; want NoMatch", gk, err)
			}
		})
		if watched.most != mostGroups+1 {
			t.Errorf("%d lanes in use at once, want %d", watched.most, mostGroups+1)
		}
		if took != 2*latency {
			t.Errorf("a request for each of twice as many groups took %v, and the document's two", took)
		}
		if requests := server.TakeRequests(); len(requests) != 2+2*mostGroups {
			t.Errorf("%d requests: %v", len(requests), requests)
		}
	})
}

// The requests of one lookup that names a group follow each other.
func TestRequestsOfOneLookupAreSequential(t *testing.T) {
	withLanes(t, func(t *testing.T, server *fakeapi.Server, _ *apiutil.DynamicRESTMapper) {
		m, watched := newLanesMapper(t, server)
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
func TestSearchOfAllGroups(t *testing.T) {
	withLanes(t, func(t *testing.T, server *fakeapi.Server, _ *apiutil.DynamicRESTMapper) {
		m, watched := newLanesMapper(t, server)
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
