// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// things has a namespaced resource with two objects, and one that is not.
func things() Group {
	return Group{Name: "example.com", Versions: []Version{{Name: "v1", Resources: []Resource{
		{Name: "foos", Kind: "Foo", Namespaced: true, Objects: []Object{{"a", "one", "1"}, {"b", "two", "2"}}},
		{Name: "bars", Kind: "Bar", Objects: []Object{{"", "one", "3"}}},
	}}, {Name: "v2", Stale: true}}}
}

// Which verb a request has, and how it is answered: the code, and what the body has.
func TestObjects(t *testing.T) {
	const one, two = `"name":"one","namespace":"a","uid":"1","resourceVersion":"1"`, `"name":"two","namespace":"b"`
	s := New(things(), core())
	for _, test := range []struct {
		method, path, verb string // METADATA: a GET of that
		code               int
		has                []string
	}{
		{"GET", "/foos", "list", 200, []string{`"kind":"FooList","apiVersion":"example.com/v1"`, one, two}},
		{"GET", "/namespaces/b/foos?limit=500", "list", 200, []string{`"items":[{"kind":"Foo","apiVersion":"example.com/v1","metadata":{` + two}},
		{"METADATA", "/foos", "list", 200, []string{`"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1"`, one}},
		{"METADATA", "/bars/one", "get", 200, []string{`"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1"`}},
		{"GET", "/namespaces/none/foos", "list", 200, []string{`"items":[]`}},
		{"GET", "/namespaces/a/foos/one", "get", 200, []string{`{"kind":"Foo","apiVersion":"example.com/v1","metadata":{` + one}},
		{"GET", "/namespaces/a/foos/one/status", "get", 200, []string{one}},
		{"GET", "/namespaces/a/foos/two", "get", 404, []string{`"message":"foos.example.com \"two\" not found"`, `"name":"two"`}},
		{"GET", "/foos/one", "get", 404, []string{"404 page not found"}},
		{"GET", "/bars/one", "get", 200, []string{`"name":"one","uid":"3"`}},
		{"GET", "/namespaces/a/bars", "list", 404, []string{"404 page not found"}},
		{"GET", "/others", "list", 404, []string{"404 page not found"}},
		{"GET", "/foos/one/two/three", "", 404, []string{"404 page not found"}},
		{"POST", "/namespaces/a/foos", "create", 201, []string{"what was sent"}},
		{"POST", "/foos", "create", 404, []string{"404 page not found"}},
		{"PUT", "/namespaces/a/foos/one", "update", 200, []string{one}},
		{"PATCH", "/bars/none", "patch", 404, []string{`"name":"none"`}},
		{"DELETE", "/namespaces/a/foos/one", "delete", 200, []string{one}},
		{"DELETE", "/namespaces/a/foos", "deletecollection", 200, []string{one}},
		{"DELETE", "/foos", "deletecollection", 404, []string{"404 page not found"}},
		{"GET", "/../v2/foos", "list", 503, []string{"service unavailable"}},
		{"GET", "/../../../api/v1/pods", "list", 200, []string{`"kind":"PodList","apiVersion":"v1"`}},
		{"GET", "", "", 200, []string{`"APIResourceList"`}},
	} {
		method, accept := test.method, plainJSON
		if method == "METADATA" {
			method, accept = http.MethodGet, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
		}
		req := httptest.NewRequest(method, path.Join("/apis/example.com/v1", test.path), strings.NewReader("what was sent"))
		req.Header.Set("Accept", accept)
		discovery, any, its, other := Discovery()(req), Objects("")(req), Objects("a", test.verb)(req), Objects("", "none")(req)
		if inA := strings.Contains(test.path, "/a/") && test.verb != ""; discovery != (test.verb == "") || any == discovery || its != inA || other {
			t.Errorf("%s %s: is for what is served: %t, for objects: %t, for some in namespace a: %t, with another verb: %t", test.method, test.path, discovery, any, its, other)
		}
		answer := httptest.NewRecorder()
		s.ServeHTTP(answer, req)
		body := answer.Body.String()
		verb, form := s.Requests()[0].Verb, s.TakeRequests()[0].Form
		if verb != test.verb || answer.Code != test.code || verb != "" && form != fmt.Sprint(test.code) {
			t.Errorf("%s %s: noted as %q with form %s, answered with %d; want %q and %d", test.method, test.path, verb, form, answer.Code, test.verb, test.code)
		}
		for _, has := range test.has {
			if !strings.Contains(body, has) || strings.Contains(test.path, "/a/") && strings.Contains(body, two) {
				t.Errorf("%s %s: %s; want %s", test.method, test.path, body, test.has)
			}
		}
	}
}

// A watch that is asked for them begins with the objects, and a bookmark that ends them (KEP-3157). Where the server does not
// know that, it is refused.
func TestWatchList(t *testing.T) {
	const path = "/apis/example.com/v1/namespaces/a/foos?watch=true&sendInitialEvents=true"
	s := New(things())
	resp, err := s.Client().Get(s.Config().Host + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events := json.NewDecoder(resp.Body)
	for _, want := range []string{
		`ADDED "name":"one","namespace":"a"`,
		`BOOKMARK "annotations":{"k8s.io/initial-events-end":"true"}`,
	} {
		var event metav1.WatchEvent
		if err := events.Decode(&event); err != nil {
			t.Fatal(err)
		}
		kind, has, _ := strings.Cut(want, " ")
		if event.Type != kind || !strings.Contains(string(event.Object.Raw), has) {
			t.Errorf("got %s %s, want %s", event.Type, event.Object.Raw, want)
		}
	}
	if req := httptest.NewRequest(http.MethodGet, path, nil); !Lists("a")(req) || Lists("b")(req) {
		t.Error("Lists does not match it")
	}
	s.SetForms(Forms{NoWatchList: true})
	refused, err := s.Client().Get(s.Config().Host + path)
	if err != nil {
		t.Fatal(err)
	}
	defer refused.Body.Close()
	if refused.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("got %s, want 422", refused.Status)
	}
}

// A watch goes on from the version of a list, unless anything of the resource has changed since.
func TestWatchAfterAChangeIsRefused(t *testing.T) {
	s := New(things())
	resp, err := s.Client().Get(s.Config().Host + "/apis/example.com/v1/foos")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var list metav1.PartialObjectMetadataList
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	watch := func() int {
		t.Helper()
		resp, err := s.Client().Get(s.Config().Host + "/apis/example.com/v1/foos?watch=true&resourceVersion=" + list.ResourceVersion)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if got := watch(); got != http.StatusOK {
		t.Errorf("got %d, want 200", got)
	}
	changed := things()
	changed.Versions[0].Resources[0].Objects = changed.Versions[0].Resources[0].Objects[:1]
	s.SetGroups(changed)
	if got := watch(); got != http.StatusGone {
		t.Errorf("got %d, want 410", got)
	}
}
