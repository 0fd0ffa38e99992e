// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The operator's flags. If a tenant held up its sibling, the sibling would wait for
// the timeout of a call.
const (
	meshInterval = 500 * time.Millisecond
	meshRetry    = time.Second
	meshTimeout  = 4 * time.Second
	meshSlack    = 1500 * time.Millisecond // for a busy machine

	meshWindow = giveUpAfter * meshRetry // a tenant without a Peer after that is given up
)

const secretText = "hunter2" // in a Secret; it must not turn up in a status

// meshEnvironment is a hosting cluster, the environment's server, with tenants.
type meshEnvironment struct {
	*environment
	tenants map[string]*Server
}

// meshReplay gives each side a namespace of its own in all clusters, and a
// gateway of its own to each tenant, so that the two can be told apart.
type meshReplay struct {
	*replay
	meshes   *meshEnvironment
	group    string
	gateways map[*side]map[string]*Gateway
	changed  time.Time // when the last change to a tenant was there to be seen
}

// mesh begins a replay with a ClusterMesh that has the tenants. Those that are
// clusters of the environment have good Secrets.
func (e *meshEnvironment) mesh(t *testing.T, name, title string, tenants ...string) *meshReplay {
	t.Helper()
	r := &meshReplay{
		replay: e.replay(t, name, title), meshes: e,
		group: strings.ToLower(name) + ".example.com", gateways: map[*side]map[string]*Gateway{},
	}
	for _, s := range r.sides {
		r.gateways[s] = map[string]*Gateway{}
		for name, server := range e.tenants {
			r.gateways[s][name] = newGateway(t, server)
		}
		err := errors.Join(r.createNamespaces(s), e.server.Client.Create(e.ctx, newClusterMesh(r.namespace(s), tenants)))
		for _, tenant := range tenants {
			if gateway := r.gateways[s][tenant]; gateway != nil {
				err = errors.Join(err, r.createSecret(s, tenant, gateway.kubeconfig()))
			}
		}
		must(t, err)
	}
	return r
}

func (r *meshReplay) namespace(s *side) string {
	build, _, _ := strings.Cut(s.result.Build, " ")
	return strings.ToLower(r.sides[0].result.Replay) + "-" + build
}

func (r *meshReplay) createNamespaces(s *side) error {
	var errs []error
	for _, server := range []*Server{r.server, r.meshes.tenants["a"], r.meshes.tenants["b"]} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace(s)}}
		errs = append(errs, server.Client.Create(r.ctx, ns))
	}
	return errors.Join(errs...)
}

func (r *meshReplay) createSecret(s *side, tenant string, kubeconfig []byte) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace(s), Name: "tenant-" + tenant}}
	if kubeconfig != nil {
		secret.Data = map[string][]byte{"kubeconfig": kubeconfig}
	}
	return r.server.Client.Create(r.ctx, secret)
}

func newClusterMesh(namespace string, tenants []string) *unstructured.Unstructured {
	list := make([]any, 0, len(tenants))
	for _, name := range tenants {
		list = append(list, map[string]any{"name": name, "kubeconfigSecret": "tenant-" + name})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "multicluster.example.com/v1", "kind": "ClusterMesh",
		"metadata": map[string]any{"namespace": namespace, "name": "mesh"},
		"spec":     map[string]any{"tenants": list},
	}}
}

// badSecrets makes the Secrets of the tenants of badTenants, but for the one
// that has none.
func (r *meshReplay) badSecrets(s *side) {
	r.t.Helper()
	const refused = "server: http://127.0.0.1:1"
	for tenant, config := range map[string][]byte{
		"empty": nil, "garbled": []byte("clusters: " + secretText), "file": kubeconfig(refused, "tokenFile: /etc/token"), "refused": kubeconfig(refused, ""),
		"nodeless": newGateway(r.t, r.server).kubeconfig(),
	} {
		must(r.t, r.createSecret(s, tenant, config))
	}
}

// mend gives a tenant's Secret the kubeconfig of a good one.
func (r *meshReplay) mend(tenant, as string) error {
	var errs []error
	for _, s := range r.sides {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace(s), Name: "tenant-" + tenant}}
		before := client.MergeFrom(secret.DeepCopy())
		secret.Data = map[string][]byte{"kubeconfig": r.gateways[s][as].kubeconfig()}
		errs = append(errs, r.server.Client.Patch(r.ctx, secret, before))
	}
	return errors.Join(errs...)
}

func (r *meshReplay) kind(kind string, versions ...string) Kind {
	return Kind{Group: r.group, Kind: kind, Versions: versions}
}

// install brings a kind to a tenant and waits until it is served there.
func (r *meshReplay) install(tenant string, kind Kind) {
	r.t.Helper()
	server := r.meshes.tenants[tenant]
	r.change(fmt.Sprintf("CRD %s comes to %s, at %s", kind.Kind, tenant, strings.Join(kind.Versions, ", ")),
		func() error { return server.Install(r.ctx, kind) },
		func() error { return server.AwaitServed(r.ctx, kind) })
	r.changed = time.Now()
}

func (r *meshReplay) eachGateway(tenant string, do func(*Gateway)) func() error {
	return func() error {
		for _, s := range r.sides {
			do(r.gateways[s][tenant])
		}
		return nil
	}
}

func (r *meshReplay) startOperators(args ...string) {
	r.t.Helper()
	r.start(func(s *side) []string {
		return append([]string{
			"-namespace", r.namespace(s), "-peer", "Peer." + r.group, "-leader-elect",
			"-interval", meshInterval.String(), "-retry", meshRetry.String(), "-timeout", meshTimeout.String(),
		}, args...)
	})
}

// await waits for what a side's operator is to do.
func (r *meshReplay) await(s *side, what string, yes func() (bool, error)) error {
	return r.server.Await(r.ctx, what+" ("+s.result.Build+")", yes)
}

// pushed waits until the tenants have their Peers.
func (r *meshReplay) pushed(tenants ...string) {
	r.t.Helper()
	r.both("first reconciles", func(s *side) (Step, error) {
		err := r.await(s, "the first pushes", func() (bool, error) {
			for _, tenant := range tenants {
				if r.pushes(s, tenant, r.begun) == 0 {
					return false, nil
				}
			}
			return true, nil
		})
		return Step{Outcome: strings.Join(tenants, " and ") + " pushed", OK: err == nil}, err
	})
}

// What a side's operator has asked of a tenant since then.

func (r *meshReplay) pushCalls(s *side, tenant string, since time.Time) []Call {
	return r.gateways[s][tenant].Calls(since, func(c Call) bool {
		return c.Method == http.MethodPatch && c.Code < http.StatusMultipleChoices
	})
}

func (r *meshReplay) pushes(s *side, tenant string, since time.Time) int {
	return len(r.pushCalls(s, tenant, since))
}

// tries counts reconciles: each begins with the nodes.
func (r *meshReplay) tries(s *side, tenant string, since time.Time) int {
	return len(r.gateways[s][tenant].Calls(since, func(c Call) bool { return c.Path == "/api/v1/nodes" }))
}

func (r *meshReplay) discoveries(s *side, tenant string, since time.Time) int {
	return len(r.gateways[s][tenant].Calls(since, Call.isDiscovery))
}

// heals waits, from the last change on, until a tenant has its Peer.
func (r *meshReplay) heals(tenant string) {
	r.t.Helper()
	r.both("reconcile "+tenant, func(s *side) (Step, error) {
		err := r.await(s, "a push into "+tenant, func() (bool, error) {
			return r.pushes(s, tenant, r.changed) > 0 || time.Since(r.changed) > meshWindow, nil
		})
		s.result.Millis = millisSince(r.changed)
		if pushes := r.pushCalls(s, tenant, r.changed); len(pushes) > 0 {
			s.result.Healed = true
			s.result.Millis = float64(pushes[0].Ended.Sub(r.changed).Microseconds()) / 1000
		}
		s.result.Tries = r.tries(s, tenant, r.changed)
		s.result.Requests = r.discoveries(s, tenant, r.changed)
		outcome := "not pushed"
		if s.result.Healed {
			outcome = "pushed"
		}
		return Step{Outcome: times(outcome, s.result.Tries), OK: s.result.Healed, Requests: s.result.Requests}, err
	})
}

// inTime checks that the fork healed at the first try that began after the change.
func (r *meshReplay) inTime() {
	r.t.Helper()
	fork := r.sides[1].result
	within := meshRetry + meshSlack
	r.t.Logf("%s: pushed %s after the change, one requeue is %s", fork.Build, Duration(fork.Millis), meshRetry)
	if fork.Healed && fork.Millis > meshMillis(within) {
		fork.Expected = false
		r.t.Errorf("%s: pushed after %s, want %s at most", fork.Build, Duration(fork.Millis), within)
	}
}

// undelayed checks that the tenant got its Peers all the time, whatever happened to
// its siblings.
func (r *meshReplay) undelayed(tenant string, since time.Time) {
	r.t.Helper()
	r.both(tenant+" meanwhile", func(s *side) (Step, error) {
		longest, last := time.Duration(0), since
		for _, c := range r.pushCalls(s, tenant, since) {
			longest, last = max(longest, c.Begun.Sub(last)), c.Begun
		}
		longest = max(longest, time.Since(last))
		if longest > meshInterval+meshSlack {
			return Step{}, fmt.Errorf("%s waited %s for a push, want %s and little more", tenant, longest, meshInterval)
		}
		return Step{Outcome: "waits " + Duration(meshMillis(longest)) + " at most", OK: true, Requests: r.discoveries(s, tenant, since)}, nil
	})
}

func meshMillis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// leases returns who leads, and how often that has changed.
func (r *meshReplay) leases() (found [2]string) {
	r.t.Helper()
	for i, s := range r.sides {
		lease := &coordinationv1.Lease{}
		key := client.ObjectKey{Namespace: r.namespace(s), Name: "multicluster.example.com"}
		must(r.t, r.server.Client.Get(r.ctx, key, lease))
		found[i] = fmt.Sprintf("%s, %d transitions", *lease.Spec.HolderIdentity, *lease.Spec.LeaseTransitions)
	}
	return found
}

func (r *meshReplay) keptLease(before [2]string) {
	r.t.Helper()
	if now := r.leases(); now != before {
		r.t.Errorf("the leader lease was lost: %q before, %q now", before, now)
	}
}
