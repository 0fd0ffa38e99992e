// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/freshmapper/freshmapper/apiutil"
)

// TestCachedDiscovery has client-go's deferred mapper over a cached discovery of ours, beside
// the mapper itself: a kind comes, comes back with another scope, and then an APIService has no
// backend. apiutil/testdata/stories/discovery.txt has all else.
func TestCachedDiscovery(t *testing.T) {
	ctx := t.Context()
	s, cfg := startServer(ctx, t)
	httpClient, err := rest.HTTPClientFor(cfg)
	must(t, err)
	mapper, err := apiutil.NewDynamicRESTMapperWithOptions(cfg, httpClient, apiutil.DynamicRESTMapperOptions{})
	must(t, err)
	cached := apiutil.NewCachedDiscovery(mapper, s.discovery)
	mappers := map[string]meta.ResettableRESTMapper{
		"the mapper": mapper,
		"deferred":   restmapper.NewDeferredDiscoveryRESTMapper(cached),
		"deferred, with context": restmapper.NewDeferredDiscoveryRESTMapperWithContext(
			discovery.ToCachedDiscoveryInterfaceWithContext(apiutil.NewCachedDiscovery(mapper, s.discovery))),
	}
	widget := Kind{Group: "view.example.com", Kind: "Widget", Versions: []string{"v1"}}
	want := func(when string, scope meta.RESTScope) {
		t.Helper()
		for name, m := range mappers {
			mapping, err := m.RESTMapping(schema.GroupKind{Group: widget.Group, Kind: widget.Kind})
			if scope == nil && !meta.IsNoMatchError(err) || scope != nil && (err != nil || mapping.Scope != scope) {
				t.Errorf("%s, %s: %v, %v", when, name, mapping, err)
			}
		}
	}
	want("before", nil)
	must(t, s.Settle(ctx, widget))
	want("the kind has come", meta.RESTScopeNamespace)
	must(t, s.Uninstall(ctx, widget))
	widget.Cluster = true
	must(t, s.Settle(ctx, widget))
	for _, m := range mappers {
		m.Reset()
	}
	want("another scope, and the mappers reset", meta.RESTScopeRoot)

	before, err := cached.ServerPreferredResources()
	must(t, err)
	dead := makeDeadAPIService(t, s)
	cached.Invalidate()
	after, err := cached.ServerPreferredResources()
	failed, _ := discovery.GroupDiscoveryFailedErrorGroups(err)
	if len(failed) != 1 || failed[dead] == nil {
		t.Errorf("with a dead APIService: %v", err)
	}
	if !slices.Equal(namesOf(before), namesOf(after)) {
		t.Errorf("with a dead APIService: %q; want %q", namesOf(after), namesOf(before))
	}
	want("beside a dead APIService", meta.RESTScopeRoot)
}

func namesOf(lists []*metav1.APIResourceList) (names []string) {
	for _, list := range lists {
		for _, r := range list.APIResources {
			names = append(names, list.GroupVersion+" "+r.Name)
		}
	}
	slices.Sort(names)
	return names
}

// makeDeadAPIService makes an APIService without a backend, and waits until the server says so.
func makeDeadAPIService(t *testing.T, s *Server) schema.GroupVersion {
	gv := schema.GroupVersion{Group: "dead.example.com", Version: "v1"}
	must(t, s.Client.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1." + gv.Group},
		"spec": map[string]any{
			"group": gv.Group, "version": gv.Version, "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
			"insecureSkipTLSVerify": true, "service": map[string]any{"namespace": "default", "name": "dead"},
		},
	}}), s.await(t.Context(), "the dead APIService in the document", func() (bool, error) {
		group, err := s.group(t.Context(), gv.Group)
		_, _, failed, errs := s.discovery.GroupsAndMaybeResources()
		return err == nil && errs == nil && (has(group, []string{gv.Version}) && !s.aggregated || len(failed) > 0), nil
	}))
	return gv
}
