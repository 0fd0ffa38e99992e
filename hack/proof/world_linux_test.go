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
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/hack/control"
)

// What the API servers of the chaos serve. Of the custom kinds that stay, one is alone in
// its group, and one beside others that come and go; of those that come and go, some have
// a group of their own. Those that never are served are in groups that are, and in one
// that is not.
var (
	chaosSteady = []kind{
		{gvk: gvk{Version: "v1", Kind: "Pod"}, resource: "pods"},
		{gvk: gvk{Version: "v1", Kind: "Node"}, resource: "nodes", cluster: true},
		{gvk: gvk{Group: "apps", Version: "v1", Kind: "Deployment"}, resource: "deployments"},
		{gvk: gvk{Group: "steady.example.com", Version: "v1", Kind: "Rock"}, resource: "rocks"},
		{gvk: gvk{Group: "mixed.example.com", Version: "v1", Kind: "Cliff"}, resource: "cliffs", cluster: true},
	}
	churnedCRDs = []struct {
		group, kind string
		versions    []string
	}{
		{"churn.example.com", "Leaf", []string{"v1"}},
		{"churn.example.com", "Wave", []string{"v1", "v2"}},
		{"mixed.example.com", "Sand", []string{"v1"}},
		{"mixed.example.com", "Dune", []string{"v2", "v1"}},
		{"gusts.example.com", "Gust", []string{"v1"}},
	}
	chaosNever = []gvk{
		{Group: "steady.example.com", Version: "v1", Kind: "Ghost"},
		{Group: "steady.example.com", Version: "v9", Kind: "Rock"},
		{Group: "mixed.example.com", Version: "v1", Kind: "Ghost"},
		{Group: "never.example.com", Version: "v1", Kind: "Ghost"},
		{Version: "v1", Kind: "Ghost"},
	}
)

// world is a control plane, and what is asked of the mappers of its API servers, while CRDs
// come and go.
type world struct {
	*load
	plane   *control.Plane
	servers []*server
	churn   sync.Mutex   // held by whoever wants the API to stand still
	changes atomic.Int64 // of CRDs
}

// newWorld starts a control plane, which ends with the test.
func newWorld(l *load, servers int) (*world, error) {
	l.Helper()
	if *out == "" && os.Getenv("KUBEBUILDER_ASSETS") == "" {
		l.Skip("KUBEBUILDER_ASSETS is not set")
	}
	assets, err := control.Assets()
	if err != nil {
		return nil, err
	}
	w := &world{load: l}
	if w.plane, err = control.Start(l.ctx, assets, servers); err != nil {
		return nil, err
	}
	l.Cleanup(func() { _ = w.plane.Stop() }) // what may be left is in a temporary folder
	l.churned = nil
	for _, crd := range churnedCRDs {
		l.churned = append(l.churned, schema.FromAPIVersionAndKind(crd.group+"/v1", crd.kind))
	}
	for _, process := range w.plane.Servers {
		s, err := newServer(process)
		if err != nil {
			return nil, err
		}
		w.servers = append(w.servers, s)
	}
	return w, w.install()
}

// server is an API server as an administrator sees it.
type server struct {
	crds dynamic.ResourceInterface
	live discovery.DiscoveryInterface
}

func newServer(process *control.Process) (*server, error) {
	client, err := dynamic.NewForConfig(process.Config())
	if err != nil {
		return nil, err
	}
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	config := process.Config()
	config.Timeout = 10 * time.Second
	live, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return &server{crds, live.WithLegacy()}, nil
}

// newCRD is the CustomResourceDefinition of a kind, whose versions are all served.
func newCRD(group, kind string, cluster bool, versions ...string) *unstructured.Unstructured {
	scope := "Namespaced"
	if cluster {
		scope = "Cluster"
	}
	var list []any
	for i, v := range versions {
		list = append(list, map[string]any{
			"name": v, "served": true, "storage": i == 0,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
		})
	}
	singular := strings.ToLower(kind)
	plural := singular + "s"
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + group},
		"spec": map[string]any{
			"group": group, "scope": scope, "versions": list,
			"names": map[string]any{"kind": kind, "plural": plural, "singular": singular},
		},
	}}
}

// truth is what a server serves, by its live endpoints: resource and scope.
func (s *server) truth() (map[gvk]string, error) {
	_, lists, err := s.live.ServerGroupsAndResources()
	if err != nil {
		return nil, err
	}
	served := map[gvk]string{}
	for _, list := range lists {
		for _, r := range list.APIResources {
			if of := schema.FromAPIVersionAndKind(list.GroupVersion, r.Kind); !strings.Contains(r.Name, "/") && served[of] == "" {
				served[of] = fmt.Sprintf("%s %t", r.Name, r.Namespaced)
			}
		}
	}
	return served, nil
}

// install creates the custom kinds that are served throughout, and waits until every
// server serves them.
func (w *world) install() error {
	for _, k := range w.steady {
		if strings.HasSuffix(k.Group, ".example.com") {
			if _, err := w.servers[0].crds.Create(w.ctx, newCRD(k.Group, k.Kind, k.cluster, k.Version), metav1.CreateOptions{}); err != nil {
				return err
			}
		}
	}
	var missing error
	_, _ = within(w.ctx, time.Minute, func() bool {
		missing = nil
		for _, s := range w.servers {
			truth, err := s.truth()
			for _, k := range w.steady {
				if truth[k.gvk] == "" {
					missing = fmt.Errorf("a server does not serve %s (%w)", k.gvk, err)
				}
			}
		}
		return missing == nil
	})
	return missing
}

// balance makes one address for all API servers of a control plane. It sends each
// request to the next of them, whatever that one's state, and answers 502 for one that
// is down: the worst that may stand before a server.
func balance(plane *control.Plane) (*httptest.Server, error) {
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: plane.Servers[0].Config().TLSClientConfig})
	if err != nil {
		return nil, err
	}
	var turn atomic.Uint64
	return httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			next := plane.Servers[turn.Add(1)%uint64(len(plane.Servers))]
			r.SetURL(&url.URL{Scheme: "https", Host: next.Address})
		},
		Transport:     transport,
		FlushInterval: -1, // watches
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}), nil
}

// change creates, deletes and changes CRDs, half of the time each kind is there.
func (w *world) change(ctx context.Context) {
	for r := w.random(1000*len(w.servers) + 100); ctx.Err() == nil; {
		w.churn.Lock()
		k, crds := churnedCRDs[r.IntN(len(churnedCRDs))], w.servers[r.IntN(len(w.servers))].crds
		crd := newCRD(k.group, k.kind, r.IntN(2) == 0, k.versions...)
		switch r.IntN(4) {
		case 0, 1:
			_, _ = crds.Create(ctx, crd, metav1.CreateOptions{})
		case 2:
			_ = crds.Delete(ctx, crd.GetName(), metav1.DeleteOptions{})
		default: // one of its versions is not served for a while
			if have, err := crds.Get(ctx, crd.GetName(), metav1.GetOptions{}); err == nil {
				toggle(have.Object)
				_, _ = crds.Update(ctx, have, metav1.UpdateOptions{})
			}
		}
		w.churn.Unlock()
		w.changes.Add(1)
		pause(ctx, time.Duration(r.Int64N(int64(1500*time.Millisecond))))
	}
}

// toggle takes the last of several versions of a CRD out of service, or back in.
func toggle(crd map[string]any) {
	spec, _ := crd["spec"].(map[string]any)
	if versions, _ := spec["versions"].([]any); len(versions) > 1 {
		last, _ := versions[len(versions)-1].(map[string]any)
		last["served"] = last["served"] != true
	}
}

// view is what a subscriber has been told is served.
type view struct {
	mu     sync.Mutex
	served map[gvk]string
}

// follow takes a pause after each message, as a slow receiver does.
func (v *view) follow(changes <-chan []apiutil.APIChange, slow time.Duration) {
	for batch := range changes {
		v.mu.Lock()
		for _, change := range batch {
			m := change.Mapping
			if change.Type == apiutil.APIRemoved {
				delete(v.served, m.GroupVersionKind)
			} else {
				v.served[m.GroupVersionKind] = fmt.Sprintf("%s %t", m.Resource.Resource, m.Scope.Name() == meta.RESTScopeNameNamespace)
			}
		}
		v.mu.Unlock()
		time.Sleep(slow)
	}
}

func (v *view) is(truth map[gvk]string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Equal(v.served, truth)
}
