// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
	"maps"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestFleet runs an operator of testdata/consumers, whose clusters come from the
// kubeconfig provider of multicluster-runtime, on a hosting cluster and two others:
// three API servers. It is built with the fork, and again with controller-runtime as
// it is and the fleet from this repository's own module.
func TestFleet(t *testing.T) {
	t.Parallel() // most of the time it waits
	_, fork := buildBoth(t.Context(), t, "fleet")
	provider := buildProvider(t.Context(), t, "fleet", "fleet.go", `"`+tree.Module+`/pkg/client/apiutil"`, `"`+ours+`/apiutil"`)
	host, _ := startServer(t.Context(), t)
	a, _ := startServer(t.Context(), t)
	b, _ := startServer(t.Context(), t)
	for way, binary := range map[string]string{"fork": fork, "provider": provider} {
		t.Run(way, func(t *testing.T) {
			f := startFleet(t, host, way, binary)
			f.lateKind(a, b)
		})
	}
}

// lateKind has a cluster engaged before it serves the kind, in a group that it does
// serve; the kind goes and comes back; and then the cluster goes.
func (f *fleetRun) lateKind(a, b *Server) {
	tunnel := f.kind
	tunnel.Kind = "Tunnel"
	must(f.t, b.Install(f.ctx, tunnel), a.Install(f.ctx, f.kind))
	f.join("a", a)
	f.join("b", b)
	f.soon("both clusters are engaged", f.engaged("a", "b"))
	f.marks(a, "one", "a")
	must(f.t, b.Install(f.ctx, f.kind))
	f.t.Logf("%s: the first Gadget of b is marked %v after the CRD is served", f.way, f.marks(b, "one", "b"))
	must(f.t, b.Uninstall(f.ctx, f.kind), b.Install(f.ctx, f.kind))
	f.t.Logf("%s: and %v after it is back", f.way, f.marks(b, "two", "b"))
	f.leave("b")
	f.soon("b is gone", f.engaged("a"))
}

// fleetLabel makes a Secret a cluster of the kubeconfig provider.
const fleetLabel = "sigs.k8s.io/multicluster-runtime-kubeconfig"

const fleetSoon = 20 * time.Second // on a busy machine

// fleetRun is a running testdata/consumers/fleet, built in one of the two ways. It has
// a namespace of its own on the hosting cluster and, in the others, a kind.
type fleetRun struct {
	t               *testing.T
	ctx             context.Context
	host            *Server
	way             string
	kind            Kind
	health, metrics string // addresses
}

func startFleet(t *testing.T, host *Server, way, binary string) *fleetRun {
	t.Helper()
	f := &fleetRun{
		t: t, ctx: t.Context(), host: host, way: way,
		kind: Kind{Group: way + ".fleet.example.com", Kind: "Gadget", Versions: []string{"v1"}},
	}
	must(f.t, host.Client.Create(f.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: way}}))
	f.health, f.metrics = freeAddress(f.ctx, t), freeAddress(f.ctx, t)
	start(f.ctx, t, binary, host.Kubeconfig, "-namespace", way, "-kind", "Gadget.v1."+f.kind.Group,
		"-interval", "2s", "-health-probe-bind-address", f.health, "-metrics-bind-address", f.metrics)
	f.soon("the program is ready", func() error {
		code, body, err := httpDo(f.ctx, http.MethodGet, f.health, "/readyz")
		if err == nil && code != http.StatusOK {
			err = errors.New(body)
		}
		return err
	})
	return f
}

// soon waits until holds returns nil, and returns how long that took.
func (f *fleetRun) soon(what string, holds func() error) time.Duration {
	f.t.Helper()
	begun := time.Now()
	must(f.t, await(f.ctx, fleetSoon, f.way+": "+what, func() (bool, error) {
		err := holds()
		return err == nil, err
	}))
	return time.Since(begun)
}

// engaged reports, by the debug page, whether these are the clusters.
func (f *fleetRun) engaged(want ...string) func() error {
	return func() error {
		_, body, err := httpDo(f.ctx, http.MethodGet, f.metrics, "/debug/restmappers?format=json")
		if err != nil {
			return err
		}
		var page struct{ Clusters map[string]any }
		if err := json.Unmarshal([]byte(body), &page); err != nil {
			return fmt.Errorf("%w in %s", err, body)
		}
		if got := slices.Sorted(maps.Keys(page.Clusters)); !slices.Equal(got, want) {
			err = fmt.Errorf("clusters %q, want %q", got, want)
		}
		return err
	}
}

// join writes the Secret that makes a server a cluster.
func (f *fleetRun) join(name string, server *Server) {
	f.t.Helper()
	kubeconfig, err := os.ReadFile(server.Kubeconfig)
	must(f.t, err, f.host.Client.Create(f.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.way, Name: name, Labels: map[string]string{fleetLabel: "true"}},
		Data:       map[string][]byte{"kubeconfig": kubeconfig},
	}))
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
