// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// What one replica may send, on the average of all, in any window of that length,
// wherever it begins. The second bounds the load; the tenth of a second proves
// that the replicas do not act in step.
var herdLimits = []herdLimit{{time.Second, 2}, {100 * time.Millisecond, 0.6}}

type herdLimit struct {
	window time.Duration
	most   float64
}

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
	"restart": func(h *herd) { h.servers[0].restart(10*time.Second, 5*time.Second) },
	// The only server crashes and is started again at once.
	"crash": func(h *herd) { h.servers[0].restart(time.Second, 500*time.Millisecond) },
	// All connections are cut, and the server is there at once.
	"cut": func(h *herd) { h.servers[0].restart(0, 0) },
	// A second server comes to serve more, and after a minute the first as well.
	"upgrade": func(h *herd) {
		for _, s := range slices.Backward(h.servers) {
			go func() {
				time.Sleep(time.Millisecond)
				upgrade(s.Server)
			}()
			s.restart(10*time.Second, 5*time.Second)
			time.Sleep(time.Minute)
		}
	},
}

func upgrade(s *fakeapi.Server) {
	serve(s, lateKind)
	s.PutVersion("example.com", fakeVersion("v1", "Foo", "Bar", "Baz"))
	serve(s, newKind)
}

// A fleet of replicas, each with an interval and watches, does not flood the server,
// whatever happens to it, and nobody is told that a kind is absent which is served
// all the time. Refused connections count as requests.
//
// hack/proof/herd runs it with 500 replicas, and draws what FRESHMAPPER_HERD_OUT says.
func TestHerd(t *testing.T) {
	replicas := 30
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
	// Requests counts those in each tenth of a second, by sort. It begins herdLead
	// before something happens.
	Requests map[string][]int
	Peaks    map[string]float64 // by window: the most in any, by replica
	Quiet    float64            // requests a second and replica before anything happens
	Lookups  int
	Wrong    int // lookups that said NoMatch
	Failed   int // lookups with any other error
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
			grace = 1 / math.Sqrt(float64(replicas)) // a few dice show more of chance
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
