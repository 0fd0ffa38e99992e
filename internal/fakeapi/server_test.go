// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"fmt"
	"strings"
	"testing"
)

// What a server that has sample answers: the code, and the Content-Type or the text of an error.
func TestAnswers(t *testing.T) {
	const (
		absent      = `404 {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404}` + "\n"
		unknownPath = "404 404 page not found\n"
		refused     = `406 {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server was unable to respond with a content type that the client supports","reason":"NotAcceptable","details":{},"code":406}` + "\n"
	)
	all := Forms{V2: true, V2beta1: true, Protobuf: true}
	for name, test := range map[string]struct {
		forms        Forms
		path, accept string
		want         string
	}{
		"protobuf first":                   {all, "/apis", v2Protobuf + "," + v2JSON + "," + plainJSON, "200 " + v2Protobuf},
		"spaces":                           {all, "/api", " " + v2JSON + " , " + plainJSON, "200 " + v2JSON},
		"aggregated before plain":          {all, "/apis", plainJSON + "," + v2JSON, "200 " + v2JSON},
		"a server without v2":              {V2Beta1Only(), "/apis", v2JSON + "," + v2beta1JSON + "," + plainJSON, "200 " + v2beta1JSON},
		"a server without v2beta1":         {Aggregated(), "/apis", v2beta1JSON, refused},
		"a server without protobuf":        {Forms{V2: true}, "/apis", v2Protobuf + "," + v2JSON, "200 " + v2JSON},
		"a legacy server":                  {Legacy(), "/apis", v2Protobuf + "," + v2JSON + "," + plainJSON, "200 " + plainJSON},
		"no Accept":                        {all, "/apis", "", "200 " + plainJSON},
		"aggregated, not a root, or plain": {all, "/apis/example.com/v1", v2JSON + "," + plainJSON, "200 " + plainJSON},
		"another kind":                     {all, "/apis", "application/json;as=Table;v=v1;g=meta.k8s.io", refused},
		"nonsense":                         {all, "/apis", ";;,/", refused},
		"query and trailing slash":         {all, "/apis/?timeout=32s", plainJSON, "200 " + plainJSON},
		"no such group":                    {all, "/apis/absent", plainJSON, unknownPath},
		"no such group, with a version":    {all, "/apis/absent/v1", plainJSON, unknownPath},
		"the core group, in a wrong place": {all, "/apis//v1", plainJSON, unknownPath},
		"objects":                          {all, "/apis/example.com/v1/foos", plainJSON, unknownPath},
		"objects of the core group":        {all, "/api/v1/pods", plainJSON, unknownPath},
		"the root":                         {all, "/", plainJSON, unknownPath},
		"no such version":                  {all, "/apis/example.com/v9", plainJSON, absent},
		"no such version of core":          {all, "/api/v9", plainJSON, absent},
		"a stale version":                  {all, "/apis/metrics.example.com/v1beta1", plainJSON, "503 service unavailable\n"},
	} {
		s := New(sample()...)
		s.SetForms(test.forms)
		r := get(t, s, test.path, test.accept, "")
		got := fmt.Sprintf("%d %s", r.Code, r.Body)
		if r.Code == 200 {
			got = "200 " + r.Header.Get("Content-Type")
		}
		if got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
	if r := get(t, New(), "/api", plainJSON, ""); r.Code != 404 {
		t.Errorf("/api without a core group: %d", r.Code)
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
