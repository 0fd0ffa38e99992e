// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
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

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/apiutil/fleet"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// fleetTest is a fleet, and a server for its mappers.
type fleetTest struct {
	*fleet.Fleet
	server *fakeapi.Server
}

// newFleetTest makes a fleet whose mappers refresh each minute.
func newFleetTest() *fleetTest {
	return &fleetTest{fleet.New(apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute, MaxAge: -1}), newServer(fakeapi.Aggregated())}
}

func (f *fleetTest) new(t *testing.T) *apiutil.DynamicRESTMapper {
	t.Helper()
	return must(f.Provider("")(f.server.Config(), f.server.Client())).(*apiutil.DynamicRESTMapper)
}

// join engages a cluster until leave is called, which returns when the engagement has ended.
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

func TestFleetEngageErrors(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleetTest()
		started, m := f.new(t), f.new(t)
		defer startMapper(t, started)()
		synctest.Wait()
		another := &fleetTest{&fleet.Fleet{}, f.server} // a literal works, too
		gone, cancel := context.WithCancelCause(context.Background())
		cancel(errors.New("the cluster is gone"))
		defer f.join(t, "a", m)()
		for want, err := range map[string]error{
			"a <nil>, was not made by the fleet, set MapperProvider":         f.Engage(t.Context(), "a", nil),
			"a *apiutil.DynamicRESTMapper, was not made":                     f.Engage(t.Context(), "a", (*apiutil.DynamicRESTMapper)(nil)),
			"a *meta.DefaultRESTMapper, was not made by the fleet":           f.Engage(t.Context(), "a", meta.NewDefaultRESTMapper(nil)),
			"a *apiutil.DynamicRESTMapper, was not made by the fleet":        f.Engage(t.Context(), "a", newMapper(t, f.server, apiutil.DynamicRESTMapperOptions{})),
			"DynamicRESTMapper, was not made by the fleet":                   f.Engage(t.Context(), "a", another.new(t)),
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
		if m.Start(context.Background()) == nil || f.NeedLeaderElection() {
			t.Error("want an error of Start, because the fleet has started the mapper, and no leader election for the fleet")
		}
	})
}

// 300 clusters come and go ten times, all at once: some in the middle of their start, some with a config
// that replaces another, some back at once. Then many identities come that do not go. Nothing remains but
// MaxMappers of these, also while contexts of engagements go on: no entry, goroutine, open watch or mapper.
func TestFleetChurn(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const clusters, rounds = 300, 10
	f := fleet.New(apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute, MaxAge: -1, WatchAPIs: true})
	f.MaxMappers = 50
	server := newServer(fakeapi.Aggregated())
	watched := newWatchServer(server)
	var made, freed atomic.Int64
	mapperOf := func(key string) *apiutil.DynamicRESTMapper {
		transport := &transportOf{watched}
		made.Add(1)
		runtime.SetFinalizer(transport, func(*transportOf) { freed.Add(1) })
		return must(f.For(key, server.Config(), &http.Client{Transport: transport}))
	}
	engage := func(ctx context.Context, cluster string, m *apiutil.DynamicRESTMapper) {
		if err := f.Engage(ctx, cluster, m); err != nil {
			t.Error(err)
		}
	}
	long, endLong := context.WithCancel(context.Background())
	defer endLong()
	allAtOnce(clusters+1, func(i int) {
		cluster, leave := fmt.Sprintf("cluster-%d", i), func() {}
		for round := range rounds {
			if i == clusters { // meanwhile somebody looks
				f.Status()
				if err := f.Healthz(nil); err != nil {
					t.Error(err)
				}
				continue
			}
			m := mapperOf("")
			ctx, cancel := context.WithCancel(context.Background())
			leave()
			if leave = cancel; i%3 == 0 {
				engage(long, cluster, m) // which the next ones replace
				engage(long, cluster, m)
				engage(ctx, cluster, mapperOf(""))
				continue
			}
			engage(ctx, cluster, m)
			if i%3 == 1 {
				err := lookUp(m, fooKind)
				if now, _ := f.For(cluster, nil, nil); err != nil || now != m {
					t.Errorf("%s in round %d: %v; want it engaged, and its mapper to find a kind", cluster, round, err)
				}
			}
		}
		leave()
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

	mu      sync.Mutex // guards mappers, too
	unheard []string   // what has been sent through a transport that is deaf, until hear is called
	hear    context.CancelFunc
	heard   context.Context
}

func (s *storyStage) newFleet(args []string) (err error) {
	s.fleet = &fleetStage{
		fleetTest: &fleetTest{fleet.New(s.options), s.server}, mappers: map[string]*apiutil.DynamicRESTMapper{}, leave: map[string]func(){},
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
	return err
}

// deaf is a transport that does not give up with the context of a request.
func (f *fleetStage) deaf(req *http.Request) (*http.Response, error) {
	f.mu.Lock()
	f.unheard = append(f.unheard, req.URL.Path)
	f.mu.Unlock()
	<-f.heard.Done()
	return f.server.Client().Transport.RoundTrip(req)
}

// forKey is For, and reports whether the mapper is the one that the key had. It must find a kind.
func (f *fleetStage) forKey(t *testing.T, key string) string {
	f.mu.Lock()
	m := must(f.For(key, f.server.Config(), f.server.Client()))
	known := m == f.mappers[key]
	f.mappers[key] = m
	f.mu.Unlock()
	wantServed(t, m, fooKind)
	return map[bool]string{true: "known", false: "new"}[known]
}

// inFleet does the commands about fleets. The key "" is written as "-".
func (s *storyStage) inFleet(command string, args []string) (told string, err error) {
	f, key := s.fleet, strings.Trim(strings.Join(args, " "), "-")
	switch command {
	case "use-of":
		err = lookUp(f.mappers[key], fooKind)
	case "engage":
		m := f.mappers[args[2]]
		if m == nil && args[2] == "deaf" {
			m = must(f.For("", f.server.Config(), &http.Client{Transport: through(f.deaf)}))
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
		f.leave[key]()
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
			f.server.TakeRequests()
			time.Sleep(10 * time.Minute)
			told += fmt.Sprintf("; %d running", requestsByPath(f.server)["/apis"]/10)
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
	case "fleet-health":
		var failed []string // without since when, which chance has a part in
		for line := range strings.Lines(answered("fine", f.Healthz(nil))) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " since")
			failed = append(failed, line)
		}
		told = strings.Join(failed, "; ")
	case "another-server":
		s.server = newServer(s.forms)
		f.server = s.server
	case "fleet-reset-on-no-match":
		told = map[bool]string{true: "reset", false: "not reset"}[f.ResetOnNoMatch(s.err)]
	}
	return told, err
}

// Replicas of an operator, each with an interval and watches, send their server at most 2 requests
// each, on the average, in any second, whatever happens to it; and at most 0.6 in any tenth of one,
// because they do not act in step. Refused ones count. Nobody is told that a kind is absent which
// is served all the time. hack/proof runs it with FRESHMAPPER_HERD=500 replicas.
func TestHerd(t *testing.T) {
	replicas, chance := 50, 1.0 // which few replicas show more of; those that act in step exceed it at once
	if n, err := strconv.Atoi(os.Getenv("FRESHMAPPER_HERD")); err == nil {
		replicas, chance = n, map[bool]float64{true: 1}[n < 200]
	}
	for name, happen := range map[string]func(s *herdServer){
		"200 CustomResourceDefinitions in 10 s": func(s *herdServer) {
			for n := range 200 {
				s.lists[crdsPath].happen("put", nil)
				time.AfterFunc(80*time.Millisecond, func() {
					s.server.PutVersion(fmt.Sprintf("crd%03d.example.com", n), fakeVersion("v1", "Thing"))
					s.lists[crdsPath].happen("put", nil)
				})
				time.Sleep(50 * time.Millisecond)
			}
		},
		"the server is down for 10 s, boots for 5 s, and serves more": func(s *herdServer) {
			serve(s.server, lateKind)
			serve(s.server, newKind)
			s.restart(10*time.Second, 5*time.Second)
		},
		"the server is down for 1 s, and boots for 0.5 s": func(s *herdServer) { s.restart(time.Second, 500*time.Millisecond) },
		"all connections are cut":                         func(s *herdServer) { s.restart(0, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := &herdServer{server: newServer(fakeapi.Aggregated())}
				s.watchServer = newWatchServer(s.server)
				s.server.SetLatency(5 * time.Millisecond)
				ctx, cancel := context.WithCancel(context.Background())
				var running sync.WaitGroup
				for range replicas {
					m := newMapperThrough(t, s.server, s, apiutil.DynamicRESTMapperOptions{RefreshInterval: 30 * time.Second, WatchAPIs: true})
					running.Go(func() {
						time.Sleep(rand.N(30 * time.Second))
						running.Go(func() { _ = m.Start(ctx) })
						s.use(ctx, m)
					})
				}
				time.Sleep(2 * time.Minute)
				s.mu.Lock()
				s.requests = nil
				s.mu.Unlock()
				happen(s)
				time.Sleep(2 * time.Minute)
				cancel()
				running.Wait()
				for window, limit := range map[time.Duration]float64{time.Second: 2, 100 * time.Millisecond: 0.6} {
					peak := float64(most(s.requests, window)) / float64(replicas)
					t.Logf("at most %.3f requests a replica in %v", peak, window)
					if peak > limit+chance {
						t.Errorf("in one window of %v each of %d replicas has sent %.3f requests, on the average; want at most %.3f, so that they do not flood the server",
							window, replicas, peak, limit+chance)
					}
				}
				t.Logf("%d lookups, of which %d said NoMatch and %d failed", s.lookups.Load(), s.wrong.Load(), s.failed.Load())
				if s.wrong.Load() > 0 || s.failed.Load() > 0 {
					t.Errorf("of %d lookups of what is served all the time %d said NoMatch and %d failed", s.lookups.Load(), s.wrong.Load(), s.failed.Load())
				}
			})
		})
	}
}

// A herdServer is the server of a herd of replicas.
type herdServer struct {
	*watchServer
	server *fakeapi.Server

	mu       sync.Mutex
	requests []time.Time

	lookups, wrong, failed atomic.Int64
}

func (s *herdServer) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.requests = append(s.requests, time.Now())
	s.mu.Unlock()
	return s.watchServer.RoundTrip(req)
}

// restart ends all watches. The server is down for a while, and boots for another.
func (s *herdServer) restart(down, booting time.Duration) {
	s.server.SetFault(fakeapi.All(), fakeapi.Refused())
	for _, list := range s.lists {
		list.happen("fail", []string{"refuse"})
	}
	time.Sleep(down)
	ready := s.server.Boot(fakeapi.Booting{Unknown: []string{"example.com", "other.example.com", "new.example.com"}})
	s.server.ClearFaults()
	for _, list := range s.lists {
		list.happen("mend", nil)
	}
	time.Sleep(booting)
	ready()
}

// use looks up, again and again, what is served all the time.
func (s *herdServer) use(ctx context.Context, m *apiutil.DynamicRESTMapper) {
	_ = lookUp(m, lateKind) // which is not served at first, so that its group is read live
	for ctx.Err() == nil {
		_, err := m.RESTMapping(barKind.GroupKind())
		for _, err := range []error{err, lookUp(m, fooKind), lookUp(m, otherKind)} {
			s.lookups.Add(1)
			if meta.IsNoMatchError(err) {
				s.wrong.Add(1)
			} else if err != nil {
				s.failed.Add(1)
			}
		}
		time.Sleep(200*time.Millisecond + rand.N(100*time.Millisecond))
	}
}

// most returns how many times lie in a window at most, its end not included.
func most(times []time.Time, window time.Duration) int {
	found := 0
	for i, at := range times {
		end, _ := slices.BinarySearchFunc(times, at.Add(window), time.Time.Compare)
		found = max(found, end-i)
	}
	return found
}
