// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
)

func TestNegotiation(t *testing.T) {
	all := Forms{V2: true, V2beta1: true, Protobuf: true}
	for _, test := range []struct {
		name         string
		forms        Forms
		path, accept string
		want         string // the Content-Type, or the code
	}{
		{"protobuf first", all, "/apis", v2Protobuf + "," + v2JSON + "," + plainJSON, v2Protobuf},
		{"spaces", all, "/api", " " + v2JSON + " , " + plainJSON, v2JSON},
		{"aggregated before plain", all, "/apis", plainJSON + "," + v2JSON + "", v2JSON},
		{"a server without v2", V2Beta1Only(), "/apis", v2JSON + "," + v2beta1JSON + "," + plainJSON, v2beta1JSON},
		{"a server without v2beta1", Aggregated(), "/apis", v2beta1JSON, "406"},
		{"a server without protobuf", Forms{V2: true}, "/apis", v2Protobuf + "," + v2JSON, v2JSON},
		{"a legacy server", Legacy(), "/apis", v2Protobuf + "," + v2JSON + "," + plainJSON, plainJSON},
		{"no Accept", all, "/apis", "", plainJSON},
		{"aggregated, not a root, or plain", all, "/apis/example.com/v1", v2JSON + "," + plainJSON, plainJSON},
		{"another kind", all, "/apis", "application/json;as=Table;v=v1;g=meta.k8s.io", "406"},
		{"nonsense", all, "/apis", ";;,/", "406"},
		{"query and trailing slash", all, "/apis/?timeout=32s", plainJSON, plainJSON},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := New(sample()...)
			s.SetForms(test.forms)
			r := get(t, s, test.path, test.accept, "")
			got := strconv.Itoa(r.Code)
			if r.Code == 200 {
				got = r.Header.Get("Content-Type")
			}
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestETag(t *testing.T) {
	s := New(sample()...)
	first := get(t, s, "/apis", v2JSON, "")
	etag := first.Header.Get("ETag")
	if len(etag) != 128+2 || etag[0] != '"' || strings.ToUpper(etag) != etag {
		t.Errorf("ETag is not a quoted SHA-512: %s", etag)
	}
	if got := first.Header.Get("Vary"); got != "Accept" {
		t.Errorf("Vary: %q", got)
	}
	if got := get(t, s, "/apis", v2Protobuf, "").Header.Get("ETag"); got != etag {
		t.Errorf("JSON and protobuf differ in their ETag")
	}
	if got := get(t, s, "/api", v2JSON, "").Header.Get("ETag"); got == etag || got == "" {
		t.Errorf("/api has the ETag %s, /apis %s", got, etag)
	}

	unchanged := get(t, s, "/apis", v2JSON, etag)
	if unchanged.Code != 304 || unchanged.Body != "" || unchanged.Header.Get("ETag") != etag {
		t.Errorf("not a 304: %+v", unchanged)
	}
	for _, other := range []string{"W/" + etag, etag + ", " + etag, strings.Trim(etag, `"`), "*"} {
		if r := get(t, s, "/apis", v2JSON, other); r.Code != 200 {
			t.Errorf("If-None-Match: %s: code %d", other, r.Code)
		}
	}
	if r := get(t, s, "/apis", plainJSON, etag); r.Code != 200 || r.Header.Get("ETag") != "" || r.Header.Get("Vary") != "" {
		t.Errorf("a legacy document: code %d, %v", r.Code, r.Header)
	}

	before := s.world.groups
	s.Put(Group{Name: "new.example.com", Versions: []Version{{Name: "v1"}}})
	if r := get(t, s, "/apis", v2JSON, etag); r.Code != 200 || r.Header.Get("ETag") == etag {
		t.Errorf("after a change: code %d, ETag %s", r.Code, r.Header.Get("ETag"))
	}
	s.SetGroups(before...)
	if r := get(t, s, "/apis", v2JSON, etag); r.Code != 304 {
		t.Errorf("after the change was taken back: code %d", r.Code)
	}
	s.SetForms(Forms{V2: true})
	if r := get(t, s, "/apis", v2JSON, etag); r.Code != 200 || r.Header.Get("ETag") != "" || r.Header.Get("Vary") != "" {
		t.Errorf("without validators: code %d, %v", r.Code, r.Header)
	}
}

func TestErrors(t *testing.T) {
	const (
		notFound    = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404}` + "\n"
		unknownPath = "404 page not found\n"
	)
	s := New(sample()...)
	for path, want := range map[string]result{
		"/apis/absent":                      {Code: 404, Body: unknownPath},
		"/apis/absent/v1":                   {Code: 404, Body: unknownPath},
		"/apis//v1":                         {Code: 404, Body: unknownPath},
		"/apis/example.com/v1/foos":         {Code: 404, Body: unknownPath},
		"/api/v1/pods":                      {Code: 404, Body: unknownPath},
		"/":                                 {Code: 404, Body: unknownPath},
		"/apis/example.com/v9":              {Code: 404, Body: notFound},
		"/api/v9":                           {Code: 404, Body: notFound},
		"/apis/metrics.example.com/v1beta1": {Code: 503, Body: "service unavailable\n"},
	} {
		got := get(t, s, path, plainJSON, "")
		if got.Code != want.Code || got.Body != want.Body {
			t.Errorf("%s: %d %s", path, got.Code, got.Body)
		}
	}
	if r := get(t, New(), "/api", plainJSON, ""); r.Code != 404 {
		t.Errorf("/api without a core group: %d", r.Code)
	}

	client, err := discovery.NewDiscoveryClientForConfig(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	for _, gv := range []string{"absent/v1", "example.com/v9"} {
		if _, err := client.ServerResourcesForGroupVersion(gv); !apierrors.IsNotFound(err) {
			t.Errorf("client-go about %s: %v", gv, err)
		}
	}
	if _, err := client.ServerResourcesForGroupVersion("metrics.example.com/v1beta1"); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("client-go about a stale version: %v", err)
	}
}
