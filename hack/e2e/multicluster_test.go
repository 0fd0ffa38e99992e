// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// The operator's flags.
const (
	meshInterval = 500 * time.Millisecond
	meshRetry    = time.Second
	meshTimeout  = 4 * time.Second
	meshSlack    = 1500 * time.Millisecond // for a busy machine

	meshWindow = giveUpAfter * meshRetry // a tenant without a Peer after that is given up
)

// mesh is a replay on a hosting cluster, the environment's server, with tenants. It gives
// each side a namespace of its own in all clusters, and a gateway of its own to each tenant,
// so that the two can be told apart.
type mesh struct {
	*replay
	tenants  map[string]*Server
	gateways map[*side]map[string]*Gateway
	changed  time.Time // when the last change to a tenant was there to be seen
}

// TestMulticluster runs an operator of testdata/consumers on a hosting cluster
// with two tenants, a and b: three API servers.
func TestMulticluster(t *testing.T) {
	e := newEnvironment(t, "multicluster")
	_, err := envtest.InstallCRDs(e.config, envtest.CRDInstallOptions{
		Paths: []string{filepath.Join(root, "testdata/consumers/multicluster/deploy.yaml")}, ErrorIfPathMissing: true,
	})
	must(t, err)
	tenants := map[string]*Server{}
	for _, name := range []string{"a", "b"} {
		tenants[name], _ = startServer(e.ctx, t)
		must(t, tenants[name].Client.Create(e.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}))
	}
	on := func(play func(*mesh)) func(*replay) {
		return func(r *replay) {
			must(t, r.makeNamespaces(tenants["a"], tenants["b"]))
			m := &mesh{replay: r, tenants: tenants, gateways: map[*side]map[string]*Gateway{}}
			for _, s := range r.sides {
				m.gateways[s] = map[string]*Gateway{"a": newGateway(r.t, tenants["a"]), "b": newGateway(r.t, tenants["b"])}
			}
			play(m)
			m.within(meshRetry + meshSlack) // at the first try that began after the change
		}
	}
	e.tell(t,
		story{"M1", "Peer comes to a tenant after the first reconcile", false, on(lateKind)},
		story{"M2", "a tenant's Peer goes from v1 to v2", false, on(upgradedTenant)},
	)
}

// lateKind is what the mapper is for: a tenant gets the CRD of Peer, in another
// version than its sibling and in a group that it served before, once the
// operator runs.
func lateKind(m *mesh) {
	m.begin(m.kind("Tunnel", "v1"))
	m.holds("first reconciles", "a pushed, b tried twice", func(s *side) (bool, error) {
		return len(m.pushes(s, "a", m.begun)) > 0 && len(m.tries(s, "b", m.begun)) >= 2, nil
	})
	m.comes("b", m.kind("Peer", "v2"))
	m.heals("b")
	m.undelayed("a", m.changed)
}

// upgradedTenant removes the version that the operator uses, and adds another one.
func upgradedTenant(m *mesh) {
	m.begin(m.kind("Peer", "v1"))
	m.holds("first reconciles", "pushed", func(s *side) (bool, error) {
		return len(m.pushes(s, "a", m.begun)) > 0 && len(m.pushes(s, "b", m.begun)) > 0, nil
	})
	begun := time.Now()
	must(m.t, m.tenants["a"].Uninstall(m.ctx, m.kind("Peer", "v1")))
	m.comes("a", m.kind("Peer", "v2"))
	m.heals("a")
	m.undelayed("b", begun)
}

// begin gives a its Peer and b a kind, makes a ClusterMesh with both and their Secrets, and
// starts the operators.
func (m *mesh) begin(ofB Kind) {
	m.t.Helper()
	m.comes("a", m.kind("Peer", "v1"))
	m.comes("b", ofB)
	for _, s := range m.sides {
		list := make([]any, 0, len(m.tenants))
		for name, gateway := range m.gateways[s] {
			list = append(list, map[string]any{"name": name, "kubeconfigSecret": "tenant-" + name})
			must(m.t, m.server.Client.Create(m.ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace(), Name: "tenant-" + name},
				Data:       map[string][]byte{"kubeconfig": gateway.kubeconfig()},
			}))
		}
		must(m.t, m.server.Client.Create(m.ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "multicluster.example.com/v1", "kind": "ClusterMesh",
			"metadata": map[string]any{"namespace": s.namespace(), "name": "mesh"}, "spec": map[string]any{"tenants": list},
		}}))
	}
	m.start(func(s *side) []string {
		return []string{
			"-namespace", s.namespace(), "-peer", "Peer." + m.group, "-leader-elect",
			"-interval", meshInterval.String(), "-retry", meshRetry.String(), "-timeout", meshTimeout.String(),
		}
	})
}

// comes brings a kind to a tenant and waits until it is served there.
func (m *mesh) comes(tenant string, kind Kind) {
	m.t.Helper()
	what := fmt.Sprintf("CRD %s comes to %s, at %s", kind.Kind, tenant, strings.Join(kind.Versions, ", "))
	m.change(what, func() error { return m.tenants[tenant].Install(m.ctx, kind) })
	m.changed = time.Now()
}

// What a side's operator has asked of a tenant since then. Each reconcile begins with the nodes.

func (m *mesh) pushes(s *side, tenant string, since time.Time) []Call {
	return m.gateways[s][tenant].Calls(since, func(c Call) bool { return c.Method == http.MethodPatch && c.Code < http.StatusMultipleChoices })
}

func (m *mesh) tries(s *side, tenant string, since time.Time) []Call {
	return m.gateways[s][tenant].Calls(since, func(c Call) bool { return c.Path == "/api/v1/nodes" })
}

// heals waits, from the last change on, until a tenant has its Peer.
func (m *mesh) heals(tenant string) {
	m.t.Helper()
	m.both("reconcile "+tenant, func(s *side) (Step, error) {
		err := s.await("a push into "+tenant, func() (bool, error) {
			return len(m.pushes(s, tenant, m.changed)) > 0 || time.Since(m.changed) > meshWindow, nil
		})
		s.result.Millis = millisSince(m.changed)
		if pushes := m.pushes(s, tenant, m.changed); len(pushes) > 0 {
			s.result.Healed = true
			s.result.Millis = meshMillis(pushes[0].Ended.Sub(m.changed))
		}
		s.result.Tries = len(m.tries(s, tenant, m.changed))
		s.result.Requests = len(m.gateways[s][tenant].Calls(m.changed, Call.isDiscovery))
		outcome := fmt.Sprintf("pushed: %t", s.result.Healed)
		return Step{Outcome: times(outcome, s.result.Tries), OK: s.result.Healed, Requests: s.result.Requests}, err
	})
}

// undelayed checks that the tenant got its Peers all the time, whatever happened to
// its siblings.
func (m *mesh) undelayed(tenant string, since time.Time) {
	m.t.Helper()
	m.both(tenant+" meanwhile", func(s *side) (Step, error) {
		longest, last := time.Duration(0), since
		for _, c := range m.pushes(s, tenant, since) {
			longest, last = max(longest, c.Begun.Sub(last)), c.Begun
		}
		longest = max(longest, time.Since(last))
		if longest > meshInterval+meshSlack {
			return Step{}, fmt.Errorf("%s waited %s for a push, want %s and little more", tenant, longest, meshInterval)
		}
		return Step{Outcome: "waits " + Duration(meshMillis(longest)) + " at most", OK: true}, nil
	})
}

func meshMillis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// TestMapperProvider shows that one line heals a cluster.Cluster, with no fork and
// no call of Reset. ResetOnNoMatch has nothing to reset on stock, and says so.
func TestMapperProvider(t *testing.T) {
	e := &environment{ctx: t.Context(), program: "multicluster", builds: []build{{"stock", "stock " + tree.Newest(), ""}, {"provider", "provider", ""}}}
	e.server, e.config = startServer(t.Context(), t)
	r := e.replay(t, "M3", "MapperProvider alone: a kind comes after a lookup")
	r.install(r.kind("Tunnel", "v1"))
	peer := schema.GroupKind{Group: r.group, Kind: "Peer"}
	mappers := map[*side]meta.RESTMapper{}
	for _, s := range r.sides {
		c, err := cluster.New(&rest.Config{Host: s.gateway.server.URL}, func(opts *cluster.Options) {
			if s.result.Ours {
				opts.MapperProvider = apiutil.NewDynamicRESTMapper
			}
		})
		must(t, err)
		mappers[s] = c.GetRESTMapper()
		if _, err := mappers[s].RESTMapping(peer); !meta.IsNoMatchError(err) {
			t.Fatalf("%s: got error %v, want a NoMatch", s.result.Build, err)
		}
	}
	r.install(r.kind("Peer", "v2"))
	r.both("look up Peer", func(s *side) (Step, error) {
		return s.try(s.tries(), func() (outcome string, right bool, requests int, err error) {
			begun := time.Now()
			_, err = mappers[s].RESTMapping(peer)
			return fmt.Sprintf("found: %t", err == nil), err == nil, s.discoveries(begun), nil
		})
	})
	r.both("ResetOnNoMatch", func(s *side) (Step, error) {
		reset := apiutil.ResetOnNoMatch(&meta.NoKindMatchError{GroupKind: peer}, mappers[s])
		_, err := mappers[s].RESTMapping(peer)
		if reset != s.result.Ours || (err == nil) != s.result.Ours {
			return Step{}, fmt.Errorf("ResetOnNoMatch returned %t, and the lookup after it %w", reset, err)
		}
		return Step{Outcome: fmt.Sprint(reset), OK: reset}, nil
	})
	r.judge(false)
}
