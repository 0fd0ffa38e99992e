// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestFleet runs an operator of testdata/consumers, whose clusters come from the
// kubeconfig provider of multicluster-runtime, on a hosting cluster and two others:
// three API servers. It is built with the fork, and again with controller-runtime as
// it is and the fleet from this repository's own module.
func TestFleet(t *testing.T) {
	t.Parallel() // most of the time it waits for connections to end
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
	must(f.t, b.Install(f.ctx, tunnel), a.Install(f.ctx, f.kind))
	f.join("a", newGateway(f.t, a))
	f.join("b", newGateway(f.t, b))
	f.soon("both clusters are engaged", f.engaged("a", "b"))
	f.marks(a, "one", "a")
	must(f.t, b.Install(f.ctx, f.kind))
	f.t.Logf("%s: the first Gadget of b is marked %v after the CRD is served", f.way, f.marks(b, "one", "b"))
	must(f.t, b.Uninstall(f.ctx, f.kind), b.Install(f.ctx, f.kind))
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
	f.soon("b is read by its new way", read(next))
	f.soon("no request by the old way is open", closed(old))
	since := time.Now()
	f.marks(b, "four", "b")
	time.Sleep(5 * time.Second) // two intervals
	if calls := old.Calls(since, func(Call) bool { return true }); len(calls) > 0 || old.Open() > 0 {
		f.t.Errorf("%s: by the way of the kubeconfig that was replaced: %+v", f.way, calls)
	}
}

func read(gateway *Gateway) func() error {
	return func() error {
		if len(gateway.Calls(time.Time{}, Call.isDiscovery)) == 0 {
			return errors.New("no request of discovery")
		}
		return nil
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
		f.soon(name+" is read by its new way", read(gateway))
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

// fleetLabel makes a Secret a cluster of the kubeconfig provider.
const fleetLabel = "sigs.k8s.io/multicluster-runtime-kubeconfig"

const (
	fleetSoon = 20 * time.Second // on a busy machine
	fleetIdle = 2 * time.Minute  // until connections end that nobody uses, after 90 seconds
)

// fleetRun is a running testdata/consumers/fleet, built in one of the two ways. It has
// a namespace of its own on the hosting cluster and, in the others, a kind.
type fleetRun struct {
	t                         *testing.T
	ctx                       context.Context
	host                      *Server
	way                       string
	kind                      Kind
	health, metrics, profiles string // addresses
}

func startFleet(t *testing.T, host *Server, way, binary string) *fleetRun {
	t.Helper()
	f := &fleetRun{
		t: t, ctx: t.Context(), host: host, way: way,
		kind: Kind{Group: way + ".fleet.example.com", Kind: "Gadget", Versions: []string{"v1"}},
	}
	must(f.t, host.Client.Create(f.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: way}}))
	f.health, f.metrics, f.profiles = freeAddress(f.ctx, t), freeAddress(f.ctx, t), freeAddress(f.ctx, t)
	start(f.ctx, t, binary, host.Kubeconfig, "-namespace", way, "-kind", "Gadget.v1."+f.kind.Group,
		"-interval", "2s", "-unhealthy-after", "3s",
		"-health-probe-bind-address", f.health, "-metrics-bind-address", f.metrics, "-pprof-bind-address", f.profiles)
	f.soon("the program is ready", func() error { return f.ready(http.StatusOK) })
	return f
}

// soon waits until holds returns nil, and returns how long that took.
func (f *fleetRun) soon(what string, holds func() error) time.Duration {
	f.t.Helper()
	return f.within(fleetSoon, what, holds)
}

func (f *fleetRun) within(limit time.Duration, what string, holds func() error) time.Duration {
	f.t.Helper()
	begun := time.Now()
	must(f.t, await(f.ctx, limit, f.way+": "+what, func() (bool, error) {
		err := holds()
		return err == nil, err
	}))
	return time.Since(begun)
}

func (f *fleetRun) ready(want int) error {
	code, body, err := httpDo(f.ctx, http.MethodGet, f.health, "/readyz")
	if err == nil && code != want {
		err = fmt.Errorf("/readyz says %d, want %d: %s", code, want, body)
	}
	return err
}

// clusters are those of the debug page, with whether each of them is unhealthy.
func (f *fleetRun) clusters() (map[string]bool, error) {
	_, body, err := httpDo(f.ctx, http.MethodGet, f.metrics, "/debug/restmappers?format=json")
	if err != nil {
		return nil, err
	}
	var page struct {
		Clusters map[string]struct{ UnhealthySince time.Time }
	}
	if err := json.Unmarshal([]byte(body), &page); err != nil {
		return nil, fmt.Errorf("%w in %s", err, body)
	}
	unhealthy := map[string]bool{}
	for name, status := range page.Clusters {
		unhealthy[name] = !status.UnhealthySince.IsZero()
	}
	return unhealthy, nil
}

func (f *fleetRun) engaged(want ...string) func() error {
	return func() error {
		clusters, err := f.clusters()
		if got := slices.Sorted(maps.Keys(clusters)); err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("clusters %q, want %q", got, want)
		}
		return err
	}
}

// join writes the Secret that makes a cluster of a gateway.
func (f *fleetRun) join(name string, gateway *Gateway) {
	f.t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.way, Name: name, Labels: map[string]string{fleetLabel: "true"}},
		Data:       map[string][]byte{"kubeconfig": gateway.kubeconfig()},
	}
	err := f.host.Client.Create(f.ctx, secret)
	if apierrors.IsAlreadyExists(err) {
		err = f.host.Client.Patch(f.ctx, secret, client.Merge)
	}
	must(f.t, err)
}

func (f *fleetRun) leave(name string) {
	f.t.Helper()
	must(f.t, f.host.Client.Delete(f.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.way, Name: name}}))
}

// marks creates an object and waits until the program has written the name of the
// cluster into it.
func (f *fleetRun) marks(server *Server, object, cluster string) time.Duration {
	f.t.Helper()
	must(f.t, server.Make(f.ctx, f.kind, object, nil))
	return f.soon("the mark of "+cluster+" in "+object, func() error {
		gadget, err := server.Object(f.ctx, f.kind, "default", object)
		if err == nil && gadget.GetAnnotations()["fleet.example.com/cluster"] != cluster {
			err = fmt.Errorf("marked %q", gadget.GetAnnotations())
		}
		return err
	})
}

// fleetUse is what the program uses, after a garbage collection.
type fleetUse struct {
	goroutines int
	heap       int64
	stacks     string
}

func (f *fleetRun) use() fleetUse {
	f.t.Helper()
	var u fleetUse
	for range 2 { // what only weak pointers lead to goes with the second collection
		_, text, err := httpDo(f.ctx, http.MethodGet, f.profiles, "/debug/pprof/heap?debug=1&gc=1")
		must(f.t, err)
		for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
			if _, err := fmt.Sscanf(lines.Text(), "# HeapAlloc = %d", &u.heap); err == nil {
				break
			}
		}
	}
	_, stacks, err := httpDo(f.ctx, http.MethodGet, f.profiles, "/debug/pprof/goroutine?debug=1")
	must(f.t, err)
	u.stacks = stacks
	if _, err := fmt.Sscanf(stacks, "goroutine profile: total %d", &u.goroutines); err != nil || u.heap == 0 {
		f.t.Fatalf("pprof said %q, heap %d: %v", stacks, u.heap, err)
	}
	return u
}
