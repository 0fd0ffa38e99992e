// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
