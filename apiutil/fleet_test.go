// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A fleetProvider does what providers of multicluster-runtime do: it makes a mapper
// for a cluster from its config, and later engages the cluster under its name, with
// a context that ends when the cluster goes.
type fleetProvider struct {
	newMapper func(*rest.Config, *http.Client) (meta.RESTMapper, error)
	engage    func(context.Context, string, meta.RESTMapper) error // nil: nobody cares
}

// add returns the mapper of a new cluster, and what removes the cluster.
func (p fleetProvider) add(t *testing.T, name string, server *fakeapi.Server) (meta.RESTMapper, context.CancelFunc) {
	t.Helper()
	m, err := p.newMapper(server.Config(), server.Client())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if p.engage != nil {
		if err := p.engage(ctx, name, m); err != nil {
			t.Fatal(err)
		}
	}
	return m, cancel
}

func fleetOf(fleet *apiutil.Fleet) fleetProvider {
	return fleetProvider{fleet.Provider(""), fleet.Engage}
}

// Without a fleet nobody calls Start of the mappers that a provider makes. So a kind that
// nobody looks up is not refreshed, whatever RefreshInterval is.
func TestFleetRefreshesItsClusters(t *testing.T) {
	opts := apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute, MaxAge: -1}
	for name, test := range map[string]struct {
		provider fleetProvider
		wanted   int // requests within ten minutes
	}{
		"nobody starts them": {fleetProvider{newMapper: apiutil.DynamicRESTMapperProvider(opts)}, 0},
		"a fleet does":       {fleetOf(apiutil.NewFleet(opts)), 20},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				for _, cluster := range []string{"a", "b"} {
					server := newServer(fakeapi.Aggregated())
					m, remove := test.provider.add(t, cluster, server)
					wantServed(t, m, fooKind)
					synctest.Wait()
					server.TakeRequests()
					time.Sleep(10 * time.Minute)
					if n := len(server.TakeRequests()); n < test.wanted || n > test.wanted*5/4 {
						t.Errorf("%s: %d requests in ten minutes, want about %d", cluster, n, test.wanted)
					}
					remove()
					synctest.Wait()
					time.Sleep(10 * time.Minute)
					wantRequests(t, server, "after "+cluster+" is gone")
				}
			})
		})
	}
}

// fleetTest is a fleet whose mappers refresh each minute.
type fleetTest struct {
	*apiutil.Fleet
	server *fakeapi.Server // of the mappers that new makes
}

func newFleetTest() *fleetTest {
	fleet := apiutil.NewFleet(apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute, MaxAge: -1})
	return &fleetTest{fleet, newServer(fakeapi.Aggregated())}
}

func (f *fleetTest) new(t *testing.T) *apiutil.DynamicRESTMapper {
	return f.through(t, f.server.Client())
}

func (f *fleetTest) through(t *testing.T, client *http.Client) *apiutil.DynamicRESTMapper {
	t.Helper()
	m, err := f.For("", f.server.Config(), client)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// join engages a cluster until leave is called, which returns when the engagement has
// ended.
func (f *fleetTest) join(t *testing.T, cluster string, m meta.RESTMapper) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	if err := f.Engage(ctx, cluster, m); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return func() {
		cancel()
		synctest.Wait()
	}
}

// refreshes is how often the server is asked for its document in ten minutes.
func (f *fleetTest) refreshes() int {
	f.server.TakeRequests()
	time.Sleep(10 * time.Minute)
	n := 0
	for _, r := range f.server.TakeRequests() {
		if r.Path == "/apis" {
			n++
		}
	}
	return n
}

// wantRunning fails the test unless n mappers refresh.
func (f *fleetTest) wantRunning(t *testing.T, when string, n int) {
	t.Helper()
	if got := f.refreshes(); got < 10*n || got > 12*n {
		t.Errorf("%s: %d refreshes in ten minutes, want about %d", when, got, 10*n)
	}
}

// wantMapper fails the test unless m is the mapper of the cluster; nil: there is none.
func (f *fleetTest) wantMapper(t *testing.T, cluster string, m *apiutil.DynamicRESTMapper) {
	t.Helper()
	if got, err := f.For(cluster, nil, nil); got != m || (err == nil) != (m != nil) {
		t.Errorf("For(%q) = %p, %v; want %p", cluster, got, err, m)
	}
	if _, ok := f.Status()[cluster]; ok != (m != nil) {
		t.Errorf("Status has %q: %t", cluster, ok)
	}
}

func TestFleetReplacesCluster(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleetTest()
		first, second := f.new(t), f.new(t)
		leaveFirst := f.join(t, "a", first)
		leaveSecond := f.join(t, "a", second)
		f.wantMapper(t, "a", second)
		f.wantRunning(t, "replaced", 1)
		leaveFirst() // as a provider may that is slow to give it up
		f.wantMapper(t, "a", second)
		f.wantRunning(t, "the first is gone", 1)
		leaveSecond()
		leaveSecond()
		f.wantMapper(t, "a", nil)
		f.wantRunning(t, "gone", 0)
	})
}

// When a kubeconfig changes, the cluster goes, and comes back at once.
func TestFleetReplacesClusterThatGoes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleetTest()
		last := f.new(t)
		first, leave := context.WithCancel(context.Background())
		if err := f.Engage(first, "a", last); err != nil {
			t.Fatal(err)
		}
		for range 200 {
			ctx, cancel := context.WithCancel(context.Background())
			m := f.new(t)
			leave() // what it sets off may come before or after what follows
			if err := f.Engage(ctx, "a", m); err != nil {
				t.Fatal(err)
			}
			last, leave = m, cancel
		}
		synctest.Wait()
		f.wantMapper(t, "a", last)
		f.wantRunning(t, "replaced many times", 1)
		leave()
		f.wantRunning(t, "gone", 0)
	})
}

// Engaging a cluster again changes nothing but its context: the latest counts.
func TestFleetEngageAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleetTest()
		m := f.new(t)
		leaveFirst := f.join(t, "a", m)
		f.server.TakeRequests()
		leaveSecond := f.join(t, "a", m)
		wantRequests(t, f.server, "engaged again")
		leaveFirst()
		f.wantMapper(t, "a", m)
		f.wantRunning(t, "the first context has ended", 1)
		leaveSecond()
		f.wantMapper(t, "a", nil)
		f.wantRunning(t, "both have ended", 0)
	})
}

// A provider of namespaces has one mapper for all of them; a coordinator that shards
// gives a cluster away, and gets it back.
func TestFleetSharesMapper(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleetTest()
		m := f.new(t)
		for range 3 {
			leaveA, leaveB := f.join(t, "a", m), f.join(t, "b", m)
			f.wantMapper(t, "a", m)
			f.wantMapper(t, "b", m)
			f.wantRunning(t, "two names", 1)
			leaveA()
			f.wantMapper(t, "a", nil)
			f.wantMapper(t, "b", m)
			f.wantRunning(t, "one name", 1)
			leaveB()
			f.wantMapper(t, "b", nil)
			f.wantRunning(t, "no name", 0)
		}
	})
}

func TestFleetEngageErrors(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleetTest()
		started := f.new(t)
		defer startMapper(t, started)()
		synctest.Wait()
		provided, err := apiutil.NewDynamicRESTMapper(f.server.Config(), f.server.Client())
		if err != nil {
			t.Fatal(err)
		}
		gone, cancel := context.WithCancelCause(context.Background())
		cancel(errors.New("the cluster is gone"))
		for name, test := range map[string]struct {
			ctx    context.Context
			mapper meta.RESTMapper
			want   string
		}{
			"no mapper":        {context.Background(), nil, "a <nil>, was not made by the fleet, set MapperProvider"},
			"a nil mapper":     {context.Background(), (*apiutil.DynamicRESTMapper)(nil), "was not made by the fleet"},
			"of another kind":  {context.Background(), meta.NewDefaultRESTMapper(nil), "a *meta.DefaultRESTMapper, was not made by the fleet"},
			"without a fleet":  {context.Background(), provided, "a *apiutil.DynamicRESTMapper, was not made by the fleet"},
			"of another fleet": {context.Background(), newFleetTest().new(t), "was not made by the fleet"},
			"started":          {context.Background(), started, "was started before, but only the fleet may start it"},
			"ended context":    {gone, f.new(t), "the cluster is gone"},
		} {
			m := f.new(t)
			leave := f.join(t, "a", m)
			err := f.Engage(test.ctx, "a", test.mapper)
			if err == nil || !strings.Contains(err.Error(), `cluster "a" does not join`) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v; want %q", name, err, test.want)
			}
			f.wantMapper(t, "a", m)
			leave()
		}
		m := f.new(t)
		defer f.join(t, "a", m)()
		if err := m.Start(context.Background()); err == nil {
			t.Error("Start is not told that the fleet has started the mapper")
		}
	})
}

func TestFleetInvalidOptions(t *testing.T) {
	server := newServer(fakeapi.Aggregated())
	fleet := apiutil.NewFleet(apiutil.DynamicRESTMapperOptions{RefreshInterval: -1})
	m, err := fleet.Provider("a")(server.Config(), server.Client())
	if m != nil || err == nil || !strings.Contains(err.Error(), "RefreshInterval") {
		t.Errorf("Provider returned %v, %v", m, err)
	}
}
