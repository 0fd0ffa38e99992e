// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/freshmapper/freshmapper/apiutil"
)

// view is a cached discovery of ours, and mappers to compare: ours; a deferred mapper over the
// view as client-go makes it, and one from client-go's adapter to its interfaces with a context.
type view struct {
	discovery.CachedDiscoveryInterface
	mapper  *apiutil.DynamicRESTMapper
	mappers map[string]meta.ResettableRESTMapper
	gateway *Gateway // of the discovery client alone
}

func newDiscoveryView(t *testing.T, s *Server, cfg *rest.Config) *view {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(cfg)
	must(t, err)
	v := &view{gateway: newGateway(t, s)}
	v.mapper, err = apiutil.NewDynamicRESTMapperWithOptions(cfg, httpClient, apiutil.DynamicRESTMapperOptions{})
	must(t, err)
	client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: v.gateway.server.URL})
	must(t, err)
	v.CachedDiscoveryInterface = apiutil.NewCachedDiscovery(v.mapper, client)
	v.mappers = map[string]meta.ResettableRESTMapper{
		"the mapper": v.mapper,
		"deferred":   restmapper.NewDeferredDiscoveryRESTMapper(v),
		"deferred, with context": restmapper.NewDeferredDiscoveryRESTMapperWithContext(
			discovery.ToCachedDiscoveryInterfaceWithContext(apiutil.NewCachedDiscovery(v.mapper, client))),
	}
	return v
}

// wantMapping looks a kind up through each of the mappers, after before.
func (v *view) wantMapping(t *testing.T, when string, kind Kind, want string, before func(meta.ResettableRESTMapper)) {
	t.Helper()
	for name, m := range v.mappers {
		if before != nil {
			before(m)
		}
		got := "no match"
		mapping, err := m.RESTMapping(schema.GroupKind{Group: kind.Group, Kind: kind.Kind})
		if err == nil {
			got = fmt.Sprint(mapping.GroupVersionKind.Version, " ", mapping.Scope.Name())
		} else if !meta.IsNoMatchError(err) {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s, %s of %s: %s; want %s", when, name, kind.Kind, got, want)
		}
	}
}

// reads counts the requests of the discovery client since then.
func (v *view) reads(since time.Time) int {
	return len(v.gateway.Calls(since, func(Call) bool { return true }))
}

// TestCachedDiscovery follows R1 to R5 of TestHeal, over client-go's deferred mapper.
func TestCachedDiscovery(t *testing.T) {
	ctx := t.Context()
	s, cfg := startServer(ctx, t)
	v := newDiscoveryView(t, s, cfg)
	reset := meta.ResettableRESTMapper.Reset
	widget := Kind{Group: "view.example.com", Kind: "Widget", Versions: []string{"v1"}}
	gadget := Kind{Group: "view.example.com", Kind: "Gadget", Versions: []string{"v2"}}
	absent := Kind{Group: "view.example.com", Kind: "Absent"}

	must(t, s.Settle(ctx, widget))
	v.wantMapping(t, "before", widget, "v1 namespace", nil)
	v.wantMapping(t, "before", gadget, "no match", nil)
	must(t, s.Settle(ctx, gadget))
	v.wantMapping(t, "R1, R2: a version has come", gadget, "v2 namespace", nil)

	must(t, s.Uninstall(ctx, gadget))
	v.wantMapping(t, "R3: the kind is gone, and the mapper reset", gadget, "no match", reset)

	must(t, s.Uninstall(ctx, widget))
	widget.Cluster = true
	must(t, s.Settle(ctx, widget))
	v.wantMapping(t, "R4: another scope, and the mapper reset", widget, "v1 root", reset)

	widget.Versions = []string{"v1", "v2"}
	must(t, s.Settle(ctx, widget))
	v.wantMapping(t, "R5: another preferred version, and a miss", widget, "v2 root", func(m meta.ResettableRESTMapper) {
		_, _ = m.RESTMapping(schema.GroupKind{Group: absent.Group, Kind: absent.Kind})
	})
	widget.Versions = []string{"v1", "v2", "v3"}
	must(t, s.Settle(ctx, widget))
	v.wantMapping(t, "R5: another preferred version, and a reset", widget, "v3 root", reset)
	v.readsOncePerChange(t, s)
	v.besideADeadAPIService(t, s, widget)
}

// readsOncePerChange counts requests of the discovery client.
func (v *view) readsOncePerChange(t *testing.T, s *Server) {
	preferred := func() []string {
		lists, err := v.ServerPreferredResources()
		must(t, err)
		return namesOf(lists)
	}
	preferred()
	begun := time.Now()
	for range 100 {
		preferred()
	}
	time.Sleep(8 * time.Second) // it reads again after 10
	preferred()
	if n := v.reads(begun); n != 0 {
		t.Errorf("%d requests, although nothing has changed", n)
	}
	begun = time.Now()
	late := Kind{Group: "view.example.com", Kind: "Late", Versions: []string{"v1"}}
	must(t, s.Settle(t.Context(), late), v.mapper.Refresh(t.Context()))
	if got := preferred(); !slices.Contains(got, "view.example.com/v1 lates") {
		t.Errorf("after a change: %q", got)
	}
	if n := v.reads(begun); n != 2 && s.aggregated {
		t.Errorf("%d requests after a change, want /api and /apis", n)
	}
	begun = time.Now()
	const uses = 10000
	for range uses {
		_, err := v.ServerResourcesForGroupVersion("apps/v1")
		must(t, err)
	}
	t.Logf("a use: %v", time.Since(begun)/uses)
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

// besideADeadAPIService makes an APIService without a backend.
func (v *view) besideADeadAPIService(t *testing.T, s *Server, widget Kind) {
	before, err := v.ServerPreferredResources()
	must(t, err)
	dead := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1.dead.example.com"},
		"spec": map[string]any{
			"group": "dead.example.com", "version": "v1", "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
			"insecureSkipTLSVerify": true, "service": map[string]any{"namespace": "default", "name": "dead"},
		},
	}}
	must(t, s.Client.Create(t.Context(), dead))
	must(t, s.await(t.Context(), "the dead APIService in the document", func() (bool, error) {
		group, err := s.group(t.Context(), "dead.example.com")
		_, _, failed, errs := s.discovery.GroupsAndMaybeResources()
		return err == nil && errs == nil && (has(group, []string{"v1"}) && !s.aggregated || len(failed) > 0), nil
	}))
	v.Invalidate()
	after, err := v.ServerPreferredResources()
	failed, _ := discovery.GroupDiscoveryFailedErrorGroups(err)
	if len(failed) != 1 || failed[schema.GroupVersion{Group: "dead.example.com", Version: "v1"}] == nil {
		t.Errorf("with a dead APIService: %v", err)
	}
	if !slices.Equal(namesOf(before), namesOf(after)) {
		t.Errorf("with a dead APIService: %q; want %q", namesOf(after), namesOf(before))
	}
	v.wantMapping(t, "beside a dead APIService", widget, "v3 root", meta.ResettableRESTMapper.Reset)
	must(t, s.Client.Delete(t.Context(), dead))
}
