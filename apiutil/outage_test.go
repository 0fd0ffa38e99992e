// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// asBody is a 404 with that body.
func asBody(contentType, body string) fakeapi.Fault {
	return echo(404, contentType, func(string) string { return body })
}

// notFounds are answers with code 404 that do not come from an API server, or that do not
// say what it serves.
func notFounds() map[string]fakeapi.Fault {
	const page = "<!DOCTYPE html>\n<title>404</title>"
	status := asStatus("the server could not find the requested resource")
	return map[string]fakeapi.Fault{
		"nothing":                   fakeapi.Empty(404),
		"nothing that says JSON":    asBody("application/json", ""),
		"blanks":                    fakeapi.Text(404, " \r\n\t\n"),
		"a page":                    fakeapi.StatusText(404),
		"a page with a charset":     asBody("Text/HTML; charset=utf-8", page),
		"a page without a type":     asBody("", " \r\n"+page),
		"a page that says plain":    asBody("text/plain", "\n"+page),
		"a page that says JSON":     asBody("application/json", page),
		"a page with a broken type": asBody("html; ;", page),
		"an empty page":             asBody("text/html", ""),
		"default backend - 404":     fakeapi.Text(404, "default backend - 404"),
		"the text and more":         fakeapi.Text(404, "404 page not found: no route to /apis/example.com"),
		"not found":                 fakeapi.Text(404, "404 Not Found\n"),
		"no route, JSON":            asBody("application/json", `{"message":"no Route matched with those values"}`),
		"an empty object":           asBody("application/json", "{}"),
		"null":                      asBody("application/json", "null"),
		"a string":                  asBody("application/json", `"404 page not found"`),
		"another kind":              asBody("application/json", strings.Replace(status, `"Status"`, `"Error"`, 1)),
		"half a Status":             asBody("application/json", status[:len(status)/2]),
		"a Status, then a page":     asBody("application/json", status+"<html></html>"),
		"fault filter abort":        fakeapi.Text(404, "fault filter abort"),
		"a list where none can be":  asBody("application/json", `{"kind":"APIResourceList","groupVersion":"example.com/v1","resources":[]}`),
		"protobuf without a Status": asBody("application/vnd.kubernetes.protobuf", "k8s\x00"),
	}
}

// absences are what an API server says of a path that it does not serve.
func absences() map[string]fakeapi.Fault {
	status := asStatus("the server could not find the requested resource")
	return map[string]fakeapi.Fault{
		"a Status":              fakeapi.Status(404, 0),
		"a Status and blanks":   asBody("application/json", "\n"+status+" \n"),
		"a Status of no type":   asBody("", status),
		"the text":              fakeapi.Text(404, "404 page not found\n"),
		"the text without end":  fakeapi.Text(404, "404 page not found"),
		"the text with blanks":  fakeapi.Text(404, " 404 page not found\r\n\n"),
		"the text of no type":   asBody("", "404 page not found\n"),
		"the text, as unknown":  asBody("application/octet-stream", "404 page not found\n"),
		"the text, as any JSON": asBody("application/json", "404 page not found\n"),
	}
}

// Only the API server itself can say that something is not served. Of any other 404 known
// kinds are still served, and a lookup of any other kind is an error.
func TestOnlyTheServerSaysAbsent(t *testing.T) {
	absent := schema.GroupVersionKind{Group: fooKind.Group, Version: "v1", Kind: "Absent"}
	for name, fault := range notFounds() {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
				readAll(t, m)
				for _, match := range []string{"/apis/example.com", "/apis"} {
					heal := server.SetFault(fakeapi.Under(match), fault)
					for _, reset := range []func(){func() {}, func() { m.ResetGroup(fooKind.Group) }, m.Reset} {
						reset()
						wantOutage(t, m, absent)
						wantServed(t, m, fooKind, barKind)
						if _, err := m.RESTMapping(fooKind.GroupKind()); err != nil {
							t.Errorf("a known kind: %v", err)
						}
					}
					heal()
					wantAbsent(t, m, absent)
				}
			})
		})
	}
}

// wantOutage fails the test unless lookups of an absent kind say that the server
// could not be read, and which part of it.
func wantOutage(t *testing.T, m *apiutil.DynamicRESTMapper, gvk schema.GroupVersionKind) {
	t.Helper()
	for _, versions := range [][]string{{gvk.Version}, nil, {gvk.Version, "v9"}} {
		_, err := m.RESTMapping(gvk.GroupKind(), versions...)
		if err == nil || meta.IsNoMatchError(err) {
			t.Errorf("versions %q: %v; want an error that is not NoMatch", versions, err)
		} else if !strings.Contains(err.Error(), "/apis") {
			t.Errorf("versions %q: no path in %v", versions, err)
		}
	}
}

// An answer of an API server is believed, whatever its Content-Type.
func TestTheServerSaysAbsent(t *testing.T) {
	for name, fault := range absences() {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
				readAll(t, m)
				server.Remove(fooKind.Group)
				server.SetFault(fakeapi.InGroup(fooKind.Group), fault)
				m.ResetGroup(fooKind.Group)
				wantAbsent(t, m, fooKind, barKind)
				if _, err := m.RESTMapping(fooKind.GroupKind()); !meta.IsNoMatchError(err) {
					t.Errorf("without a version: %v", err)
				}
			})
		})
	}
}

// A cache that drops Vary hands the aggregated form of /api to everybody.
func TestCacheWithoutVaryDoesNoHarm(t *testing.T) {
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

// A gateway that answers every conditional request with 304 and the ETag of what it has
// says that this has changed.
func TestNotModifiedWithAnotherETagIsAChange(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		next := server.Client().Transport
		m := newMapperThrough(t, server, through(func(req *http.Request) (*http.Response, error) {
			if req.Header.Get("If-None-Match") == "" {
				return next.RoundTrip(req)
			}
			asked := req.Clone(req.Context())
			asked.Header.Del("If-None-Match")
			resp, err := next.RoundTrip(asked)
			if err == nil {
				resp.StatusCode, resp.Status, resp.Body, resp.ContentLength = 304, "304 Not Modified", http.NoBody, 0
			}
			return resp, err
		}), apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		serve(server, newKind)
		server.TakeRequests()
		if _, err := m.RESTMapping(newKind.GroupKind()); err != nil {
			t.Error(err)
		}
		if n := len(server.TakeRequests()); n != 3 {
			t.Errorf("%d requests; want /api, and /apis twice", n)
		}
	})
}
