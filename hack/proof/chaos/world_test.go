// SPDX-License-Identifier: Apache-2.0

package chaos

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
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/hack/control"
	"github.com/freshmapper/freshmapper/hack/proof/internal/campaign"
)

// steady are kinds that are served throughout. The custom ones are one alone in its
// group, and one beside others that come and go.
var steady = []campaign.Kind{
	{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: "pods"},
	{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Node"}, Resource: "nodes", Cluster: true},
	{GroupVersionKind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, Resource: "deployments"},
	{GroupVersionKind: schema.GroupVersionKind{Group: "steady.example.com", Version: "v1", Kind: "Rock"}, Resource: "rocks"},
	{GroupVersionKind: schema.GroupVersionKind{Group: "mixed.example.com", Version: "v1", Kind: "Cliff"}, Resource: "cliffs", Cluster: true},
}

// churned are kinds that come and go, in a group of their own and in one with a kind
// that stays.
var churned = []churn{
	{"churn.example.com", "Leaf", []string{"v1"}},
	{"churn.example.com", "Wave", []string{"v1", "v2"}},
	{"mixed.example.com", "Sand", []string{"v1"}},
	{"mixed.example.com", "Dune", []string{"v2", "v1"}},
	{"gusts.example.com", "Gust", []string{"v1"}},
}

type churn struct {
	group, kind string
	versions    []string
}

func (c churn) gvk(version string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: c.group, Version: version, Kind: c.kind}
}

// never are kinds that are never served, in groups that are and one that is not.
var never = []schema.GroupVersionKind{
	{Group: "steady.example.com", Version: "v1", Kind: "Ghost"},
	{Group: "steady.example.com", Version: "v9", Kind: "Rock"},
	{Group: "mixed.example.com", Version: "v1", Kind: "Ghost"},
	{Group: "never.example.com", Version: "v1", Kind: "Ghost"},
	{Version: "v1", Kind: "Ghost"},
}

// The kinds in never are neither steady nor churned.
func TestNeverIsNever(t *testing.T) {
	for _, gvk := range never {
		for _, k := range steady {
			if k.GroupVersionKind == gvk {
				t.Errorf("%s is served throughout", gvk)
			}
		}
		for _, k := range churned {
			for _, v := range k.versions {
				if k.gvk(v) == gvk {
					t.Errorf("%s comes and goes", gvk)
				}
			}
		}
	}
}

// server is an API server as an administrator sees it.
type server struct {
	crds dynamic.ResourceInterface
	live discovery.DiscoveryInterface
}

func newServer(process *control.Process) (*server, error) {
	crds, err := process.CRDs()
	if err != nil {
		return nil, err
	}
	config := process.Config()
	config.Timeout = 10 * time.Second
	live, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return &server{crds, live.WithLegacy()}, nil
}

// truth is what a server serves, by its live endpoints: resource and scope.
func (s *server) truth() (map[schema.GroupVersionKind]string, error) {
	_, lists, err := s.live.ServerGroupsAndResources()
	if err != nil {
		return nil, err
	}
	served := map[schema.GroupVersionKind]string{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if gvk := gv.WithKind(r.Kind); !strings.Contains(r.Name, "/") && served[gvk] == "" {
				served[gvk] = describe(r.Name, r.Namespaced)
			}
		}
	}
	return served, nil
}

func describe(resource string, namespaced bool) string {
	return fmt.Sprintf("%s %t", resource, namespaced)
}

// install creates the custom kinds that are served throughout, and waits until every
// server serves them.
func (l *load) install() error {
	for _, k := range steady {
		if strings.HasSuffix(k.Group, ".example.com") {
			if _, err := l.servers[0].crds.Create(l.Ctx, control.CRD(k.Group, k.Kind, k.Cluster, k.Version), metav1.CreateOptions{}); err != nil {
				return err
			}
		}
	}
	missing := ""
	_, ok := within(l.Ctx, time.Minute, func() bool {
		missing = ""
		for _, s := range l.servers {
			truth, err := s.truth()
			for _, k := range steady {
				if truth[k.GroupVersionKind] == "" {
					missing = fmt.Sprintf("%s (%v)", k, err)
				}
			}
		}
		return missing == ""
	})
	if !ok {
		return fmt.Errorf("a server does not serve %s", missing)
	}
	return nil
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

// churn creates, deletes and changes CRDs, half of the time each kind is there.
func (l *load) churn(ctx context.Context) {
	for r := l.Random(100); ctx.Err() == nil; {
		l.churning.Lock()
		k, crds := churned[r.IntN(len(churned))], l.servers[r.IntN(len(l.servers))].crds
		crd := control.CRD(k.group, k.kind, r.IntN(2) == 0, k.versions...)
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
		l.churning.Unlock()
		campaign.Pause(ctx, time.Duration(r.Int64N(int64(1500*time.Millisecond))))
	}
}

// toggle takes the last of several versions of a CRD out of service, or back in.
func toggle(crd map[string]any) {
	spec, _ := crd["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	if len(versions) < 2 {
		return
	}
	last, _ := versions[len(versions)-1].(map[string]any)
	on, _ := last["served"].(bool)
	last["served"] = !on
}

// view is what a subscriber has been told is served.
type view struct {
	mu     sync.Mutex
	served map[schema.GroupVersionKind]string
}

// follow takes a pause after each message, as a slow receiver does.
func (v *view) follow(changes <-chan []apiutil.APIChange, pause time.Duration) {
	for batch := range changes {
		v.mu.Lock()
		for _, change := range batch {
			m := change.Mapping
			if change.Type == apiutil.APIRemoved {
				delete(v.served, m.GroupVersionKind)
			} else {
				v.served[m.GroupVersionKind] = describe(m.Resource.Resource, m.Scope.Name() == meta.RESTScopeNameNamespace)
			}
		}
		v.mu.Unlock()
		time.Sleep(pause)
	}
}

func (v *view) is(truth map[schema.GroupVersionKind]string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Equal(v.served, truth)
}

func TestView(t *testing.T) {
	gvk := steady[3].GroupVersionKind
	v := &view{served: map[schema.GroupVersionKind]string{gvk: describe("rocks", true)}}
	if !v.is(map[schema.GroupVersionKind]string{gvk: "rocks true"}) || v.is(nil) || v.is(map[schema.GroupVersionKind]string{gvk: "rocks false"}) {
		t.Error("a view is not what it is")
	}
}
