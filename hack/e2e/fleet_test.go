// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// TestFleet runs an operator of testdata/consumers, whose clusters come from the
// kubeconfig provider of multicluster-runtime, on a hosting cluster and two others:
// three API servers. It is built with the fork, and again with controller-runtime as
// it is and the fleet from this repository's own module.
func TestFleet(t *testing.T) {
	t.Parallel() // most of the time it waits for connections to end
	log.SetLogger(logr.Discard())
	_, fork := buildBoth(t.Context(), t, "fleet")
	provider := buildProvider(t.Context(), t, "fleet", "fleet.go")
	host, _ := startServer(t.Context(), t)
	a, _ := startServer(t.Context(), t)
	b, _ := startServer(t.Context(), t)
	for way, binary := range map[string]string{"fork": fork, "provider": provider} {
		t.Run(way, func(t *testing.T) {
			f := startFleet(t, host, way, binary)
			f.lateKind(a, b)
			f.otherKubeconfig(b)
			f.health1of2(a, b)
			f.comeAndGo(b)
		})
	}
}

// lateKind has a cluster engaged before it serves the kind, in a group that it does
// serve; and the kind goes and comes back.
func (f *fleetRun) lateKind(a, b *Server) {
	tunnel := f.kind
	tunnel.Kind = "Tunnel"
	must(f.t, b.Install(f.ctx, tunnel), b.AwaitServed(f.ctx, tunnel))
	f.install(a)
	f.join("a", newGateway(f.t, a))
	f.join("b", newGateway(f.t, b))
	f.soon("both clusters are engaged", f.engaged("a", "b"))
	f.marks(a, "one", "a")
	f.install(b)
	f.t.Logf("%s: the first Gadget of b is marked %v after the CRD is served", f.way, f.marks(b, "one", "b"))
	must(f.t, b.Uninstall(f.ctx, f.kind), b.AwaitGone(f.ctx, f.kind))
	f.install(b)
	f.t.Logf("%s: and %v after it is back", f.way, f.marks(b, "two", "b"))
}

// otherKubeconfig changes the address of b. Afterwards nobody uses the old address.
func (f *fleetRun) otherKubeconfig(b *Server) {
	f.leave("b")
	f.soon("b is gone", f.engaged("a"))
	old := newGateway(f.t, b)
	f.join("b", old)
	f.marks(b, "three", "b")
	next := newGateway(f.t, b)
	f.join("b", next)
	f.soon("requests by the new way", func() error {
		if len(next.Calls(time.Time{}, Call.isDiscovery)) == 0 {
			return errors.New("none")
		}
		return nil
	})
	f.soon("no request by the old way is open", closed(old))
	since := time.Now()
	f.marks(b, "four", "b")
	time.Sleep(5 * time.Second) // two intervals
	if calls := old.Calls(since, func(Call) bool { return true }); len(calls) > 0 || old.Open() > 0 {
		f.t.Errorf("%s: by the way of the kubeconfig that was replaced: %+v", f.way, calls)
	}
}

func closed(gateway *Gateway) func() error {
	return func() error {
		if n := gateway.Open(); n > 0 {
			return fmt.Errorf("%d requests are open", n)
		}
		return nil
	}
}

// health1of2 has one cluster hang, and then both.
func (f *fleetRun) health1of2(a, b *Server) {
	ways := map[string]*Gateway{"a": newGateway(f.t, a), "b": newGateway(f.t, b)}
	for name, gateway := range ways {
		f.join(name, gateway)
		f.soon(name+" is read by its new way", func() error {
			if len(gateway.Calls(time.Time{}, Call.isDiscovery)) == 0 {
				return errors.New("it is not")
			}
			return nil
		})
	}
	ways["b"].Fail(true)
	f.soon("b is unhealthy", f.unhealthy("b", true))
	f.marks(a, "beside", "a")
	must(f.t, f.ready(http.StatusOK))
	if unhealthy, err := f.clusters(); err != nil || unhealthy["a"] {
		f.t.Errorf("%s: a is unhealthy because b is down: %v %v", f.way, unhealthy, err)
	}
	ways["a"].Fail(true)
	f.soon("the program is not ready, all clusters are down", func() error { return f.ready(http.StatusInternalServerError) })
	for _, gateway := range ways {
		gateway.Fail(false)
	}
	f.soon("it is ready again", func() error { return f.ready(http.StatusOK) })
	f.soon("b is healthy again", f.unhealthy("b", false))
}

func (f *fleetRun) unhealthy(name string, want bool) func() error {
	return func() error {
		clusters, err := f.clusters()
		if err == nil && clusters[name] != want {
			err = fmt.Errorf("unhealthy: %v", clusters)
		}
		return err
	}
}

const (
	fleetRounds = 40
	fleetFirst  = 2 // rounds until what is made once has been made

	// The program may have this many goroutines more than before, for our own
	// connections to it. If each round leaked one goroutine, there would be
	// fleetRounds more.
	fleetSpare = 4

	// The heap may grow by this much in a round: a heap varies by that much. A
	// mapper of a real server takes more; its watches and the cluster's cache take
	// far more.
	fleetHeapPerRound = 8 << 10
)

// comeAndGo checks that a cluster which was there and is gone leaves nothing
// behind. No other cluster is there meanwhile, because its connections would come
// and go as well.
func (f *fleetRun) comeAndGo(b *Server) {
	f.leave("a")
	f.leave("b")
	f.soon("no cluster is engaged", f.engaged())
	gateway := newGateway(f.t, b) // one for all: rest_client_requests_total keeps series of each address for ever
	var begun, during fleetUse
	for round := range fleetRounds + fleetFirst {
		if round == fleetFirst {
			begun = f.settled()
		}
		f.join("b", gateway)
		f.marks(b, fmt.Sprintf("round-%d", round), "b")
		during = f.use()
		if gateway.Open() < 3 { // CRDs, APIServices, Gadgets
			f.t.Errorf("%s: b has %d open requests, want its watches", f.way, gateway.Open())
		}
		f.leave("b")
		f.soon("b is gone", f.engaged())
		f.soon("no request to b is open", closed(gateway))
	}
	var ended fleetUse
	took := f.within(fleetIdle, "the goroutines of b have ended", func() error {
		time.Sleep(200 * time.Millisecond)
		if ended = f.use(); ended.goroutines > begun.goroutines+fleetSpare || strings.Contains(ended.stacks, "internal/refresh") {
			return fmt.Errorf("%d goroutines, %d before:\n%s", ended.goroutines, begun.goroutines, ended.stacks)
		}
		return nil
	})
	grown := (ended.heap - begun.heap) / fleetRounds
	f.t.Logf("%s: goroutines: %d without clusters, %d with b, %d after b came and went %d times, and %v; heap: %d KiB, %d KiB, %d KiB, %.1f KiB a round",
		f.way, begun.goroutines, during.goroutines, ended.goroutines, fleetRounds, took.Round(time.Millisecond),
		begun.heap>>10, during.heap>>10, ended.heap>>10, float64(grown)/1024)
	if during.goroutines <= begun.goroutines || !strings.Contains(during.stacks, "internal/refresh") {
		f.t.Errorf("%s: a cluster has no goroutines: this measures nothing", f.way)
	}
	if grown > fleetHeapPerRound {
		f.t.Errorf("%s: the heap grew by %d bytes a round, want %d at most", f.way, grown, fleetHeapPerRound)
	}
}

// settled returns what the program uses, once that no longer falls.
func (f *fleetRun) settled() fleetUse {
	f.t.Helper()
	least := f.use()
	for range 10 {
		time.Sleep(300 * time.Millisecond)
		if u := f.use(); u.goroutines <= least.goroutines {
			least = u
		}
	}
	return least
}
