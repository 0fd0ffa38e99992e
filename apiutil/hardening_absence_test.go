// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// The page that a gateway shows where it has lost its server is no answer of the
// server's; what an API server says of a path that it does not serve is one.
func TestGatewayPagesAreNoAbsence(t *testing.T) {
	const page = "<!DOCTYPE html>\n<title>404</title>"
	for name, test := range map[string]struct {
		contentType, body string
		absent            bool
	}{
		"a page":                    {"text/html", page, false},
		"a page with a charset":     {"Text/HTML; charset=utf-8", page, false},
		"a page without a type":     {"", " \r\n" + page, false},
		"a page that says plain":    {"text/plain", "\n" + page, false},
		"a page that says JSON":     {"application/json", page, false},
		"a page with a broken type": {"html; ;", page, false},
		"an empty page":             {"text/html", "", false},
		"a Status":                  {"application/json", asStatus("the server could not find the requested resource"), true},
		"the text of a server":      {"text/plain; charset=utf-8", "404 page not found\n", true},
		"nothing":                   {"", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
				readAll(t, m)
				server.SetFault(fakeapi.Under("/apis/example.com"), echo(404, test.contentType, func(string) string { return test.body }))
				absent := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Absent"}
				if err := lookUp(m, absent); err == nil || meta.IsNoMatchError(err) != test.absent {
					t.Errorf("got %v", err)
				}
				if err := lookUp(m, fooKind); (err != nil) != test.absent {
					t.Errorf("a kind that was known: %v", err)
				}
			})
		})
	}
}

// A cache that drops Vary hands the aggregated form of /api to everybody.
func TestCacheWithoutVary(t *testing.T) {
	for name, accept := range map[string]string{
		"JSON":     "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
		"protobuf": "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
	} {
		inBubble(t, func(t *testing.T) {
			server := newServer(fakeapi.Aggregated())
			next := server.Client().Transport
			m := newMapperThrough(t, server, through(func(req *http.Request) (*http.Response, error) {
				if req.URL.Path == "/api" {
					req = req.Clone(req.Context())
					req.Header.Set("Accept", accept)
				}
				return next.RoundTrip(req)
			}), apiutil.DynamicRESTMapperOptions{})
			readAll(t, m)
			for range 2 {
				if _, err := m.RESTMapping(schema.GroupKind{Kind: "Absent"}); !meta.IsNoMatchError(err) {
					t.Errorf("%s: %v", name, err)
				}
			}
			server.PutVersion("", fakeVersion("v1", "Pod", "Later"))
			if _, err := m.RESTMapping(schema.GroupKind{Kind: "Later"}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// Two aggregated APIs that hang, one after the other, hide no third.
func TestHangingAPIsHideNoOthers(t *testing.T) {
	hang := fakeapi.At("/apis/a.example.com/v1", "/apis/b.example.com/v1")
	inBubble(t, func(t *testing.T) {
		server := fakeapi.New(
			fakeGroup("", fakeVersion("v1", "Pod")), fakeGroup("a.example.com", fakeVersion("v1", "A")),
			fakeGroup("b.example.com", fakeVersion("v1", "B")), fakeGroup("c.example.com", fakeVersion("v1", "C")),
		)
		server.SetForms(fakeapi.Legacy())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		server.SetFault(hang, fakeapi.Timeout())
		if _, err := m.KindFor(schema.GroupVersionResource{Resource: "cs"}); err != nil {
			t.Error(err)
		}
		server.ClearFaults()
		if _, err := m.KindFor(schema.GroupVersionResource{Resource: "as"}); err != nil {
			t.Errorf("healed: %v", err)
		}
	})
}
