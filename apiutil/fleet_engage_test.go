// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A cluster may be replaced, engaged again, or share its mapper. A mapper refreshes, once at a
// time, as long as it has a cluster, and a cluster stays as long as its latest context.
func TestFleetEngage(t *testing.T) {
	for name, steps := range map[string][][2]string{ // what is done, and what is there then
		"a cluster is replaced, and the first leaves late": {
			{"1: a x", "a=x, 1 running"}, {"2: a y", "a=y, 1 running"}, {"leave 1", "a=y, 1 running"}, {"leave 2", "0 running"},
		},
		"a cluster is engaged again": {
			{"1: a x", "a=x, 1 running"}, {"2: a x", "a=x, 1 running"}, {"leave 1", "a=x, 1 running"}, {"leave 2", "0 running"},
		},
		"two clusters share a mapper, which leaves and comes back": {
			{"1: a x", "a=x, 1 running"}, {"2: b x", "a=x, b=x, 1 running"}, {"leave 1", "b=x, 1 running"}, {"leave 2", "0 running"},
			{"3: a x", "a=x, 1 running"}, {"4: b x", "a=x, b=x, 1 running"}, {"leave 4", "a=x, 1 running"}, {"leave 3", "0 running"},
		},
		"each cluster has its own": {
			{"1: a x", "a=x, 1 running"}, {"2: b y", "a=x, b=y, 2 running"}, {"leave 2", "a=x, 1 running"}, {"leave 1", "0 running"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				f := newFleetTest()
				mappers := map[string]*apiutil.DynamicRESTMapper{"x": f.new(t), "y": f.new(t)}
				leave := map[string]func(){}
				for _, step := range steps {
					if number, which, ok := strings.Cut(step[0], ": "); ok {
						cluster, mapper, _ := strings.Cut(which, " ")
						leave[number] = f.join(t, cluster, mappers[mapper])
					} else {
						leave[strings.TrimPrefix(step[0], "leave ")]()
					}
					got := ""
					for _, cluster := range slices.Sorted(maps.Keys(f.Status())) {
						for mapper, m := range mappers {
							if found, _ := f.For(cluster, nil, nil); found == m {
								got += cluster + "=" + mapper + ", "
							}
						}
					}
					if got += fmt.Sprintf("%d running", f.refreshes()/10); got != step[1] {
						t.Errorf("%s: %s; want %s", step[0], got, step[1])
					}
				}
			})
		})
	}
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

// Start ends with its context, and so does everything else, also clusters that are still
// engaged. After it reconcilers that still run get mappers, which the fleet does not keep.
func TestFleetStart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleetTest()
		f.join(t, "early", f.new(t))
		ctx, cancel := context.WithCancel(context.Background())
		returned := make(chan error)
		go func() { returned <- f.Start(ctx) }()
		synctest.Wait()
		leave := f.join(t, "late", f.new(t))
		f.wantRunning(t, "started", 2)
		cancel()
		if err := <-returned; err != nil {
			t.Error(err)
		}
		f.wantRunning(t, "stopped", 0)
		f.wantMapper(t, "early", nil)
		f.wantMapper(t, "late", nil)
		leave()
		if err := f.Engage(context.Background(), "a", f.new(t)); err == nil || !strings.Contains(err.Error(), "Start of the fleet has ended") {
			t.Errorf("Engage after the end: %v", err)
		}
		if forKey(t, f.Fleet, "a", f.server) == nil || len(f.Status()) != 0 {
			t.Errorf("For after the end keeps %v", f.Status())
		}
		if f.NeedLeaderElection() {
			t.Error("Start would wait for leader election")
		}
	})
}

// A stubborn transport does not give up with the context.
type stubborn struct {
	release chan struct{}
	next    http.RoundTripper
	lists   atomic.Int64 // of CRDs, that were sent
}

func (s *stubborn) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, "/customresourcedefinitions") {
		s.lists.Add(1)
	}
	<-s.release
	return s.next.RoundTrip(req)
}

// A mapper that hangs when it should stop does not refresh twice at a time when it is engaged
// again, and holds up no other, not even one that comes under its name.
func TestFleetMapperHangsAtStop(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		fleet := apiutil.NewFleet(apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute, MaxAge: -1, WatchAPIs: true})
		f := &fleetTest{fleet, newServer(fakeapi.Aggregated())}
		hanging := &stubborn{release: make(chan struct{}), next: f.server.Client().Transport}
		m := f.through(t, &http.Client{Transport: hanging})
		begun := time.Now()
		for range 100 {
			f.join(t, "a", m)()
			f.wantMapper(t, "a", nil)
		}
		if n := hanging.lists.Load(); n != 1 {
			t.Errorf("%d watchers of CRDs at a time", n)
		}
		next := f.new(t)
		leaveNext := f.join(t, "a", next)
		if took := time.Since(begun); took > 0 {
			t.Errorf("the next cluster has waited %v", took)
		}
		f.wantMapper(t, "a", next)
		f.wantRunning(t, "beside the one that hangs", 1)
		leaveNext()
		leave := f.join(t, "a", m)
		close(hanging.release)
		synctest.Wait()
		f.wantRunning(t, "released", 1)
		leave()
		f.wantRunning(t, "gone", 0)
	})
}

// Start returns when all that the fleet has started has ended or was given up, and not before.
func TestFleetStartWaits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		fleet := apiutil.NewFleet(apiutil.DynamicRESTMapperOptions{WatchAPIs: true})
		f := &fleetTest{fleet, newServer(fakeapi.Aggregated())}
		hanging := &stubborn{release: make(chan struct{}), next: f.server.Client().Transport}
		defer close(hanging.release)
		f.join(t, "a", f.through(t, &http.Client{Transport: hanging}))
		f.join(t, "gone", f.through(t, &http.Client{Transport: hanging}))()
		ctx, cancel := context.WithCancel(context.Background())
		returned := make(chan error, 1)
		go func() { returned <- f.Start(ctx) }()
		cancel()
		time.Sleep(400 * time.Millisecond)
		select {
		case <-returned:
			t.Error("Start has returned while requests may still end")
		default:
		}
		f.wantMapper(t, "a", nil)
		time.Sleep(time.Second)
		select {
		case err := <-returned:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("Start waits for requests that cannot be cancelled")
		}
	})
}

// The check does not fail if one cluster is down, but only if all are. Those that fail do not
// slow down the others.
func TestFleetHealth(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleetTest()
		if err := f.Healthz(nil); err != nil {
			t.Errorf("without clusters: %v", err)
		}
		var servers []*fakeapi.Server
		for i := range 12 {
			f.server = newServer(fakeapi.Aggregated())
			servers = append(servers, f.server)
			defer f.join(t, fmt.Sprintf("cluster-%02d", i), f.new(t))()
		}
		for i, server := range servers {
			server.SetFault(fakeapi.All(), fakeapi.Status(http.StatusServiceUnavailable, 0))
			time.Sleep(10 * time.Minute)
			down := 0
			for _, status := range f.Status() {
				if !status.UnhealthySince.IsZero() {
					down++
				} else if age := time.Since(status.LastSuccess); age > time.Minute {
					t.Errorf("one that works was read %v ago", age)
				}
			}
			if down != i+1 {
				t.Fatalf("%d are down, by the status %d", i+1, down)
			}
			if err := f.Healthz(nil); i < 11 && err != nil {
				t.Fatalf("%d of 12 are down: %v", i+1, err)
			}
		}
		err := f.Healthz(nil)
		for _, want := range []string{`cluster "cluster-00": API discovery has failed since`, `"cluster-05"`, `"cluster-11"`, "503"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("no %q in: %v", want, err)
			}
		}
		servers[5].ClearFaults()
		time.Sleep(10 * time.Minute)
		if err := f.Healthz(nil); err != nil {
			t.Errorf("one has recovered: %v", err)
		}
	})
}

// Log lines of a mapper name its cluster, and not one that it was for and that has gone.
func TestFleetLog(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		log, logger := newTestLog()
		fleet := apiutil.NewFleet(apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute, WatchAPIs: true, Logger: logger})
		f := &fleetTest{fleet, newServer(fakeapi.Aggregated())}
		m := f.new(t)
		defer f.join(t, "a", m)()
		wantLine(t, log.containing("customresourcedefinitions"), "cannot watch for API changes", `"cluster"="a"`)
		f.join(t, "b", m)()
		f.server.SetFault(fakeapi.All(), fakeapi.Refused())
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		wantLine(t, log.containing("API discovery fails"), `"cluster"="a"`)
	})
}

// 300 clusters come and go ten times, all at once, some in the middle of their start,
// some with a config that replaces another. Then many identities come that do not go. Nothing
// remains of the clusters, and of the identities only MaxMappers: no entry, no goroutine, no
// open watch, no mapper.
func TestFleetChurn(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const clusters, rounds = 300, 10
	server := newServer(fakeapi.Aggregated())
	watched := newWatchServer(server)
	fleet := apiutil.NewFleet(apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute, WatchAPIs: true})
	fleet.MaxMappers = 50
	var made, freed atomic.Int64
	mapperOf := func(key string) *apiutil.DynamicRESTMapper {
		transport := &transportOf{watched}
		m, err := fleet.For(key, server.Config(), &http.Client{Transport: transport})
		if err != nil {
			t.Error(err)
		}
		made.Add(1)
		runtime.SetFinalizer(transport, func(*transportOf) { freed.Add(1) })
		return m
	}
	engage := func(cluster string) context.CancelFunc {
		ctx, cancel := context.WithCancel(context.Background())
		if err := fleet.Engage(ctx, cluster, mapperOf("")); err != nil {
			t.Error(err)
		}
		return cancel
	}
	var all sync.WaitGroup
	for i := range clusters {
		all.Add(1)
		go func() {
			defer all.Done()
			cluster := fmt.Sprintf("cluster-%d", i)
			for round := range rounds {
				leave := engage(cluster)
				if i%3 == 0 {
					engage(cluster) // replaces the one before, which leaves later
					defer leave()
					leave = engage(cluster)
				}
				if i%3 == 1 {
					m, err := fleet.For(cluster, nil, nil)
					if err != nil {
						t.Errorf("%s is not engaged: %v", cluster, err)
					} else if err := lookUp(m, fooKind); err != nil {
						t.Errorf("%s in round %d: %v", cluster, round, err)
					}
				}
				leave()
			}
		}()
	}
	for range 20 { // meanwhile somebody looks
		fleet.Status()
		if err := fleet.Healthz(nil); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
	wantSoon(t, "no cluster is engaged", func() bool { return len(fleet.Status()) == 0 })
	defer func() { t.Logf("%d mappers made, %d freed", made.Load(), freed.Load()) }()
	wantFreed := func(kept int64) {
		t.Helper()
		wantSoon(t, "every mapper that is gone is freed", func() bool {
			runtime.GC()
			return freed.Load() == made.Load()-kept
		})
	}
	wantFreed(0)
	for i := range 10 * fleet.MaxMappers {
		wantServed(t, mapperOf(fmt.Sprint("identity-", i)), fooKind)
	}
	wantFreed(int64(fleet.MaxMappers))
	for key := range fleet.Status() {
		fleet.Remove(key)
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
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so after 30 s: %s", what)
		}
	}
}
