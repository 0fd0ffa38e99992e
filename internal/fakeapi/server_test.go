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

// Which answers have an Audit-Id, and in which form the server says that it does not serve
// something.
func TestAuditIDs(t *testing.T) {
	for name, test := range map[string]struct {
		forms                            Forms
		served, notModified, absent, own int // how many Audit-Ids the answers have
	}{
		"all":             {Forms{V2: true, ETag: true}, 1, 1, 1, 1},
		"successes":       {Forms{V2: true, ETag: true, AuditIDs: AuditSuccesses}, 1, 1, 0, 0},
		"none":            {Forms{V2: true, ETag: true, AuditIDs: AuditNone}, 0, 0, 0, 0},
		"twice, a Status": {Forms{V2: true, ETag: true, AuditIDs: AuditTwice, StatusNotFound: true}, 2, 2, 2, 2},
	} {
		s := New(sample()...)
		s.SetForms(test.forms)
		ids := func(path, etag string) (n, code int, body string) {
			r := get(t, s, path, v2JSON+","+plainJSON, etag)
			return len(r.Header["Audit-Id"]), r.Code, r.Body
		}
		want := func(what string, path, etag string, wantCode, wantIDs int) (body string) {
			n, code, body := ids(path, etag)
			if n != wantIDs || code != wantCode {
				t.Errorf("%s, %s: code %d with %d Audit-Ids, want %d with %d", name, what, code, n, wantCode, wantIDs)
			}
			return body
		}
		want("the document", "/apis", "", 200, test.served)
		want("the same document", "/apis", get(t, s, "/apis", v2JSON, "").Header.Get("ETag"), 304, test.notModified)
		body := want("no such group", "/apis/absent/v1", "", 404, test.absent)
		if strings.Contains(body, `"kind":"Status"`) != test.forms.StatusNotFound || strings.Contains(body, `"name"`) {
			t.Errorf("%s: no such group: %s", name, body)
		}
		s.SetFault(All(), Status(404, 0))
		want("the server's error", "/apis", "", 404, test.own)
		s.SetFault(All(), NotFound())
		if other := want("the server's own 404", "/apis", "", 404, test.own); other != body {
			t.Errorf("%s: the server's own 404: %s", name, other)
		}
		s.SetFault(All(), LostRoute())
		want("a gateway without a route", "/apis", "", 404, 0)
		s.SetFault(All(), LostService("tenant"))
		if body := want("a proxy without its service", "/apis", "", 404, test.own); !strings.Contains(body, `"message":"services \"tenant\" not found"`) || !strings.Contains(body, `"name":"tenant"`) {
			t.Errorf("%s: a proxy without its service: %s", name, body)
		}
		s.ClearFaults()
		s.Boot(Booting{Unknown: []string{"example.com"}, Absent: true})
		want("a server that starts", "/apis/example.com/v1", "", 404, test.absent)
	}
}

// A document's ETag is a hash of what it says, whatever its encoding, and only exactly that is
// answered with 304.
func TestETag(t *testing.T) {
	s := New(sample()...)
	etag := get(t, s, "/apis", v2JSON, "").Header.Get("ETag")
	if len(etag) != 128+2 || etag[0] != '"' || strings.ToUpper(etag) != etag {
		t.Errorf("ETag is not a quoted SHA-512: %s", etag)
	}
	before, nothing := s.world.groups, func() {}
	for _, step := range []struct {
		change                    func()
		path, accept, ifNoneMatch string
		code                      int
		has                       string // the same ETag, another, or none
	}{
		{nothing, "/apis", v2Protobuf, "", 200, "same"},
		{nothing, "/api", v2JSON, "", 200, "another"},
		{nothing, "/apis", v2JSON, etag, 304, "same"},
		{nothing, "/apis", v2JSON, "W/" + etag, 200, "same"},
		{nothing, "/apis", v2JSON, etag + ", " + etag, 200, "same"},
		{nothing, "/apis", v2JSON, strings.Trim(etag, `"`), 200, "same"},
		{nothing, "/apis", v2JSON, "*", 200, "same"},
		{nothing, "/apis", plainJSON, etag, 200, "none"},
		{func() { s.Put(Group{Name: "new.example.com", Versions: []Version{{Name: "v1"}}}) }, "/apis", v2JSON, etag, 200, "another"},
		{func() { s.SetGroups(before...) }, "/apis", v2JSON, etag, 304, "same"},
		{func() { s.SetForms(Forms{V2: true}) }, "/apis", v2JSON, etag, 200, "none"},
	} {
		step.change()
		r := get(t, s, step.path, step.accept, step.ifNoneMatch)
		has, vary := "another", "Accept"
		switch r.Header.Get("ETag") {
		case etag:
			has = "same"
		case "":
			has, vary = "none", ""
		}
		if r.Code != step.code || has != step.has || r.Header.Get("Vary") != vary || (r.Body == "") != (r.Code == 304) {
			t.Errorf("%s %s, If-None-Match %s: code %d, %s ETag, %d bytes, Vary %q", step.path, step.accept, step.ifNoneMatch, r.Code, has, len(r.Body), r.Header.Get("Vary"))
		}
	}
}
