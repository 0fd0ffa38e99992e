// SPDX-License-Identifier: Apache-2.0

package share_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/transport"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/reload"
)

// tenants is a careless server: each caller has its own kinds, but all documents have the
// same ETag, and every request with that ETag is answered with 304.
type tenants struct {
	*httptest.Server
	servers map[string]*fakeapi.Server // by what identifies a caller

	mu    sync.Mutex
	asked []string // who has sent a validator
}

// validators returns who has sent one so far.
func (ts *tenants) validators() []string {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return slices.Clone(ts.asked)
}

// tenantKind is served to everybody, with a resource that is named after the tenant.
var tenantKind = schema.GroupKind{Group: "tenant.example.com", Kind: "Mine"}

// newTenants makes the server. caller says who has sent a request.
func newTenants(t *testing.T, caller func(*http.Request) string, names ...string) *tenants {
	ts := &tenants{servers: map[string]*fakeapi.Server{}}
	for _, name := range names {
		server := fakeapi.New(fakeapi.Typical(2, 1, 1)...)
		server.PutVersion(tenantKind.Group, fakeapi.Version{Name: "v1", Resources: []fakeapi.Resource{{Name: "of-" + name, Singular: "mine", Kind: tenantKind.Kind}}})
		server.SetFault(fakeapi.At("/api", "/apis"), fakeapi.LieETag(`"same"`))
		ts.servers[name] = server
	}
	ts.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		name := caller(req)
		switch server := ts.servers[name]; {
		case server == nil:
			http.Error(w, "who are you", http.StatusUnauthorized)
		case req.Header.Get("If-None-Match") != "":
			ts.mu.Lock()
			ts.asked = append(ts.asked, name)
			ts.mu.Unlock()
			w.WriteHeader(http.StatusNotModified)
		default:
			server.ServeHTTP(w, req)
		}
	}))
	t.Cleanup(ts.Close)
	return ts
}

// byToken tells callers apart as an API server does.
func byToken(req *http.Request) string {
	return strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")
}

// wantKindsOf reads and wants the kinds of one tenant.
func wantKindsOf(t *testing.T, r *reload.Reloader, name string) {
	t.Helper()
	m, _, err := read(t, r).RESTMapping(tenantKind, nil)
	if err != nil || m.Resource.Resource != "of-"+name {
		t.Errorf("tenant %s is told %v, %v", name, m, err)
	}
}

// Wrappers that add credentials make callers of their own, also if they are
// client-go's, and over one http.Transport.
func TestWrappersThatAddCredentials(t *testing.T) {
	ts := newTenants(t, byToken, "a", "b")
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	cfg := &rest.Config{Host: ts.URL, QPS: -1}
	as := func(token string) *reload.Reloader {
		return newReloader(t, cfg, &http.Client{Transport: transport.NewBearerAuthRoundTripper(token, base)})
	}
	a := as("a")
	wantKindsOf(t, a, "a")
	wantKindsOf(t, as("b"), "b")
	if asked := ts.validators(); len(asked) > 0 {
		t.Errorf("asked for another tenant's document: %v", asked)
	}
	runtime.KeepAlive(a)
}

// No mapper of a careless server sees the kinds of another caller, whatever the callers
// differ in.
func TestTenantsOfACarelessServer(t *testing.T) {
	byImpersonation := func(req *http.Request) string { return req.Header.Get("Impersonate-User") }
	byPassword := func(req *http.Request) string { user, _, _ := req.BasicAuth(); return user }
	dir := t.TempDir()
	byHeader := func(req *http.Request) string { return req.Header.Get("X-Cluster") }
	for name, test := range map[string]struct {
		caller func(*http.Request) string
		as     func(cfg *rest.Config, tenant string)
	}{
		"token": {byToken, func(cfg *rest.Config, tenant string) { cfg.BearerToken = tenant }},
		"token file": {byToken, func(cfg *rest.Config, tenant string) {
			cfg.BearerTokenFile = writeToken(t, filepath.Join(dir, tenant), tenant)
		}},
		"password":      {byPassword, func(cfg *rest.Config, tenant string) { cfg.Username, cfg.Password = tenant, "secret" }},
		"impersonation": {byImpersonation, func(cfg *rest.Config, tenant string) { cfg.Impersonate.UserName = tenant }},
		"plugin":        {byToken, func(cfg *rest.Config, tenant string) { cfg.ExecProvider = tokenPlugin(tenant) }},
		"wrapper of the config": {byToken, func(cfg *rest.Config, tenant string) {
			cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return transport.NewBearerAuthRoundTripper(tenant, next)
			})
		}},
		"wrapper that routes": {byHeader, func(cfg *rest.Config, tenant string) {
			cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &routed{next, tenant} })
		}},
		"transport": {byToken, func(cfg *rest.Config, tenant string) {
			cfg.Transport = transport.NewBearerAuthRoundTripper(tenant, http.DefaultTransport)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			ts := newTenants(t, test.caller, "a", "b")
			as := func(tenant string) *reload.Reloader {
				cfg := &rest.Config{Host: ts.URL, QPS: -1}
				test.as(cfg, tenant)
				client, err := rest.HTTPClientFor(cfg)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(client.CloseIdleConnections)
				return newReloader(t, cfg, client)
			}
			for range 2 {
				wantKindsOf(t, as("a"), "a")
				wantKindsOf(t, as("b"), "b")
			}
		})
	}
}

// writeToken writes a token to a file and returns its name.
func writeToken(t *testing.T, name, token string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// tokenPlugin is a plugin that takes the token from its environment alone.
func tokenPlugin(token string) *api.ExecConfig {
	return &api.ExecConfig{
		Command: "sh", Args: []string{"-c", `echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"'$WHO'"}}'`},
		Env:        []api.ExecEnvVar{{Name: "WHO", Value: token}},
		APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: api.NeverExecInteractiveMode,
	}
}

// A file may get another caller's token under the same name. The first mapper with that
// token is a stranger, for which a 304 proves nothing.
func TestTokenFileThatIsAnotherTenantsNow(t *testing.T) {
	ts := newTenants(t, byToken, "a", "b")
	name := filepath.Join(t.TempDir(), "token")
	as := func(tenant string) *reload.Reloader {
		cfg := &rest.Config{Host: ts.URL, QPS: -1, BearerTokenFile: writeToken(t, name, tenant)}
		client, err := rest.HTTPClientFor(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.CloseIdleConnections)
		return newReloader(t, cfg, client)
	}
	for range 2 {
		wantKindsOf(t, as("a"), "a")
		wantKindsOf(t, as("b"), "b")
	}
	ts.servers["b"].TakeRequests()
	wantKindsOf(t, as("b"), "b")
	if requests := ts.servers["b"].TakeRequests(); len(requests) > 0 {
		t.Errorf("the same caller reads everything again: %v", requests)
	}
}

// A name makes mappers with wrapped transports one caller, each name its own.
func TestNamesOfWrappedTransports(t *testing.T) {
	ts := newTenants(t, byToken, "a", "b")
	name := uniqueName(t)
	as := func(tenant string) *reload.Reloader {
		cfg := &rest.Config{Host: ts.URL, QPS: -1}
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return transport.NewBearerAuthRoundTripper(tenant, next)
		})
		client, err := rest.HTTPClientFor(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.CloseIdleConnections)
		return newNamed(t, cfg, client, name+tenant)
	}
	for range 6 {
		wantKindsOf(t, as("a"), "a")
		wantKindsOf(t, as("b"), "b")
		runtime.GC()
	}
	for name, server := range ts.servers {
		if n := len(server.TakeRequests()); n != 2 {
			t.Errorf("%s was read with %d requests in 6 rounds, want /api and /apis once", name, n)
		}
	}
	if n := len(ts.validators()); n != 2*2*5 {
		t.Errorf("%d conditional requests", n)
	}
}
