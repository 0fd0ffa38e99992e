// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/apiutil/fleet"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/fakeapi/bubble"
)

// The stories in apiutil/testdata/stories/fleet.txt play what a fleet does over time.

// watched are the resources that a mapper with WatchAPIs watches.
var watched = map[string]fakeapi.Group{
	"customresourcedefinitions": clusterScoped("apiextensions.k8s.io", "CustomResourceDefinition"),
	"apiservices":               clusterScoped("apiregistration.k8s.io", "APIService"),
}

func clusterScoped(group, kind string) fakeapi.Group {
	g := serving(group, kind)
	g.Versions[0].Resources[0].Namespaced = false
	return g
}

func newServer() *fakeapi.Server {
	groups := []fakeapi.Group{widgets}
	for _, group := range watched {
		groups = append(groups, group)
	}
	return fakeapi.New(groups...)
}

// fleetTest is a fleet whose mappers refresh each minute, and a server for them.
type fleetTest struct {
	*fleet.Fleet
	server *fakeapi.Server
}

func newFleetTest() *fleetTest {
	opts := apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute, MaxAge: -1}
	return &fleetTest{fleet.New(opts), newServer()}
}

// newMapper makes a mapper without a key.
func (f *fleetTest) newMapper(t *testing.T) *apiutil.DynamicRESTMapper {
	t.Helper()
	return must(f.Provider("")(f.server.Config(), f.server.Client())).(*apiutil.DynamicRESTMapper)
}

// join engages a cluster until leave is called, which returns when the engagement has ended.
func (f *fleetTest) join(t *testing.T, cluster string, mapper meta.RESTMapper) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	if err := f.Engage(ctx, cluster, mapper); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return func() {
		cancel()
		synctest.Wait()
	}
}

// The key "" stands for no key, also if a cluster without a name has joined.
func TestNoKeyIsNoOnesKey(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := newFleetTest()
		m := f.newMapper(t)
		defer f.join(t, "", m)()
		if other := f.newMapper(t); other == m {
			t.Error("a caller without a key gets the mapper of the cluster without a name")
		}
	})
}

func TestEngageErrors(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := newFleetTest()
		m := f.newMapper(t)
		leave := f.join(t, "a", m)
		defer leave()

		ctx, cancel := context.WithCancel(context.Background())
		started := f.newMapper(t)
		stopped := make(chan error)
		go func() { stopped <- started.Start(ctx) }()
		synctest.Wait()
		defer func() {
			cancel()
			if err := <-stopped; err != nil {
				t.Error(err)
			}
		}()
		another := &fleetTest{&fleet.Fleet{}, f.server} // a literal works, too
		notOfAFleet := must(apiutil.NewDynamicRESTMapper(f.server.Config(), f.server.Client()))
		gone, cancelGone := context.WithCancelCause(context.Background())
		cancelGone(errors.New("the cluster is gone"))

		for want, err := range map[string]error{
			"a <nil>, was not made by the fleet, set MapperProvider": f.Engage(t.Context(), "a", nil),
			"a *apiutil.DynamicRESTMapper, was not made": f.Engage(
				t.Context(), "a", (*apiutil.DynamicRESTMapper)(nil),
			),
			"a *meta.DefaultRESTMapper, was not made by the fleet": f.Engage(
				t.Context(), "a", meta.NewDefaultRESTMapper(nil),
			),
			"a *apiutil.DynamicRESTMapper, was not made by the fleet":        f.Engage(t.Context(), "a", notOfAFleet),
			"DynamicRESTMapper, was not made by the fleet":                   f.Engage(t.Context(), "a", another.newMapper(t)),
			"RESTMapper was started before, but only the fleet may start it": f.Engage(t.Context(), "a", started),
			"the cluster is gone": f.Engage(gone, "a", f.newMapper(t)),
		} {
			if err == nil || !strings.Contains(err.Error(), `cluster "a" does not join`) ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("%v; want %q", err, want)
			}
		}
		if got, err := f.For("a", nil, nil); got != m || len(f.Status()) != 1 {
			t.Errorf("cluster a has %p, %v, of %d; want %p, which has joined before, alone", got, err, len(f.Status()), m)
		}
	})
}

func TestFleetStartsItsMappers(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := newFleetTest()
		m := f.newMapper(t)
		leave := f.join(t, "a", m)
		defer leave()
		if err := m.Start(context.Background()); err == nil {
			t.Error("Start of the mapper returns nil, although the fleet has started it")
		}
		if f.NeedLeaderElection() {
			t.Error("the fleet needs leader election")
		}
	})
}

// 300 clusters come and go ten times, all at once: some in the middle of their start, some with a config that replaces
// another, some back at once. Then many identities come that do not go. Nothing remains but MaxMappers of these, also
// while contexts of engagements go on: no entry, goroutine, open watch or mapper.
func TestFleetChurn(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const clusters, rounds = 300, 10
	f := fleet.New(apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute, MaxAge: -1, WatchAPIs: true})
	f.MaxMappers = 50
	server := newServer()
	var made, freed atomic.Int64
	mapperOf := func(key string) *apiutil.DynamicRESTMapper {
		transport := &ownTransport{server.Client().Transport}
		made.Add(1)
		runtime.SetFinalizer(transport, func(*ownTransport) { freed.Add(1) })
		return must(f.For(key, server.Config(), &http.Client{Transport: transport}))
	}
	engage := func(ctx context.Context, cluster string, m *apiutil.DynamicRESTMapper) {
		if err := f.Engage(ctx, cluster, m); err != nil {
			t.Error(err)
		}
	}

	long, endLong := context.WithCancel(context.Background())
	defer endLong()
	churn := func(i int) {
		cluster := fmt.Sprintf("cluster-%d", i)
		leave := func() {}
		for round := range rounds {
			m := mapperOf("")
			ctx, cancel := context.WithCancel(context.Background())
			leave()
			leave = cancel
			switch i % 3 {
			case 0:
				engage(long, cluster, m) // which the next ones replace
				engage(long, cluster, m)
				engage(ctx, cluster, mapperOf(""))
			case 1:
				engage(ctx, cluster, m)
				_, err := m.RESTMapping(widget, "v1")
				now, _ := f.For(cluster, nil, nil)
				if err != nil || now != m {
					t.Errorf("%s in round %d: %v; want it engaged, and its mapper to find a kind", cluster, round, err)
				}
			case 2:
				engage(ctx, cluster, m)
			}
		}
		leave()
	}
	var all sync.WaitGroup
	for i := range clusters {
		all.Go(func() { churn(i) })
	}
	all.Go(func() { // meanwhile somebody looks
		for range rounds {
			f.Status()
			if err := f.Healthz(nil); err != nil {
				t.Error(err)
			}
		}
	})
	all.Wait()
	wantSoon(t, "no cluster is engaged", func() bool { return len(f.Status()) == 0 })

	wantFreed := func(kept int64) {
		t.Helper()
		wantSoon(t, fmt.Sprintf("of %d mappers that were made all are freed except %d", made.Load(), kept), func() bool {
			runtime.GC()
			return freed.Load() == made.Load()-kept
		})
	}
	wantFreed(0)
	for i := range 10 * f.MaxMappers {
		if _, err := mapperOf(fmt.Sprint("identity-", i)).RESTMapping(widget, "v1"); err != nil {
			t.Error(err)
		}
	}
	wantFreed(int64(f.MaxMappers))

	for key := range f.Status() {
		f.Remove(key)
	}
	wantFreed(0)
	for resource := range watched {
		wantSoon(t, "no watch of "+resource+" is open", func() bool { return server.Watches(resource) == 0 })
	}
}

// ownTransport lives for as long as the mapper that has it. The mapper is in a cycle of pointers, so its own finalizer
// would not run.
type ownTransport struct{ http.RoundTripper }

func wantSoon(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so after a minute: %s", what)
		}
	}
}

// The page of a fleet has the status of each cluster, and the page of one.
func TestDebugHandler(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := newFleetTest()
		m := f.newMapper(t)
		must(m.RESTMapping(widget, "v1"))
		defer f.join(t, "a", m)()
		defer f.join(t, `<b> & "c"`, f.newMapper(t))()
		page := f.DebugHandler()
		wantPage(t, page, "/debug", `"a": {`, `"\u003cb\u003e \u0026 \"c\"": {`, `"kinds": 3,`)
		wantPage(t, page, "/debug?format=json", `"clusters": {`, `"a": {`, `"kinds": 3,`)
		wantPage(t, page, "/debug?cluster=a", `"status": {`, `"kinds": 3,`)

		f.server.Put(serving("example.org", "Gadget"))
		time.Sleep(2 * time.Minute)
		wantPage(t, page, "/debug?cluster=a&format=json", `"example.org/v1.Gadget"`, `"resource": "gadgets"`)

		answer := httptest.NewRecorder()
		page.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/debug?cluster=none", nil))
		if answer.Code != http.StatusNotFound {
			t.Errorf("a cluster that is not there: status %d; want 404", answer.Code)
		}
	})
}

func wantPage(t *testing.T, page http.Handler, target string, wants ...string) {
	t.Helper()
	req := httptest.NewRequest(http.MethodGet, target, nil)
	req.Header.Set("Accept", "text/html")
	answer := httptest.NewRecorder()
	page.ServeHTTP(answer, req)
	for _, want := range wants {
		if !strings.Contains(answer.Body.String(), want) {
			t.Errorf("%s: no %q in\n%s", target, want, answer.Body)
		}
	}
}
