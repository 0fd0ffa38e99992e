// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/apiutil/discoverycache"
	"github.com/freshmapper/freshmapper/hack/control"
)

// newMapper makes a mapper that reads only what lookups make it read.
func newMapper(t *testing.T, cfg *rest.Config) *apiutil.DynamicRESTMapper {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(cfg)
	must(t, err)
	mapper, err := apiutil.NewDynamicRESTMapperWithOptions(cfg, httpClient, apiutil.DynamicRESTMapperOptions{MaxAge: -1})
	must(t, err)
	return mapper
}

// TestCachedDiscovery has client-go's deferred mapper over a cached discovery of ours, beside
// the mapper itself: a kind comes, comes back with another scope, and then an APIService has no
// backend. apiutil/testdata/stories/discovery.txt has all else.
func TestCachedDiscovery(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, cfg := startServer(ctx, t)
	mapper := newMapper(t, cfg)
	cached := discoverycache.New(mapper, s.discovery)
	mappers := map[string]meta.ResettableRESTMapper{
		"the mapper": mapper,
		"deferred":   restmapper.NewDeferredDiscoveryRESTMapper(cached),
		"deferred, with context": restmapper.NewDeferredDiscoveryRESTMapperWithContext(
			discovery.ToCachedDiscoveryInterfaceWithContext(discoverycache.New(mapper, s.discovery))),
	}
	widget := Kind{Group: "view.example.com", Kind: "Widget", Versions: []string{"v1"}}
	// A reading may end between client-go's calls, for the list of groups and for their versions: another lookup follows.
	want := func(when string, scope meta.RESTScope) {
		t.Helper()
		for name, m := range mappers {
			must(t, await(ctx, when+", "+name, func() (bool, error) {
				mapping, err := m.RESTMapping(schema.GroupKind{Group: widget.Group, Kind: widget.Kind})
				if scope == nil && meta.IsNoMatchError(err) {
					return true, nil
				}
				return err == nil && mapping.Scope == scope, err
			}))
		}
	}
	want("before", nil)
	must(t, s.Settle(ctx, widget))
	want("the kind has come", meta.RESTScopeNamespace)
	reset := func() {
		for _, m := range mappers {
			m.Reset()
		}
	}
	must(t, s.Uninstall(ctx, widget))
	reset()
	want("the kind has gone, and the mappers were reset", nil)
	widget.Cluster = true
	must(t, s.Settle(ctx, widget))
	reset()
	want("another scope, and the mappers were reset", meta.RESTScopeRoot)

	dead := schema.GroupVersion{Group: "dead.example.com", Version: "v1"}
	before, err := cached.ServerPreferredResources()
	must(t, err)
	makeAPIService(t, s, dead, map[string]any{"namespace": "default", "name": "dead"})
	must(t, await(ctx, "the dead APIService in the document", func() (bool, error) {
		_, _, failed, err := s.discovery.GroupsAndMaybeResources()
		return len(failed) > 0, err
	}))
	cached.Invalidate()
	after, err := cached.ServerPreferredResources()
	if failed, _ := discovery.GroupDiscoveryFailedErrorGroups(err); len(failed) != 1 || failed[dead] == nil {
		t.Errorf("with a dead APIService: %v; want an error of %s alone", err, dead)
	}
	if !slices.Equal(namesOf(before), namesOf(after)) {
		t.Errorf("with a dead APIService: %q; want %q as before", namesOf(after), namesOf(before))
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

// Each 404 of an API server, and of an extension server behind it, has an Audit-Id. So it needs no
// second request to be an absence: what mappers make of that is in apiutil/testdata/stories/absence.txt.
func TestAuditIDTellsWhose404ItIs(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, cfg := startServer(ctx, t)
	kind := Kind{Group: "widgets.example.com", Kind: "Widget", Versions: []string{"v1"}}
	gone := Kind{Group: "gone.example.com", Kind: "Gone", Versions: []string{"v1"}}
	must(t, s.Settle(ctx, kind), s.Settle(ctx, gone), s.Uninstall(ctx, gone))
	extension := startExtension(t, s)
	transport, err := rest.TransportFor(cfg)
	must(t, err)
	for _, path := range []string{
		"/apis/absent.example.com", "/apis/absent.example.com/v1", "/apis/widgets.example.com/v9", "/apis/apps/v9", "/api/v9",
		"/apis/gone.example.com", "/apis/gone.example.com/v1", "/apis/extension.example.com/v9", "/apis/" + extension.String() + "/absent",
	} {
		code, header, _ := get(t, transport, cfg.Host+path, "application/json")
		if code != http.StatusNotFound || header.Get("Audit-Id") == "" {
			t.Errorf("GET %s: %d, %v; want a 404 with an Audit-Id", path, code, header)
		}
	}
}

func get(t *testing.T, transport http.RoundTripper, url, accept string) (code int, header http.Header, body []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	must(t, err)
	req.Header.Set("Accept", accept)
	resp, err := transport.RoundTrip(req)
	must(t, err)
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, resp.Header, body
}

// startExtension starts a server behind kube-aggregator, which serves a version of a group without a kind, and puts
// an Audit-Id of its own on each answer.
func startExtension(t *testing.T, s *Server) schema.GroupVersion {
	t.Helper()
	gv := schema.GroupVersion{Group: "extension.example.com", Version: "v1"}
	backend := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Audit-Id", "of-the-extension")
		if r.URL.Path != "/apis/"+gv.String() {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": %q, "resources": []}`, gv)
	}))
	t.Cleanup(backend.Close)
	port := int64(backend.Listener.Addr().(*net.TCPAddr).Port)
	must(t, s.Client.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "extension"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost", Ports: []corev1.ServicePort{{Port: int32(port)}}},
	}))
	makeAPIService(t, s, gv, map[string]any{"namespace": "default", "name": "extension", "port": port})
	must(t, await(t.Context(), "the extension server", func() (bool, error) {
		_, err := s.discovery.ServerResourcesForGroupVersion(gv.String())
		return err == nil, err
	}))
	return gv
}

func makeAPIService(t *testing.T, s *Server, gv schema.GroupVersion, service map[string]any) {
	t.Helper()
	must(t, s.Client.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": gv.Version + "." + gv.Group},
		"spec": map[string]any{
			"group": gv.Group, "version": gv.Version, "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
			"insecureSkipTLSVerify": true, "service": service,
		},
	}}))
}

// Of two API servers over one etcd only the first serves policy/v1, as in an upgrade. The
// second lists it in its document and answers 404 at its path (KEP-4020). A mapper on the
// second serves its kinds, whatever is looked up besides.
func TestVersionThatOnlyAPeerServes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give API servers machine names of their own")
	}
	t.Parallel()
	ctx := t.Context()
	assets, err := control.Assets()
	must(t, err)
	plane, err := control.StartPeers(ctx, assets, "", "policy/v1=false")
	must(t, err)
	t.Cleanup(func() { must(t, plane.Stop()) })

	cfg := plane.Servers[1].Config()
	budget, absent := schema.GroupKind{Group: "policy", Kind: "PodDisruptionBudget"}, schema.GroupKind{Group: "policy", Kind: "Absent"}
	must(t, await(ctx, "the peer's document, which is read every 30 seconds or so", func() (bool, error) {
		_, err := newMapper(t, cfg).RESTMapping(budget)
		return err == nil, err
	}))

	m := newMapper(t, cfg)
	served := func(when string) {
		t.Helper()
		for _, versions := range [][]string{nil, {"v1"}} {
			if _, err := m.RESTMapping(budget, versions...); err != nil {
				t.Errorf("%s, versions %q: %v", when, versions, err)
			}
		}
	}
	served("cold")
	for _, versions := range [][]string{{"v1"}, nil} {
		if _, err := m.RESTMapping(absent, versions...); !meta.IsNoMatchError(err) {
			t.Errorf("a kind that is absent, versions %q: %v", versions, err)
		}
		served("after a miss")
	}
	m.Reset()
	served("after Reset")
}

var captured = flag.String("capture", "", "`folder` for TestCapture to write to, which is replaced")

// TestCapture writes the discovery documents of an API server, byte for byte, into
// a folder: the aggregated ones in JSON and protobuf, and the plain ones by their
// paths in one file. Without -capture it shows that this works. For testdata/discovery, here:
//
//	KUBEBUILDER_ASSETS=$(../envtest.sh latest) go test -run '^TestCapture$' . -capture ../../testdata/discovery/latest
//	KUBEBUILDER_ASSETS=$(../envtest.sh legacy) go test -run '^TestCapture$' . -capture ../../testdata/discovery/legacy
func TestCapture(t *testing.T) {
	folder := *captured
	if folder == "" {
		folder = t.TempDir()
	}
	must(t, os.RemoveAll(folder), os.MkdirAll(folder, 0o755))
	_, cfg := startServer(t.Context(), t)
	transport, err := rest.TransportFor(cfg)
	must(t, err)
	read := func(path, accept string) []byte {
		code, _, body := get(t, transport, cfg.Host+path, accept)
		if code != http.StatusOK {
			t.Fatalf("GET %s as %s: status %d", path, accept, code)
		}
		return body
	}
	save := func(file string, body []byte) { must(t, os.WriteFile(filepath.Join(folder, file), body, 0o644)) }
	for suffix, accept := range map[string]string{"json": "application/json", "pb": "application/vnd.kubernetes.protobuf"} {
		accept += ";g=apidiscovery.k8s.io;as=APIGroupDiscoveryList;v="
		for _, path := range []string{"api", "apis"} {
			save("aggregated."+path+"."+suffix, read("/"+path, accept+"v2,"+accept+"v2beta1")) // the newest that the server speaks
		}
	}
	var list metav1.APIGroupList
	must(t, json.Unmarshal(read("/apis", "application/json"), &list))
	paths := []string{"/api", "/api/v1", "/apis"}
	for _, group := range list.Groups {
		paths = append(paths, "/apis/"+group.Name)
		for _, v := range group.Versions {
			paths = append(paths, "/apis/"+v.GroupVersion)
		}
	}
	slices.Sort(paths)
	var lines []string // one for each path
	for _, path := range paths {
		lines = append(lines, fmt.Sprintf("%q: %s", path, bytes.TrimSpace(read(path, "application/json"))))
	}
	save("plain.json", []byte("{\n"+strings.Join(lines, ",\n")+"\n}\n"))
	t.Logf("%s: %d groups", folder, len(list.Groups)+1)
}
