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
