// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
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
		{"JSON first", all, "/apis", v2JSON + "," + v2Protobuf, v2JSON},
		{"spaces", all, "/api", " " + v2JSON + " , " + plainJSON, v2JSON},
		{"order of the parameters", all, "/apis", "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io", v2JSON},
		{"more parameters", all, "/apis", v2JSON + ";profile=nopeer", v2JSON},
		{"quality", all, "/apis", v2JSON + ";q=0.8," + v2beta1JSON + ";q=0.9," + v2Protobuf + ";q=0.7", v2beta1JSON},
		{"aggregated before plain", all, "/apis", plainJSON + "," + v2JSON + ";q=0.5", v2JSON},
		{"v2beta1", all, "/apis", v2beta1Protobuf, v2beta1Protobuf},
		{"a server without v2", V2Beta1Only(), "/apis", v2JSON + "," + v2beta1JSON + "," + plainJSON, v2beta1JSON},
		{"a server without v2beta1", Aggregated(), "/apis", v2beta1JSON, "406"},
		{"a server without protobuf", Forms{V2: true}, "/apis", v2Protobuf + "," + v2JSON, v2JSON},
		{"a legacy server", Legacy(), "/apis", v2Protobuf + "," + v2JSON + "," + plainJSON, plainJSON},
		{"a legacy server, nothing plain", Legacy(), "/api", v2JSON, "406"},
		{"no Accept", all, "/apis", "", plainJSON},
		{"anything", all, "/apis", "*/*", plainJSON},
		{"plain protobuf", all, "/apis", plainProtobuf, plainProtobuf},
		{"plain protobuf, group", all, "/apis/example.com", plainProtobuf + "," + plainJSON, plainProtobuf},
		{"aggregated, not a root", all, "/apis/example.com/v1", v2JSON, "406"},
		{"aggregated, not a root, or plain", all, "/apis/example.com/v1", v2JSON + "," + plainJSON, plainJSON},
		{"another kind", all, "/apis", "application/json;as=Table;v=v1;g=meta.k8s.io", "406"},
		{"another type", all, "/apis", "text/html", "406"},
		{"nonsense", all, "/apis", ";;,/", "406"},
		{"query and trailing slash", all, "/apis/?timeout=32s", plainJSON, plainJSON},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := New(sample()...)
			s.SetForms(test.forms)
			r := inMemoryOrigin(s).get(t, test.path, test.accept, "")
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
	o := inMemoryOrigin(s)
	first := o.get(t, "/apis", v2JSON, "")
	etag := first.Header.Get("ETag")
	if len(etag) != 128+2 || etag[0] != '"' || strings.ToUpper(etag) != etag {
		t.Errorf("ETag is not a quoted SHA-512: %s", etag)
	}
	if got := first.Header.Get("Vary"); got != "Accept" {
		t.Errorf("Vary: %q", got)
	}
	if got := o.get(t, "/apis", v2Protobuf, "").Header.Get("ETag"); got != etag {
		t.Errorf("JSON and protobuf differ in their ETag")
	}
	if got := o.get(t, "/api", v2JSON, "").Header.Get("ETag"); got == etag || got == "" {
		t.Errorf("/api has the ETag %s, /apis %s", got, etag)
	}

	unchanged := o.get(t, "/apis", v2JSON, etag)
	if unchanged.Code != 304 || unchanged.Body != "" || unchanged.Header.Get("ETag") != etag {
		t.Errorf("not a 304: %+v", unchanged)
	}
	for _, other := range []string{"W/" + etag, etag + ", " + etag, strings.Trim(etag, `"`), "*"} {
		if r := o.get(t, "/apis", v2JSON, other); r.Code != 200 {
			t.Errorf("If-None-Match: %s: code %d", other, r.Code)
		}
	}
	if r := o.get(t, "/apis", plainJSON, etag); r.Code != 200 || r.Header.Get("ETag") != "" || r.Header.Get("Vary") != "" {
		t.Errorf("a legacy document: code %d, %v", r.Code, r.Header)
	}

	before := s.world.groups
	s.Put(Group{Name: "new.example.com", Versions: []Version{{Name: "v1"}}})
	if r := o.get(t, "/apis", v2JSON, etag); r.Code != 200 || r.Header.Get("ETag") == etag {
		t.Errorf("after a change: code %d, ETag %s", r.Code, r.Header.Get("ETag"))
	}
	s.SetGroups(before...)
	if r := o.get(t, "/apis", v2JSON, etag); r.Code != 304 {
		t.Errorf("after the change was taken back: code %d", r.Code)
	}
	s.SetForms(Forms{V2: true})
	if r := o.get(t, "/apis", v2JSON, etag); r.Code != 200 || r.Header.Get("ETag") != "" || r.Header.Get("Vary") != "" {
		t.Errorf("without validators: code %d, %v", r.Code, r.Header)
	}
}

func TestChanges(t *testing.T) {
	shared := []Version{{Name: "v2"}, {Name: "v1"}}
	s := New()
	served := func() string {
		var list []string
		for _, group := range s.world.groups {
			names := make([]string, 0, len(group.Versions))
			for _, version := range group.Versions {
				names = append(names, version.Name)
			}
			list = append(list, group.Name+":"+strings.Join(names, ","))
		}
		return strings.Join(list, " ")
	}
	for _, step := range []struct {
		change func()
		want   string
	}{
		{func() {}, ""},
		{func() { s.Put(Group{Name: "a", Versions: shared}) }, "a:v2,v1"},
		{func() { s.Put(Group{Name: "b", Versions: shared}) }, "a:v2,v1 b:v2,v1"},
		{func() { s.PutVersion("a", Version{Name: "v3"}) }, "a:v2,v1,v3 b:v2,v1"},
		{func() { s.PutVersion("a", Version{Name: "v2", Stale: true}) }, "a:v2,v1,v3 b:v2,v1"},
		{func() { s.RemoveVersion("a", "v2") }, "a:v1,v3 b:v2,v1"},
		{func() { s.RemoveVersion("a", "v2") }, "a:v1,v3 b:v2,v1"},
		{func() { s.PutVersion("c", Version{Name: "v1"}) }, "a:v1,v3 b:v2,v1 c:v1"},
		{func() { s.Put(Group{Name: "a", Versions: shared}) }, "a:v2,v1 b:v2,v1 c:v1"},
		{func() { s.Remove("b") }, "a:v2,v1 c:v1"},
		{func() { s.Remove("b") }, "a:v2,v1 c:v1"},
		{func() { s.RemoveVersion("b", "v1") }, "a:v2,v1 c:v1"},
		{func() { s.RemoveVersion("c", "v1") }, "a:v2,v1"},
		{func() { s.SetGroups(Group{Name: "d"}) }, "d:"},
	} {
		step.change()
		if got := served(); got != step.want {
			t.Fatalf("got %q, want %q", got, step.want)
		}
	}
	if diff := cmp.Diff([]Version{{Name: "v2"}, {Name: "v1"}}, shared); diff != "" {
		t.Errorf("the caller's versions were changed (-before +after):\n%s", diff)
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
		got := inMemoryOrigin(s).get(t, path, plainJSON, "")
		if got.Code != want.Code || got.Body != want.Body {
			t.Errorf("%s: %d %s", path, got.Code, got.Body)
		}
	}
	if r := inMemoryOrigin(New()).get(t, "/api", plainJSON, ""); r.Code != 404 {
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

func TestRequests(t *testing.T) {
	s := New(sample()...)
	o := inMemoryOrigin(s)
	etag := o.get(t, "/apis", v2Protobuf, "").Header.Get("ETag")
	o.get(t, "/apis", v2Protobuf, etag)
	body := o.get(t, "/apis/example.com/v1?timeout=32s", plainJSON, "").Body
	o.get(t, "/apis/absent", plainJSON, "")
	s.SetFault(At("/api"), Status(503, 0))
	o.get(t, "/api", plainJSON, "")
	s.SetFault(At("/api"), Refused())
	o.get(t, "/api", plainJSON, "")

	requests := s.TakeRequests()
	want := []string{
		"GET /apis  v2+protobuf 200",
		"GET /apis  304",
		"GET /apis/example.com/v1  legacy 200",
		"GET /apis/absent  404",
		"GET /api  Status(503) 503",
		"GET /api  Refused",
	}
	if diff := cmp.Diff(want, lines(requests)); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Request{
		Method: "GET", Host: "fake.invalid", Path: "/apis",
		Accept: v2Protobuf, IfNoneMatch: etag, Authorization: "Bearer " + Token,
		Code: 304, Form: "304",
	}, requests[1]); diff != "" {
		t.Errorf("second request (-want +got):\n%s", diff)
	}
	if requests[2].BodyBytes != len(body) {
		t.Errorf("%d bytes of the body read, not %d", requests[2].BodyBytes, len(body))
	}
	if left := s.Requests(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// All at once, over TCP: what the race detector is for.
func TestConcurrency(t *testing.T) {
	s := New(Typical(20, 1, 2)...)
	server := httptest.NewServer(s)
	defer server.Close()
	client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL, BearerToken: Token, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(2)
		go func() {
			defer wg.Done()
			for range 20 {
				if _, _, _, err := client.GroupsAndMaybeResources(); err != nil {
					t.Error(err)
				}
				s.Requests()
			}
		}()
		go func() {
			defer wg.Done()
			for i := range 20 {
				s.PutVersion("g0001.example.com", Version{Name: "v1", Stale: i%2 == 0})
				s.SetForms([]Forms{Aggregated(), Legacy()}[i%2])
				s.SetFault(At("/healthz"), Refused())()
			}
		}()
	}
	wg.Wait()
	if got := len(s.TakeRequests()); got != 4*20*2 {
		t.Errorf("%d requests", got)
	}
	client.RESTClient().(*rest.RESTClient).Client.CloseIdleConnections()
}
