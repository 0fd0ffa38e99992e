// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// What one replica may send, on the average of all, in any window of that length,
// wherever it begins. The second bounds the load; the tenth of a second proves
// that the replicas do not act in step.
var herdLimits = []struct {
	window time.Duration
	most   float64
}{{time.Second, 2}, {100 * time.Millisecond, 0.6}}

// herdScenarios is what happens to the servers; the replicas have run for some time.
var herdScenarios = map[string]func(h *herd){
	// 200 CustomResourceDefinitions in 10 seconds, each of which is served 80 ms after
	// its first event.
	"burst": func(h *herd) {
		for n := range 200 {
			h.installCRD(n)
			time.Sleep(50 * time.Millisecond)
		}
	},
	// The only server goes away with all its connections, is back after 10 seconds,
	// and knows its custom resources after 5 more.
	"restart": func(h *herd) { h.restart(0, 10*time.Second, 5*time.Second) },
	// The only server crashes and is started again at once.
	"crash": func(h *herd) { h.restart(0, time.Second, 500*time.Millisecond) },
	// All connections are cut, and the server is there at once.
	"cut": func(h *herd) { h.restart(0, 0, 0) },
	// A second server comes to serve more, and after a minute the first as well.
	"upgrade": func(h *herd) {
		for i, s := range slices.Backward(h.servers) {
			time.AfterFunc(time.Millisecond, func() {
				serve(s.Server, lateKind)
				s.PutVersion("example.com", fakeVersion("v1", "Foo", "Bar", "Baz"))
				serve(s.Server, newKind)
			})
			h.restart(i, 10*time.Second, 5*time.Second)
			time.Sleep(time.Minute)
		}
	},
}

// A fleet of replicas, each with an interval and watches, does not flood the server,
// whatever happens to it, and nobody is told that a kind is absent which is served
// all the time. Refused connections count as requests.
//
// hack/proof runs it with 500 replicas, and shows what is in FRESHMAPPER_HERD_OUT.
func TestHerd(t *testing.T) {
	replicas := 60
	if n, err := strconv.Atoi(os.Getenv("FRESHMAPPER_HERD")); err == nil {
		replicas = n
	}
	results := map[string]herdResult{}
	for name, happen := range herdScenarios {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				h := newHerd(t, replicas, map[bool]int{false: 1, true: 2}[name == "upgrade"])
				results[name] = h.run(happen)
				results[name].check(t, replicas)
			})
		})
	}
	if file := os.Getenv("FRESHMAPPER_HERD_OUT"); file != "" {
		data, err := json.Marshal(map[string]any{"replicas": replicas, "scenarios": results})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A herdResult is what the servers and the replicas saw.
type herdResult struct {
	Peaks   map[string]float64 // by window: the most in any, by replica
	Quiet   float64            // requests a second and replica before anything happens
	Lookups int
	Wrong   int // lookups that said NoMatch
	Failed  int // lookups with any other error
	// Converged is after how many seconds all replicas knew all that was served,
	// counted from when the servers were at rest; -1 if they never did.
	Converged float64
}

func (r herdResult) check(t *testing.T, replicas int) {
	t.Helper()
	for _, limit := range herdLimits {
		peak := r.Peaks[limit.window.String()]
		t.Logf("at most %.3f requests a replica in %v", peak, limit.window)
		grace := 0.0
		if replicas < 200 {
			grace = 3 / math.Sqrt(float64(replicas)) // a few dice show more of chance: of 180 runs of 60 the worst had 0.2
		}
		if peak > limit.most+grace {
			t.Errorf("%.3f requests a replica in %v; want at most %v", peak, limit.window, limit.most)
		}
	}
	t.Logf("%d lookups, %.3f requests a second and replica before, converged after %.1f s", r.Lookups, r.Quiet, r.Converged)
	if r.Wrong > 0 || r.Failed > 0 {
		t.Errorf("of %d lookups of what is served %d said NoMatch and %d failed", r.Lookups, r.Wrong, r.Failed)
	}
	if r.Converged < 0 {
		t.Error("not all replicas know what is served")
	}
	if r.Quiet > 0.2 {
		t.Errorf("%.3f requests a second and replica while nothing happens", r.Quiet)
	}
}

const (
	herdInterval = 30 * time.Second
	herdSpread   = herdInterval      // in which the replicas start
	herdWarm     = 2 * time.Minute   // until something happens
	herdLead     = 20 * time.Second  // of that counts
	herdAfter    = 150 * time.Second // is looked at once all is done
	herdTakes    = 5 * time.Millisecond
)

// A herd is many replicas of an operator on one API server, or on several behind
// a balancer that sends each request to the next of those that listen.
type herd struct {
	t        *testing.T
	servers  []*herdServer
	watched  *watchServer // of all servers: they have one etcd
	replicas []*apiutil.DynamicRESTMapper

	mu       sync.Mutex // guards what follows, and the state of the servers
	turn     int
	requests []time.Time // refused ones, too

	lookups, wrong, failed atomic.Int64
}

// A herdServer is an API server that may be down.
type herdServer struct {
	*fakeapi.Server
	down   bool
	living context.Context // of its connections
	kill   context.CancelFunc
}

func newHerd(t *testing.T, replicas, servers int) *herd {
	h := &herd{t: t}
	for range servers {
		s := &herdServer{Server: newServer(fakeapi.Aggregated())}
		s.SetLatency(herdTakes)
		s.living, s.kill = context.WithCancel(context.Background())
		h.servers = append(h.servers, s)
	}
	h.watched = newWatchServer(h.servers[0].Server)
	for range replicas {
		h.replicas = append(h.replicas, newMapperThrough(t, h.servers[0].Server, through(h.roundTrip), apiutil.DynamicRESTMapperOptions{
			RefreshInterval: herdInterval, WatchAPIs: true,
		}))
	}
	return h
}

// roundTrip is the way of every request of every replica.
func (h *herd) roundTrip(req *http.Request) (*http.Response, error) {
	s, living := h.next()
	if s == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	ctx, cancel := context.WithCancel(req.Context())
	context.AfterFunc(living, cancel)
	req = req.WithContext(ctx)
	if h.watched.lists[req.URL.Path] == nil {
		return s.Client().Transport.RoundTrip(req)
	}
	time.Sleep(herdTakes)
	return h.watched.RoundTrip(req)
}

// next counts a request and returns the server whose turn it is; nil if none listens.
func (h *herd) next() (s *herdServer, living context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests = append(h.requests, time.Now())
	for range h.servers {
		h.turn++
		if s := h.servers[h.turn%len(h.servers)]; !s.down {
			return s, s.living
		}
	}
	return nil, nil
}

// restart cuts all connections of a server. It is down for a while, and boots for another.
func (h *herd) restart(i int, down, booting time.Duration) {
	set := func(down bool) (kill context.CancelFunc) {
		h.mu.Lock()
		defer h.mu.Unlock()
		s := h.servers[i]
		s.down, kill = down, s.kill
		s.living, s.kill = context.WithCancel(context.Background())
		return kill
	}
	set(down > 0)()
	time.Sleep(down)
	if booting > 0 {
		defer h.servers[i].Boot(fakeapi.Booting{Unknown: []string{"example.com", "other.example.com", "new.example.com"}})()
	}
	set(false)
	time.Sleep(booting)
}

// installCRD makes the server serve a kind a moment after the event of its CRD. A second
// event comes with that.
func (h *herd) installCRD(n int) {
	group := fmt.Sprintf("crd%03d.example.com", n)
	list := h.watched.lists[crdsPath]
	list.put("things." + group)
	time.AfterFunc(80*time.Millisecond, func() {
		for _, s := range h.servers {
			serve(s.Server, schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Thing"})
		}
		list.put("things." + group)
	})
}

// run lets the replicas run, lets something happen, and says what was seen.
func (h *herd) run(happen func(*herd)) herdResult {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, m := range h.replicas {
		running.Go(func() {
			time.Sleep(rand.N(herdSpread))
			var parts sync.WaitGroup
			parts.Go(func() { _ = m.Start(ctx) })
			parts.Go(func() { h.use(ctx, m) })
			parts.Wait()
		})
	}
	time.Sleep(herdWarm)
	begin := time.Now()
	happen(h)
	converged := h.converge()
	time.Sleep(time.Until(begin.Add(herdAfter)))
	cancel()
	running.Wait()

	result := h.count(begin)
	result.Converged = converged
	return result
}

// use looks up, again and again, what is served by all servers at all times. A
// version that is missing at first makes the group one that was read live.
func (h *herd) use(ctx context.Context, m *apiutil.DynamicRESTMapper) {
	_ = lookUp(m, lateKind)
	for ctx.Err() == nil {
		_, err := m.RESTMapping(barKind.GroupKind())
		for _, err := range []error{err, lookUp(m, fooKind), lookUp(m, otherKind)} {
			h.lookups.Add(1)
			switch {
			case meta.IsNoMatchError(err):
				h.wrong.Add(1)
			case err != nil:
				h.failed.Add(1)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(200*time.Millisecond + rand.N(100*time.Millisecond)):
		}
	}
}

// converge waits until every replica knows as many groups as the servers have.
func (h *herd) converge() (seconds float64) {
	time.Sleep(100 * time.Millisecond) // the last CRD
	begin, reference := time.Now(), newMapper(h.t, h.servers[0].Server, apiutil.DynamicRESTMapperOptions{})
	readAll(h.t, reference)
	want := reference.Status()
	for time.Since(begin) < 2*time.Minute {
		if !slices.ContainsFunc(h.replicas, func(m *apiutil.DynamicRESTMapper) bool {
			got := m.Status()
			return got.Groups != want.Groups || got.Kinds != want.Kinds
		}) {
			return time.Since(begin).Seconds()
		}
		time.Sleep(100 * time.Millisecond)
	}
	return -1
}

// count counts the requests by when they came.
func (h *herd) count(begin time.Time) herdResult {
	h.mu.Lock()
	defer h.mu.Unlock()
	from := begin.Add(-herdLead)
	r := herdResult{
		Peaks: map[string]float64{}, Lookups: int(h.lookups.Load()), Wrong: int(h.wrong.Load()), Failed: int(h.failed.Load()),
	}
	times := slices.DeleteFunc(h.requests, func(at time.Time) bool {
		return at.Before(from) || !at.Before(from.Add(herdLead+herdAfter))
	})
	quiet, _ := slices.BinarySearchFunc(times, begin, time.Time.Compare)
	r.Quiet = float64(quiet) / float64(len(h.replicas)) / herdLead.Seconds()
	for _, limit := range herdLimits {
		r.Peaks[limit.window.String()] = float64(most(times, limit.window)) / float64(len(h.replicas))
	}
	return r
}

// most returns how many times lie in a window at most, its end not included.
func most(times []time.Time, window time.Duration) int {
	found, first := 0, 0
	for last, at := range times {
		for at.Sub(times[first]) >= window {
			first++
		}
		found = max(found, last-first+1)
	}
	return found
}
