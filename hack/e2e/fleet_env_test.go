// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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
	process                   *Process
	health, metrics, profiles string // addresses
}

func startFleet(t *testing.T, host *Server, way, binary string) *fleetRun {
	t.Helper()
	f := &fleetRun{
		t: t, ctx: t.Context(), host: host, way: way,
		kind: Kind{Group: way + ".fleet.example.com", Kind: "Gadget", Versions: []string{"v1"}},
	}
	must(f.t, host.Client.Create(f.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: way}}))
	for _, address := range []*string{&f.health, &f.metrics, &f.profiles} {
		var err error
		*address, err = freeAddress(f.ctx)
		must(f.t, err)
	}
	f.process = start(f.ctx, t, binary, host.Kubeconfig, "-namespace", way, "-kind", "Gadget.v1."+f.kind.Group,
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
	for {
		err := holds()
		if err == nil {
			return time.Since(begun)
		}
		if time.Since(begun) > limit {
			f.t.Fatalf("%s: not so after %v: %v", what, limit, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (f *fleetRun) get(address, path string) (int, string, error) {
	req, err := http.NewRequestWithContext(f.ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

func (f *fleetRun) ready(want int) error {
	code, body, err := f.get(f.health, "/readyz")
	if err == nil && code != want {
		err = fmt.Errorf("/readyz says %d, want %d: %s", code, want, body)
	}
	return err
}

// clusters are those of the debug page, with whether each of them is unhealthy.
func (f *fleetRun) clusters() (map[string]bool, error) {
	_, body, err := f.get(f.metrics, "/debug/restmappers?format=json")
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

// install brings the kind to a server.
func (f *fleetRun) install(server *Server) {
	f.t.Helper()
	must(f.t, server.Install(f.ctx, f.kind), server.AwaitServed(f.ctx, f.kind))
}

// marks creates an object and waits until the program has written the name of the
// cluster into it.
func (f *fleetRun) marks(server *Server, object, cluster string) time.Duration {
	f.t.Helper()
	gadget := &unstructured.Unstructured{}
	gadget.SetAPIVersion(f.kind.Group + "/v1")
	gadget.SetKind(f.kind.Kind)
	gadget.SetNamespace("default")
	gadget.SetName(object)
	f.soon("the creation of "+object, func() error { return client.IgnoreAlreadyExists(server.Client.Create(f.ctx, gadget)) })
	return f.soon("the mark of "+cluster+" in "+object, func() error {
		err := server.Client.Get(f.ctx, client.ObjectKeyFromObject(gadget), gadget)
		if got := gadget.GetAnnotations()["fleet.example.com/cluster"]; err == nil && got != cluster {
			err = fmt.Errorf("marked %q", got)
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
		_, text, err := f.get(f.profiles, "/debug/pprof/heap?debug=1&gc=1")
		must(f.t, err)
		for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
			if _, err := fmt.Sscanf(lines.Text(), "# HeapAlloc = %d", &u.heap); err == nil {
				break
			}
		}
	}
	_, stacks, err := f.get(f.profiles, "/debug/pprof/goroutine?debug=1")
	must(f.t, err)
	u.stacks = stacks
	if _, err := fmt.Sscanf(stacks, "goroutine profile: total %d", &u.goroutines); err != nil || u.heap == 0 {
		f.t.Fatalf("pprof said %q, heap %d: %v", stacks, u.heap, err)
	}
	return u
}
