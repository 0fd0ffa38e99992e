// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/apiutil"
)

// recorder notes the paths that are asked for, and answers as a gateway that has lost its routes
// while lost.
type recorder struct {
	next http.RoundTripper

	mu    sync.Mutex
	paths []string
	lost  bool
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.paths = append(r.paths, req.URL.Path)
	lost := r.lost
	r.mu.Unlock()
	if !lost {
		return r.next.RoundTrip(req)
	}
	w := httptest.NewRecorder()
	http.NotFound(w, req)
	return w.Result(), nil
}

// take returns the paths since the last take.
func (r *recorder) take() (paths []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	paths, r.paths = r.paths, nil
	return paths
}

func (r *recorder) lose(lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = lost
}

// Each 404 of an API server, and of an extension server behind it, has an Audit-Id. So it needs no
// second request to be an absence, and a 404 without one is none.
func TestAuditIDTellsWhose404ItIs(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	s, cfg := startServer(ctx, t)
	kind := Kind{Group: "widgets.example.com", Kind: "Widget", Versions: []string{"v1"}}
	must(t, s.Settle(ctx, kind))
	extension := startExtension(ctx, t, s)

	transport, err := rest.TransportFor(cfg)
	must(t, err)
	gone := Kind{Group: "gone.example.com", Kind: "Gone", Versions: []string{"v1"}}
	must(t, s.Settle(ctx, gone), s.Uninstall(ctx, gone))
	for _, path := range []string{
		"/apis/absent.example.com", "/apis/absent.example.com/v1", "/apis/widgets.example.com/v9", "/apis/apps/v9", "/api/v9",
		"/apis/gone.example.com", "/apis/gone.example.com/v1", "/apis/extension.example.com/v9", "/apis/" + extension.String() + "/absent",
	} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+path, http.NoBody)
		must(t, err)
		resp, err := transport.RoundTrip(req)
		must(t, err)
		body, err := io.ReadAll(resp.Body)
		must(t, err, resp.Body.Close())
		t.Logf("%s: %d, %d Audit-Ids, %q", path, resp.StatusCode, len(resp.Header.Values("Audit-Id")), body)
		if resp.StatusCode != http.StatusNotFound || resp.Header.Get("Audit-Id") == "" {
			t.Errorf("%s: %d %v", path, resp.StatusCode, resp.Header)
		}
	}

	seen := &recorder{next: transport}
	m, err := apiutil.NewDynamicRESTMapperWithOptions(cfg, &http.Client{Transport: seen}, apiutil.DynamicRESTMapperOptions{MaxAge: -1})
	must(t, err)
	widget := schema.GroupKind{Group: kind.Group, Kind: kind.Kind}
	_, err = m.RESTMapping(widget)
	must(t, err)
	seen.take()
	for _, gk := range []schema.GroupKind{{Group: kind.Group, Kind: "Absent"}, {Group: "absent.example.com", Kind: "Absent"}, {Group: "apps", Kind: "Absent"}} {
		if _, err := m.RESTMapping(gk, "v9"); !meta.IsNoMatchError(err) || len(seen.take()) != 1 {
			t.Errorf("%v in v9: %v; want no match after one request", gk, err)
		}
	}
	seen.lose(true)
	m.Reset()
	for _, versions := range [][]string{{"v1"}, nil} {
		if _, err := m.RESTMapping(widget, versions...); err != nil {
			t.Errorf("behind a gateway without a route, versions %q: %v", versions, err)
		}
		_, err := m.RESTMapping(schema.GroupKind{Group: kind.Group, Kind: "Absent"}, versions...)
		if meta.IsNoMatchError(err) || err == nil || !strings.Contains(err.Error(), "/apis") {
			t.Errorf("a kind that is absent, behind a gateway without a route, versions %q: %v", versions, err)
		}
	}
	seen.lose(false)
	must(t, s.Uninstall(ctx, kind))
	seen.take()
	if _, err := m.RESTMapping(widget, "v1"); !meta.IsNoMatchError(err) {
		t.Errorf("a kind that is gone: %v", err)
	}
	if asked := seen.take(); slices.ContainsFunc(asked, func(path string) bool {
		return strings.HasPrefix(path, "/apis/"+kind.Group) && !strings.HasSuffix(path, "/v1")
	}) {
		t.Errorf("a kind that is gone, after a reset: asked for %q", asked)
	}
}

// startExtension starts a server behind kube-aggregator, which serves nothing in one version, and
// puts an Audit-Id of its own on each answer.
func startExtension(ctx context.Context, t *testing.T, s *Server) schema.GroupVersion {
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
	at, err := url.Parse(backend.URL)
	must(t, err)
	port, err := strconv.ParseInt(at.Port(), 10, 32)
	must(t, err)
	must(t, s.Client.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "extension"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost", Ports: []corev1.ServicePort{{Port: int32(port)}}},
	}), s.Client.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": gv.Version + "." + gv.Group},
		"spec": map[string]any{
			"group": gv.Group, "version": gv.Version, "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
			"insecureSkipTLSVerify": true, "service": map[string]any{"namespace": "default", "name": "extension", "port": port},
		},
	}}), s.await(ctx, "the extension server", func() (bool, error) {
		_, err := s.discovery.ServerResourcesForGroupVersion(gv.String())
		return err == nil, nil //nolint:nilerr // It goes on until the server is there.
	}))
	return gv
}
