// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package discovery

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/metrics"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// tenants is a careless server: each caller has its own kinds, but all documents have the
// same ETag, and every request with an ETag is answered with 304.
type tenants struct {
	header  string // that tells callers apart
	servers map[string]*fakeapi.Server
	asked   []string // callers and paths, in the order of the requests
}

// tenantKind is served to everybody, with a resource that is named after the tenant.
var tenantKind = schema.GroupKind{Group: "tenant.example.com", Kind: "Mine"}

func newTenants(header string) *tenants {
	ts := &tenants{header: header, servers: map[string]*fakeapi.Server{}}
	for _, name := range []string{"a", "b"} {
		server := fakeapi.New(fakeapi.Typical(2, 1, 1)...)
		server.PutVersion(tenantKind.Group, fakeapi.Version{Name: "v1", Resources: []fakeapi.Resource{{Name: "of-" + name, Singular: "mine", Kind: tenantKind.Kind}}})
		server.SetFault(fakeapi.At("/api", "/apis"), fakeapi.LieETag(`"same"`))
		ts.servers[name] = server
	}
	return ts
}

// RoundTrip implements http.RoundTripper.
func (ts *tenants) RoundTrip(req *http.Request) (*http.Response, error) {
	name := strings.TrimPrefix(req.Header.Get(ts.header), "Bearer ")
	if req.Header.Get("If-None-Match") == "" {
		ts.asked = append(ts.asked, name+" "+req.URL.Path)
		resp, err := ts.servers[name].Client().Transport.RoundTrip(req)
		if err == nil {
			resp.Request = req // as http.Transport does
		}
		return resp, err
	}
	ts.asked = append(ts.asked, name+" "+req.URL.Path+" 304")
	return &http.Response{StatusCode: http.StatusNotModified, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}

// wantKindsOf reads the document and wants the kinds of one tenant.
func wantKindsOf(t *testing.T, c *Client, name string) {
	t.Helper()
	m, _, err := everything(t, c).RESTMapping(tenantKind, nil)
	if err != nil || m.Resource.Resource != "of-"+name {
		t.Errorf("tenant %s is told %v, %v", name, m, err)
	}
}

// A mapper may send other credentials than before: a file has a new token, a wrapper
// impersonates somebody else. Then a 304 proves nothing of the document that it has.
func TestUnchangedForOtherCredentials(t *testing.T) {
	for name, test := range map[string]struct {
		header string
		become func(t *testing.T, cfg *rest.Config) (tenant func(name string))
	}{
		"rotated token file": {"Authorization", func(t *testing.T, cfg *rest.Config) func(string) {
			cfg.BearerTokenFile = filepath.Join(t.TempDir(), "token")
			become := func(tenant string) {
				if err := os.WriteFile(cfg.BearerTokenFile, []byte(tenant), 0o600); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Minute) // client-go keeps a token for one
			}
			become("a") // client-go reads the file when it makes a client
			return become
		}},
		"wrapper that adds a token":  {"Authorization", wrapped("Authorization", "Bearer ")},
		"wrapper that impersonates":  {"Impersonate-User", wrapped("Impersonate-User", "")},
		"wrapper that adds an extra": {"Impersonate-Extra-Tenant", wrapped("Impersonate-Extra-Tenant", "")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ts := newTenants(test.header)
				cfg := &rest.Config{Host: "http://fake.invalid", QPS: -1, Transport: ts}
				become := test.become(t, cfg)
				httpClient, err := rest.HTTPClientFor(cfg)
				if err != nil {
					t.Fatal(err)
				}
				c, err := NewClient(cfg, httpClient, Options{RequestTimeout: 10 * time.Second, MaxResponseBytes: 8 << 20})
				if err != nil {
					t.Fatal(err)
				}
				for _, tenant := range []string{"a", "b", "a", "b"} {
					become(tenant)
					wantKindsOf(t, c, tenant)
					ts.asked = nil
					wantKindsOf(t, c, tenant)
					if diff := cmp.Diff([]string{tenant + " /api 304", tenant + " /apis 304"}, ts.asked); diff != "" {
						t.Errorf("the same credentials again: requests (-want +got):\n%s", diff)
					}
				}
			})
		})
	}
}

// wrapped is a wrapper that sets a header to the present tenant.
func wrapped(header, prefix string) func(*testing.T, *rest.Config) func(string) {
	return func(_ *testing.T, cfg *rest.Config) func(string) {
		value := ""
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return transport(func(req *http.Request) (*http.Response, error) {
				req = req.Clone(req.Context())
				req.Header.Set(header, value)
				return next.RoundTrip(req)
			})
		})
		return func(tenant string) { value = prefix + tenant }
	}
}

type results []string

func (r *results) Increment(_ context.Context, code, method, host string) {
	*r = append(*r, method+" "+host+" "+code)
}

// Programs see the mapper's requests in client-go's metric, as stock's.
func TestClientGoCountsRequests(t *testing.T) {
	var counted results
	defer func(before metrics.ResultMetric) { metrics.RequestResult = before }(metrics.RequestResult)
	metrics.RequestResult = &counted
	server := fakeapi.New(fakeapi.Typical(1, 1, 1)...)
	c := newClient(t, server)
	everything(t, c)
	everything(t, c)
	server.SetFault(fakeapi.All(), fakeapi.Refused())
	_, _, _ = c.Version(context.Background(), "g0001.example.com", "v1")
	const get = "GET fake.invalid "
	if diff := cmp.Diff(results{get + "200", get + "200", get + "304", get + "304", get + "<error>"}, counted); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
