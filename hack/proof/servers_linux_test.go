// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"context"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/hack/control"
	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

// What the real API servers serve. Of the custom kinds that stay, one is alone in its group, and one beside others that
// come and go; of those that come and go, some have a group of their own. Those that never are served are in groups
// that are, and in one that is not.
var (
	builtin = []kind{
		{gvk: gvk{Version: "v1", Kind: "Pod"}, resource: "pods"},
		{gvk: gvk{Version: "v1", Kind: "Node"}, resource: "nodes", cluster: true},
		{gvk: gvk{Group: "apps", Version: "v1", Kind: "Deployment"}, resource: "deployments"},
	}
	custom = []kind{
		{gvk: gvk{Group: "steady.example.com", Version: "v1", Kind: "Rock"}, resource: "rocks"},
		{gvk: gvk{Group: "mixed.example.com", Version: "v1", Kind: "Cliff"}, resource: "cliffs", cluster: true},
	}
	churned = []gvk{
		{Group: "churn.example.com", Version: "v1", Kind: "Leaf"}, {Group: "churn.example.com", Version: "v1", Kind: "Wave"},
		{Group: "mixed.example.com", Version: "v1", Kind: "Sand"}, {Group: "mixed.example.com", Version: "v1", Kind: "Dune"},
		{Group: "gusts.example.com", Version: "v1", Kind: "Gust"},
	}
	neverServed = []gvk{
		{Group: "steady.example.com", Version: "v1", Kind: "Ghost"},
		{Group: "steady.example.com", Version: "v9", Kind: "Rock"},
		{Group: "mixed.example.com", Version: "v1", Kind: "Ghost"},
		{Group: "never.example.com", Version: "v1", Kind: "Ghost"},
		{Version: "v1", Kind: "Ghost"},
	}
)

// busy is the load on a mapper of real API servers.
func busy(c *report.Campaign) *load {
	return &load{
		Campaign: c, steady: slices.Concat(builtin, custom), churned: churned, never: neverServed, took: map[string][]time.Duration{},
		resetting: 8, waiting: 3, missing: 69, churning: 40, rest: 40 * time.Millisecond,
	}
}

// newPlane starts a control plane, which ends with the test.
func newPlane(c *report.Campaign, servers int) *control.Plane {
	c.Helper()
	if !report.Written() && os.Getenv("KUBEBUILDER_ASSETS") == "" {
		c.Skip("KUBEBUILDER_ASSETS is not set")
	}
	assets, err := control.Assets()
	c.Must(err)
	p, err := control.Start(c.Ctx, assets, servers)
	c.Must(err)
	c.Cleanup(func() { _ = p.Stop() }) // what may be left is in a temporary folder
	return p
}

// world is a control plane whose CRDs come and go, and a mapper that many use at once.
type world struct {
	*load
	plane   *control.Plane
	front   *front
	admins  []*admin
	churn   sync.Mutex   // held by whoever wants the API to stand still
	changes atomic.Int64 // of CRDs

	m       *apiutil.DynamicRESTMapper
	views   []*sync.Map // what subscribers have been told is served
	running sync.WaitGroup
}

// newWorld also creates the custom kinds that are served throughout, and waits until every server serves them.
func newWorld(l *load, servers int) *world {
	w := &world{load: l, plane: newPlane(l.Campaign, servers)}
	w.front = newFront(l.Campaign, w.plane.Servers...)
	for _, process := range w.plane.Servers {
		w.admins = append(w.admins, newAdmin(l.Campaign, process))
	}
	for _, k := range custom {
		_, err := w.admins[0].crds.Create(w.Ctx, newCRD(k.gvk, k.cluster, k.Version), metav1.CreateOptions{})
		l.Must(err)
	}
	w.await("custom kinds are served", time.Minute, func() bool {
		return w.all(func(truth map[any]any) bool {
			return !slices.ContainsFunc(w.steady, func(k kind) bool { return truth[k.gvk] == nil })
		})
	})
	return w
}

// all reports whether something is true of what each server serves.
func (w *world) all(is func(truth map[any]any) bool) bool {
	return !slices.ContainsFunc(w.admins, func(a *admin) bool {
		truth, err := a.truth()
		return err != nil || !is(truth)
	})
}

// change creates, deletes and changes CRDs, half of the time each kind is there.
func (w *world) change(ctx context.Context) {
	for r := w.Random(1000*len(w.admins) + 100); ctx.Err() == nil; {
		w.churn.Lock()
		crds := w.admins[r.IntN(len(w.admins))].crds
		crd := newCRD(churned[r.IntN(len(churned))], r.IntN(2) == 0, [][]string{{"v1"}, {"v1", "v2"}, {"v2", "v1"}}[r.IntN(3)]...)
		switch r.IntN(4) {
		case 0, 1:
			_, _ = crds.Create(ctx, crd, metav1.CreateOptions{})
		case 2:
			_ = crds.Delete(ctx, crd.GetName(), metav1.DeleteOptions{})
		default: // one of two versions is not served for a while
			patch := fmt.Appendf(nil, `[{"op": "replace", "path": "/spec/versions/1/served", "value": %t}]`, r.IntN(2) == 0)
			_, _ = crds.Patch(ctx, crd.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{})
		}
		w.churn.Unlock()
		w.changes.Add(1)
		report.Pause(ctx, time.Duration(r.Int64N(int64(1500*time.Millisecond))))
	}
}

type admin struct {
	dynamic.Interface
	crds dynamic.ResourceInterface
	live discovery.DiscoveryInterface
}

func newAdmin(c *report.Campaign, process *control.Process) *admin {
	config := process.Config()
	config.Timeout = 10 * time.Second
	client := dynamic.NewForConfigOrDie(config)
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	return &admin{client, crds, discovery.NewDiscoveryClientForConfigOrDie(config).WithLegacy()}
}

// newCRD is the CustomResourceDefinition of a kind, whose versions are all served.
func newCRD(of gvk, cluster bool, versions ...string) *unstructured.Unstructured {
	var all []any
	for i, v := range versions {
		all = append(all, map[string]any{"name": v, "served": true, "storage": i == 0, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}})
	}
	singular, scope := strings.ToLower(of.Kind), map[bool]string{false: "Namespaced", true: "Cluster"}[cluster]
	crd := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": map[string]any{
		"group": of.Group, "scope": scope, "versions": all,
		"names": map[string]any{"kind": of.Kind, "plural": singular + "s", "singular": singular},
	}}}
	crd.SetName(singular + "s." + of.Group)
	return crd
}

// truth is what a server serves, by its live endpoints: resource and scope.
func (a *admin) truth() (map[any]any, error) {
	_, lists, err := a.live.ServerGroupsAndResources()
	served := map[any]any{}
	for _, list := range lists {
		for _, r := range list.APIResources {
			if of := schema.FromAPIVersionAndKind(list.GroupVersion, r.Kind); !strings.Contains(r.Name, "/") && served[of] == nil {
				served[of] = fmt.Sprintf("%s %t", r.Name, r.Namespaced)
			}
		}
	}
	return served, err
}

// front is one address for API servers. It sends each request to the next of them, whatever
// that one's state, and answers 502 for one that is down. Without servers it answers 404 to
// everything, as an ingress does that has lost its route.
type front struct {
	*httptest.Server
	to    atomic.Pointer[[]*control.Process]
	turn  atomic.Uint64
	proxy httputil.ReverseProxy
	token string
}

func newFront(c *report.Campaign, to ...*control.Process) *front {
	cfg := to[0].Config()
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: cfg.TLSClientConfig})
	c.Must(err)
	f := &front{token: cfg.BearerToken}
	f.proxy = httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			to := *f.to.Load()
			if len(to) > 0 { // if not, the route was lost a moment ago
				r.SetURL(&url.URL{Scheme: "https", Host: to[f.turn.Add(1)%uint64(len(to))].Address})
			}
		},
		Transport:     transport,
		FlushInterval: -1, // watches
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	f.Server = httptest.NewServer(f)
	c.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
	})
	f.lead(to...)
	return f
}

func (f *front) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch {
	case len(*f.to.Load()) > 0:
		f.proxy.ServeHTTP(w, req)
	case f.turn.Add(1)%2 == 0:
		http.Error(w, "default backend - 404", http.StatusNotFound)
	default:
		http.NotFound(w, req) // as a kube-apiserver, except for the Audit-Id
	}
}

// lead changes where the requests go. Connections are cut.
func (f *front) lead(to ...*control.Process) {
	f.to.Store(&to)
	f.CloseClientConnections()
}

func (f *front) config() *rest.Config {
	return &rest.Config{Host: f.URL, BearerToken: f.token, QPS: -1}
}

// has reports whether these are all that a map has.
func has(m *sync.Map, want map[any]any) bool {
	got := map[any]any{}
	m.Range(func(k, v any) bool {
		got[k] = v
		return true
	})
	return maps.Equal(got, want)
}
