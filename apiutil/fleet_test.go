// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// fleetTest is a fleet whose mappers refresh each minute.
type fleetTest struct {
	*apiutil.Fleet
	server *fakeapi.Server // of the mappers that new makes
}

func newFleetTest() *fleetTest { return newWatchingFleetTest(false) }

func newWatchingFleetTest(watching bool) *fleetTest {
	opts := apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute, MaxAge: -1, WatchAPIs: watching}
	return &fleetTest{apiutil.NewFleet(opts), newServer(fakeapi.Aggregated())}
}

func (f *fleetTest) new(t *testing.T) *apiutil.DynamicRESTMapper {
	t.Helper()
	return f.through(t, f.server.Client().Transport)
}

func (f *fleetTest) through(t *testing.T, transport http.RoundTripper) *apiutil.DynamicRESTMapper {
	t.Helper()
	m, err := f.Provider("")(f.server.Config(), &http.Client{Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return m.(*apiutil.DynamicRESTMapper)
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

// forKey returns the mapper of a key, after a lookup of a served kind.
func forKey(t *testing.T, f *apiutil.Fleet, key string, server *fakeapi.Server) *apiutil.DynamicRESTMapper {
	t.Helper()
	m, err := f.For(key, server.Config(), server.Client())
	if err != nil {
		t.Fatal(err)
	}
	wantServed(t, m, fooKind)
	return m
}

// Many that are the first of a key at once share a mapper, and what it reads.
func TestFleetForAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f, server := &apiutil.Fleet{MaxMappers: 10}, newServer(fakeapi.Aggregated()) // a literal works, too
		server.SetLatency(time.Second)                                               // so that all have asked before the first read ends
		found := make([]*apiutil.DynamicRESTMapper, 50)
		allAtOnce(len(found), func(i int) { found[i] = forKey(t, f, "a", server) })
		if n := len(slices.Compact(found)); n != 1 {
			t.Errorf("%d mappers for one key", n)
		}
		// Those that came while the first was reading may read once more.
		if requests := server.TakeRequests(); len(requests) > 4 {
			t.Errorf("50 clients of one key: want the document, which takes two requests, read twice at most, and nothing else:\n%s", textOfLines(requests))
		}
	})
}

// A key stands for a server and credentials, and nothing else is compared: a caller that
// takes it for others is told what the first may see. But its credentials go nowhere, and
// what the first is told does not change.
func TestFleetKeyOfAnotherConfig(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := apiutil.NewFleet(apiutil.DynamicRESTMapperOptions{})
		asked := map[string]bool{} // by whom, and which server
		forConfig := func(name string, server *fakeapi.Server) *apiutil.DynamicRESTMapper {
			cfg := &rest.Config{Host: "http://fake.invalid", BearerToken: name, QPS: -1}
			cfg.Transport = through(func(req *http.Request) (*http.Response, error) {
				asked[req.Header.Get("Authorization")+" at "+name] = true
				return server.Client().Transport.RoundTrip(req)
			})
			return must(f.For("a", cfg, must(rest.HTTPClientFor(cfg))))
		}
		wantAsked := func(want ...string) {
			t.Helper()
			if got := slices.Sorted(maps.Keys(asked)); !slices.Equal(got, want) {
				t.Errorf("asked by %q, want %q", got, want)
			}
		}
		server, hostile := newServer(fakeapi.Aggregated()), newServer(fakeapi.Aggregated())
		serve(hostile, newKind)
		first := forConfig("first", server)
		wantServed(t, first, fooKind)
		second := forConfig("second", hostile)
		wantAbsent(t, second, newKind)
		time.Sleep(time.Minute)
		wantServed(t, second, fooKind)
		synctest.Wait()
		wantAsked("Bearer first at first")
		f.Remove("a")
		wantServed(t, forConfig("second", hostile), newKind)
		wantAbsent(t, first, newKind)
		wantAsked("Bearer first at first", "Bearer second at second")
	})
}

func TestFleetEngageErrors(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleetTest()
		started := f.new(t)
		defer startMapper(t, started)()
		synctest.Wait()
		provided := must(apiutil.NewDynamicRESTMapper(f.server.Config(), f.server.Client()))
		gone, cancel := context.WithCancelCause(context.Background())
		cancel(errors.New("the cluster is gone"))
		m := f.new(t)
		defer f.join(t, "a", m)()
		for want, err := range map[string]error{
			"a <nil>, was not made by the fleet, set MapperProvider":         f.Engage(t.Context(), "a", nil),
			"a *apiutil.DynamicRESTMapper, was not made":                     f.Engage(t.Context(), "a", (*apiutil.DynamicRESTMapper)(nil)),
			"a *meta.DefaultRESTMapper, was not made by the fleet":           f.Engage(t.Context(), "a", meta.NewDefaultRESTMapper(nil)),
			"a *apiutil.DynamicRESTMapper, was not made by the fleet":        f.Engage(t.Context(), "a", provided),
			"DynamicRESTMapper, was not made by the fleet":                   f.Engage(t.Context(), "a", newFleetTest().new(t)),
			"RESTMapper was started before, but only the fleet may start it": f.Engage(t.Context(), "a", started),
			"the cluster is gone": f.Engage(gone, "a", f.new(t)),
		} {
			if err == nil || !strings.Contains(err.Error(), `cluster "a" does not join`) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v; want %q", err, want)
			}
		}
		if got, err := f.For("a", nil, nil); got != m || len(f.Status()) != 1 {
			t.Errorf("cluster a has %p, %v, of %d; want %p, which has joined before, alone", got, err, len(f.Status()), m)
		}
		if err := m.Start(context.Background()); err == nil {
			t.Error("Start is not told that the fleet has started the mapper")
		}
		if f.NeedLeaderElection() {
			t.Error("the fleet's Start would wait for leader election")
		}
	})
}

// The check does not fail if one cluster is down, but only if all are. Those that fail do not
// slow down the others.
func TestFleetHealth(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleetTest()
		var servers []*fakeapi.Server
		for i := range 4 {
			f.server = newServer(fakeapi.Aggregated())
			servers = append(servers, f.server)
			defer f.join(t, fmt.Sprint("cluster-", i), f.new(t))()
		}
		for down := range servers {
			if err := f.Healthz(nil); err != nil {
				t.Errorf("%d of %d are down: %v; want no error until all are", down, len(servers), err)
			}
			servers[down].SetFault(fakeapi.All(), fakeapi.Status(http.StatusServiceUnavailable, 0))
			time.Sleep(10 * time.Minute)
			for i := range servers {
				status := f.Status()[fmt.Sprint("cluster-", i)]
				if status.UnhealthySince.IsZero() != (i > down) || i > down && time.Since(status.LastSuccess) > time.Minute {
					t.Errorf("cluster-%d, with those up to %d down: %+v", i, down, status)
				}
			}
		}
		text := fmt.Sprint(f.Healthz(nil))
		for _, want := range []string{`cluster "cluster-0": API discovery has failed since`, `"cluster-3"`, "503"} {
			if !strings.Contains(text, want) {
				t.Errorf("all are down: no %q in: %s", want, text)
			}
		}
		servers[2].ClearFaults()
		time.Sleep(10 * time.Minute)
		if err := f.Healthz(nil); err != nil || newFleetTest().Healthz(nil) != nil {
			t.Errorf("%v; want no error: one has recovered, and another fleet has none", err)
		}
	})
}

// 300 clusters come and go ten times, all at once, some in the middle of their start,
// some with a config that replaces another. Then many identities come that do not go. Nothing
// remains of the clusters, and of the identities only MaxMappers: no entry, no goroutine, no
// open watch, no mapper.
func TestFleetChurn(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const clusters, rounds = 300, 10
	f := newWatchingFleetTest(true)
	f.MaxMappers = 50
	watched := newWatchServer(f.server)
	var made, freed atomic.Int64
	mapperOf := func(key string) *apiutil.DynamicRESTMapper {
		transport := &transportOf{watched}
		made.Add(1)
		runtime.SetFinalizer(transport, func(*transportOf) { freed.Add(1) })
		return must(f.For(key, f.server.Config(), &http.Client{Transport: transport}))
	}
	engage := func(cluster string) context.CancelFunc {
		ctx, cancel := context.WithCancel(context.Background())
		if err := f.Engage(ctx, cluster, mapperOf("")); err != nil {
			t.Error(err)
		}
		return cancel
	}
	allAtOnce(clusters+1, func(i int) {
		cluster := fmt.Sprintf("cluster-%d", i)
		for round := range rounds {
			if i == clusters { // meanwhile somebody looks
				f.Status()
				if err := f.Healthz(nil); err != nil {
					t.Error(err)
				}
				continue
			}
			leave := engage(cluster)
			if i%3 == 0 {
				engage(cluster) // replaces the one before, which leaves later
				defer leave()
				leave = engage(cluster)
			}
			if i%3 == 1 {
				if m, err := f.For(cluster, nil, nil); err != nil || lookUp(m, fooKind) != nil {
					t.Errorf("%s in round %d: %v; want it engaged, and its mapper to find a kind", cluster, round, err)
				}
			}
			leave()
		}
	})
	wantSoon(t, "no cluster is engaged", func() bool { return len(f.Status()) == 0 })
	wantFreed := func(kept int64) {
		t.Helper()
		wantSoon(t, fmt.Sprintf("of %d mappers that were made all are freed but %d", made.Load(), kept), func() bool {
			runtime.GC()
			return freed.Load() == made.Load()-kept
		})
	}
	wantFreed(0)
	for i := range 10 * f.MaxMappers {
		wantServed(t, mapperOf(fmt.Sprint("identity-", i)), fooKind)
	}
	wantFreed(int64(f.MaxMappers))
	for key := range f.Status() {
		f.Remove(key)
	}
	wantFreed(0)
	for resource, list := range watched.lists {
		wantSoon(t, "no watch of "+resource+" is open", func() bool { return list.watches() == 0 })
	}
}

// A transportOf lives for as long as the mapper that has it, which is in a cycle of
// pointers: its own finalizer would not run.
type transportOf struct{ http.RoundTripper }

func wantSoon(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so after a minute: %s", what)
		}
	}
}

// A fleetStage is a fleet in a story, with its mappers and engagements by name.
type fleetStage struct {
	*fleetTest
	mappers map[string]*apiutil.DynamicRESTMapper
	leave   map[string]func()
	stop    func() error

	mu      sync.Mutex
	unheard []string // what has been sent through a transport that is deaf, until hear is called
	hear    context.CancelFunc
	heard   context.Context
}

// deaf is a transport that does not give up with the context of a request.
func (f *fleetStage) deaf(req *http.Request) (*http.Response, error) {
	f.mu.Lock()
	f.unheard = append(f.unheard, req.URL.Path)
	f.mu.Unlock()
	<-f.heard.Done()
	return f.server.Client().Transport.RoundTrip(req)
}

// inFleet does the commands about fleets. The key "" is written as "-".
func (s *storyStage) inFleet(command string, args []string) (told string, err error) {
	f, key := s.fleet, ""
	if len(args) > 0 {
		key = strings.Trim(args[0], "-")
	}
	switch command {
	case "fleet":
		s.fleet = &fleetStage{
			fleetTest: &fleetTest{apiutil.NewFleet(s.options), s.server}, mappers: map[string]*apiutil.DynamicRESTMapper{}, leave: map[string]func(){},
		}
		s.fleet.heard, s.fleet.hear = context.WithCancel(context.Background())
		for _, arg := range args {
			switch name, value, _ := strings.Cut(arg, "="); name {
			case "IdleTimeout":
				s.fleet.IdleTimeout, err = time.ParseDuration(value)
			case "MaxMappers":
				s.fleet.MaxMappers, err = strconv.Atoi(value)
			}
		}
	case "for":
		m := forKey(s.t, f.Fleet, key, f.server)
		known := m == f.mappers[key]
		f.mappers[key] = m
		return map[bool]string{true: "known", false: "new"}[known], nil
	case "use-of":
		_, err = f.mappers[key].RESTMapping(fooKind.GroupKind(), fooKind.Version)
	case "engage":
		m := f.mappers[args[2]]
		if m == nil && args[2] == "deaf" {
			m = f.through(s.t, through(f.deaf))
		} else if m == nil {
			m = f.new(s.t)
		}
		f.mappers[args[2]] = m
		ctx, cancel := context.WithCancel(context.Background())
		f.leave[args[0]] = cancel
		if f.Engage(ctx, strings.Trim(args[1], "-"), m) != nil {
			return "failed", nil
		}
	case "leave":
		f.leave[args[0]]()
	case "expel":
		f.Remove(key)
	case "mapper":
		m, _ := f.For(key, nil, nil)
		for name, known := range f.mappers {
			if known == m {
				return name, nil
			}
		}
	case "keys", "running":
		told = strings.Join(slices.Sorted(maps.Keys(f.Status())), ", ")
		if told = cmp.Or(told, map[bool]string{true: "none", false: "-"}[len(f.Status()) == 0]); command == "running" {
			told += fmt.Sprintf("; %d running", f.refreshes()/10)
		}
	case "start-fleet":
		ctx, cancel := context.WithCancel(context.Background())
		returned := make(chan error)
		go func() { returned <- f.Start(ctx) }()
		f.stop = func() error { cancel(); return <-returned }
	case "stop-fleet":
		err = f.stop()
	case "unheard":
		told = strings.Join(slices.Sorted(slices.Values(f.unheard)), "; ")
	case "hear":
		f.hear()
	case "fleet-reset-on-no-match":
		told = map[bool]string{true: "reset", false: "not reset"}[f.ResetOnNoMatch(s.err)]
	}
	synctest.Wait()
	return told, err
}
