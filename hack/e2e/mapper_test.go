// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	stock "sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/freshmapper/freshmapper/apiutil"
)

// beside has our mapper and stock's, of one server, each as a story begins: new, and with a group of its own.
type beside struct {
	t           *testing.T
	s           *Server
	group       string
	ours, stock meta.RESTMapper
	asked       *recorder // by ours
}

// TestMapperBesideStock has what the mapper is for: what ours finds at the first lookup after a change of the server,
// and stock's never.
func TestMapperBesideStock(t *testing.T) {
	t.Parallel()
	s, cfg := startServer(t.Context(), t)
	transport, err := rest.TransportFor(cfg)
	must(t, err)
	httpClient, err := rest.HTTPClientFor(cfg)
	must(t, err)
	for group, tell := range map[string]func(*beside){
		"version-appears-after-its-group-was-read": func(b *beside) {
			b.settle("Anchor", false, "v1")
			b.want("Widget", "no match", "no match")
			must(t, s.Install(t.Context(), b.kind("Widget", false, "v2")))
			b.want("Widget", "v2 namespace", "no match")
		},
		"new-group-with-its-version": func(b *beside) { // stock gets this right: it asks for a version that it does not know
			b.want("Widget", "no match", "no match", "v1")
			must(t, s.Install(t.Context(), b.kind("Widget", false, "v1")))
			b.asked.take()
			b.want("Widget", "v1 namespace", "v1 namespace", "v1")
			if paths := b.asked.take(); len(paths) != 1 {
				t.Errorf("a lookup with its version asked for %q, want that version alone", paths)
			}
		},
		"kind-comes-then-reset": func(b *beside) {
			b.settle("Anchor", false, "v1")
			b.want("Widget", "no match", "no match")
			b.settle("Widget", false, "v2")
			b.reset()
			b.want("Widget", "v2 namespace", "no match")
		},
		"kind-goes-then-reset": func(b *beside) {
			b.settle("Widget", false, "v1")
			b.want("Widget", "v1 namespace", "v1 namespace")
			must(t, s.Uninstall(t.Context(), b.kind("Widget", false, "v1")))
			b.reset()
			b.want("Widget", "no match", "v1 namespace")
		},
		"other-scope-then-reset": func(b *beside) {
			b.settle("Widget", false, "v1")
			b.want("Widget", "v1 namespace", "v1 namespace")
			must(t, s.Uninstall(t.Context(), b.kind("Widget", false, "v1")))
			b.settle("Widget", true, "v1")
			b.reset()
			b.want("Widget", "v1 root", "v1 namespace")
		},
		"preferred-version-changes-then-a-miss": func(b *beside) {
			b.settle("Widget", false, "v1beta1")
			b.want("Widget", "v1beta1 namespace", "v1beta1 namespace")
			b.settle("Widget", false, "v1beta1", "v1")
			b.want("Widget", "v1beta1 namespace", "v1beta1 namespace") // neither rechecks a hit
			b.want("Absent", "no match", "no match")
			b.want("Widget", "v1 namespace", "v1beta1 namespace")
		},
	} {
		t.Run(group, func(t *testing.T) {
			b := &beside{t: t, s: s, group: group + ".example.com", asked: &recorder{next: transport}}
			ours := newMapperOver(t, cfg, &http.Client{Transport: b.asked})
			theirs, err := stock.NewDynamicRESTMapper(cfg, httpClient)
			must(t, err)
			b.ours, b.stock = ours, theirs
			tell(b)
		})
	}
}

func (b *beside) kind(kind string, cluster bool, versions ...string) Kind {
	return Kind{Group: b.group, Kind: kind, Cluster: cluster, Versions: versions}
}

func (b *beside) settle(kind string, cluster bool, versions ...string) {
	b.t.Helper()
	must(b.t, b.s.Settle(b.t.Context(), b.kind(kind, cluster, versions...)))
}

func (b *beside) reset() {
	meta.MaybeResetRESTMapper(b.ours)
	meta.MaybeResetRESTMapper(b.stock)
}

// want looks a kind up in both mappers, whose answers must be these.
func (b *beside) want(kind, ours, theirs string, versions ...string) {
	b.t.Helper()
	for who, m := range map[string]meta.RESTMapper{"ours": b.ours, "stock's": b.stock} {
		want := map[string]string{"ours": ours, "stock's": theirs}[who]
		mapping, err := m.RESTMapping(schema.GroupKind{Group: b.group, Kind: kind}, versions...)
		got := "no match"
		if err == nil {
			got = strings.Join([]string{mapping.GroupVersionKind.Version, string(mapping.Scope.Name())}, " ")
		} else if !meta.IsNoMatchError(err) {
			got = err.Error()
		}
		if got != want {
			b.t.Errorf("%s finds %s as %q, want %q", who, kind, got, want)
		}
	}
}

// newMapper makes a mapper that reads only what lookups make it read.
func newMapper(t *testing.T, cfg *rest.Config) *apiutil.DynamicRESTMapper {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(cfg)
	must(t, err)
	return newMapperOver(t, cfg, httpClient)
}

func newMapperOver(t *testing.T, cfg *rest.Config, httpClient *http.Client) *apiutil.DynamicRESTMapper {
	t.Helper()
	mapper, err := apiutil.NewDynamicRESTMapperWithOptions(cfg, httpClient, apiutil.DynamicRESTMapperOptions{MaxAge: -1})
	must(t, err)
	return mapper
}
