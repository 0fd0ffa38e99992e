// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// TestMulticluster runs an operator of testdata/consumers on a hosting cluster
// with two tenants, a and b: three API servers.
func TestMulticluster(t *testing.T) {
	e := newMeshEnvironment(t)
	t.Run("M1", func(t *testing.T) { e.lateKind(t, "M1", "Peer comes to a tenant after the first reconcile") })
	t.Run("M1-reset", e.lateKindWithReset)
	t.Run("M2", e.upgradedTenant)
	t.Run("M3", e.hangingTenant)
	t.Run("M4", e.badTenants)
	t.Run("bad flags", e.badFlags)
}

func newMeshEnvironment(t *testing.T) *meshEnvironment {
	t.Helper()
	e := &meshEnvironment{environment: newEnvironment(t, "multicluster"), tenants: map[string]*Server{}}
	_, err := envtest.InstallCRDs(e.config, envtest.CRDInstallOptions{
		Paths: []string{filepath.Join(root, "testdata/consumers/multicluster/clustermesh.crd.yaml")}, ErrorIfPathMissing: true,
	})
	must(t, err)
	for _, name := range []string{"a", "b"} {
		e.tenants[name], _ = startServer(e.ctx, t)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
		must(t, e.tenants[name].Client.Create(e.ctx, node))
	}
	return e
}

// lateKind is what the mapper is for: a tenant gets the CRD of Peer, in another
// version than its sibling and in a group that it served before, once the
// operator runs.
func (e *meshEnvironment) lateKind(t *testing.T, name, title string, args ...string) *meshReplay {
	r := e.mesh(t, name, title, "a", "b")
	r.install("a", r.kind("Peer", "v1"))
	r.install("b", r.kind("Tunnel", "v1"))
	r.startOperators(args...)
	r.both("first reconciles", func(s *side) (Step, error) {
		err := r.await(s, "a push into a, and two looks at b", func() (bool, error) {
			status, err := r.status(s, "b")
			return r.pushes(s, "a", r.begun) > 0 && r.tries(s, "b", r.begun) >= 2 && status.reason == "PeerNotServed", err
		})
		return Step{Outcome: "a pushed, b PeerNotServed", OK: err == nil, Requests: r.discoveries(s, "b", r.begun)}, err
	})
	leases := r.leases()
	r.install("b", r.kind("Peer", "v2"))
	r.heals("b")
	r.undelayed("a", r.changed)
	r.keptLease(leases)
	r.judge(false)
	r.inTime()
	return r
}

// lateKindWithReset is the same with an operator that calls
// meta.MaybeResetRESTMapper at every NoMatch. Stock's mapper cannot be reset, and
// the call returns no error.
func (e *meshEnvironment) lateKindWithReset(t *testing.T) {
	r := e.lateKind(t, "M1-reset", "the same, with MaybeResetRESTMapper at every NoMatch", "-reset-on-no-match")
	status, err := r.status(r.sides[0], "b")
	must(t, err)
	if !strings.Contains(status.message, "cannot be reset") {
		t.Errorf("%s: got %q for b, want that its mapper cannot be reset", r.sides[0].result.Build, status.message)
	}
}

// upgradedTenant removes the version that the operator uses, and adds another one.
func (e *meshEnvironment) upgradedTenant(t *testing.T) {
	r := e.mesh(t, "M2", "a tenant's Peer goes from v1 to v2", "a", "b")
	r.install("a", r.kind("Peer", "v1"))
	r.install("b", r.kind("Peer", "v1"))
	r.startOperators()
	r.pushed("a", "b")
	begun := time.Now()
	must(t, e.tenants["a"].Uninstall(e.ctx, r.kind("Peer", "v1")))
	r.install("a", r.kind("Peer", "v2"))
	r.heals("a")
	r.undelayed("b", begun)
	r.judge(false)
	r.inTime()
}

// hangingTenant has a tenant's network lose every packet for a while.
func (e *meshEnvironment) hangingTenant(t *testing.T) {
	r := e.mesh(t, "M3", "a tenant does not answer for a while (stock recovers)", "a", "b")
	r.install("a", r.kind("Peer", "v1"))
	r.install("b", r.kind("Peer", "v1"))
	r.startOperators()
	r.pushed("a", "b")
	begun := time.Now()
	r.change("b does not answer", r.eachGateway("b", (*Gateway).Hang))
	r.both("reconcile b", func(s *side) (Step, error) {
		err := r.await(s, "b to be unreachable", func() (bool, error) {
			status, err := r.status(s, "b")
			return status.reason == "Unreachable", err
		})
		return Step{Outcome: "b Unreachable", OK: err == nil}, err
	})
	r.change("b answers", r.eachGateway("b", (*Gateway).Release))
	r.changed = time.Now()
	r.heals("b")
	r.undelayed("a", begun)
	r.judge(true)
	r.inTime()
}

// badTenants shows everything that can be wrong with a tenant's Secret, next to a
// Secret that is right.
func (e *meshEnvironment) badTenants(t *testing.T) {
	wrong := map[string]string{ // by the name of the tenant
		"lost": "SecretMissing", "empty": "KubeconfigMissing", "garbled": "KubeconfigInvalid", "file": "KubeconfigInvalid",
		"refused": "Unreachable", "nodeless": "NoNodes",
	}
	r := e.mesh(t, "M4", "bad tenants, one of which is mended (stock recovers)", "a", "lost", "empty", "garbled", "file", "refused", "nodeless")
	r.install("a", r.kind("Peer", "v1"))
	r.install("b", r.kind("Peer", "v1"))
	for _, s := range r.sides {
		r.badSecrets(s)
	}
	r.startOperators()
	r.pushed("a")
	begun := time.Now()
	r.both("reconcile the others", func(s *side) (Step, error) {
		err := r.await(s, "the conditions of the bad tenants", func() (bool, error) {
			for tenant, want := range wrong {
				status, err := r.status(s, tenant)
				if err != nil || status.reason != want {
					return false, fmt.Errorf("%s: got %+v, %w", tenant, status, err)
				}
				if strings.Contains(status.message, secretText) {
					return false, fmt.Errorf("%s: %q has a secret in it", tenant, status.message)
				}
			}
			complete, err := r.complete(s)
			return complete == "False", err
		})
		return Step{Outcome: fmt.Sprintf("%d conditions", len(wrong)), OK: err == nil}, err
	})
	r.change("the empty Secret gets b's kubeconfig", func() error { return r.mend("empty", "b") })
	r.changed = time.Now()
	r.heals("b")
	r.undelayed("a", begun)
	r.judge(true)
	r.inTime()
}

// badFlags end the program with a clear message and an error status.
func (e *meshEnvironment) badFlags(t *testing.T) {
	for flag, want := range map[string]string{
		"-interval=0": "-interval must be positive, not 0s", "-interval=-1m": "-interval must be positive",
		"-retry=-1s": "-retry must be positive", "-timeout=0s": "-timeout must be positive", "-workers=0": "-workers must be positive",
		"-peer=Peer": "-peer must be a kind with its group", "more": `unexpected argument "more"`,
	} {
		e.refuses(t, []string{flag}, "", want)
	}
}

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

// meshStatus is what the operator says of a tenant.
type meshStatus struct{ reason, message, peerVersion string }

type meshObject struct {
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
		Tenants    []struct {
			Name        string             `json:"name"`
			PeerVersion string             `json:"peerVersion"`
			Conditions  []metav1.Condition `json:"conditions"`
		} `json:"tenants"`
	} `json:"status"`
}

func (r *meshReplay) object(s *side) (*meshObject, error) {
	object, mesh := newClusterMesh(r.namespace(s), nil), &meshObject{}
	if err := r.server.Client.Get(r.ctx, client.ObjectKeyFromObject(object), object); err != nil {
		return nil, err
	}
	return mesh, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, mesh)
}

func (r *meshReplay) status(s *side, tenant string) (meshStatus, error) {
	mesh, err := r.object(s)
	if err != nil {
		return meshStatus{}, err
	}
	for _, t := range mesh.Status.Tenants {
		if t.Name == tenant && len(t.Conditions) > 0 {
			return meshStatus{t.Conditions[0].Reason, t.Conditions[0].Message, t.PeerVersion}, nil
		}
	}
	return meshStatus{}, nil
}

func (r *meshReplay) complete(s *side) (string, error) {
	mesh, err := r.object(s)
	if err != nil || len(mesh.Status.Conditions) == 0 {
		return "", err
	}
	return string(mesh.Status.Conditions[0].Status), nil
}
