// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	v2JSON      = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	v2Protobuf  = "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	v2beta1JSON = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
	plainJSON   = "application/json"
	everyForm   = v2Protobuf + "," + v2JSON + "," + plainJSON
)

// result is what a client sees of an answer. The body is as much of it as there was.
type result struct {
	Code   int
	Header http.Header
	Body   string
	Err    error // of the request or of reading the body
}

func get(t *testing.T, s *Server, path, accept, ifNoneMatch string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://fake.invalid"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	if ifNoneMatch != "" {
		req.Header.Set("If-None-Match", ifNoneMatch)
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		return result{Err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return result{resp.StatusCode, resp.Header, string(body), err}
}

func lines(requests []Request) []string {
	var list []string
	for _, r := range requests {
		list = append(list, r.String())
	}
	return list
}

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
		"objects of another version":       {all, "/apis/example.com/v1/foos", plainJSON, unknownPath},
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

// How many Audit-Ids an answer has, where all answers have them, successes, none, or all two. The server's own 404 is text, or a
// Status without a name where the server says so.
func TestAuditIDs(t *testing.T) {
	const document, absent = "/apis", "/apis/absent/v1"
	for what, test := range map[string]struct {
		path  string
		fault Fault
		code  int
		ids   [4]int
	}{
		"the document":                {document, Late(0), 200, [4]int{1, 1, 0, 2}},
		"no such group":               {absent, Late(0), 404, [4]int{1, 0, 0, 2}},
		"the server's error":          {document, Status(503, 0), 503, [4]int{1, 0, 0, 2}},
		"the server's own 404":        {document, NotFound(), 404, [4]int{1, 0, 0, 2}},
		"a gateway without a route":   {document, LostRoute(), 404, [4]int{}},
		"a proxy without its service": {document, LostService("tenant"), 404, [4]int{1, 0, 0, 2}},
	} {
		for ids, want := range test.ids {
			s := New(sample()...)
			s.SetForms(Forms{V2: true, ETag: true, AuditIDs: AuditIDs(ids), StatusNotFound: ids == int(AuditTwice)})
			s.SetFault(All(), test.fault)
			r := get(t, s, test.path, v2JSON+","+plainJSON, "")
			if n := len(r.Header["Audit-Id"]); n != want || r.Code != test.code {
				t.Errorf("%s, Audit-Ids %d: code %d with %d of them, want %d with %d", what, ids, r.Code, n, test.code, want)
			}
			own, service := what == "no such group" || what == "the server's own 404", what == "a proxy without its service"
			if isStatus := strings.Contains(r.Body, `"kind":"Status"`); own && isStatus != (ids == int(AuditTwice)) || strings.Contains(r.Body, `"name":"tenant"`) != service {
				t.Errorf("%s: %s", what, r.Body)
			}
		}
	}
	s := New(sample()...)
	etag := get(t, s, document, v2JSON, "").Header.Get("ETag")
	s.Boot(Booting{Unknown: []string{"example.com"}, Absent: true})
	for what, r := range map[string]result{"a 304": get(t, s, document, v2JSON, etag), "a server that starts": get(t, s, "/apis/example.com/v1", plainJSON, "")} {
		if len(r.Header["Audit-Id"]) != 1 {
			t.Errorf("%s: code %d with Audit-Ids %q, want one", what, r.Code, r.Header["Audit-Id"])
		}
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

// sample has what is rare: a preferred version that is not the first, a stale
// version, a parent without a kind, a kind from another group.
func sample() []Group {
	return []Group{
		{Versions: []Version{{Name: "v1", Resources: []Resource{
			{Name: "pods", Singular: "pod", Kind: "Pod", Namespaced: true, Subresources: []string{"status"}},
			{Name: "nodes", Singular: "node", Kind: "Node"},
		}}}},
		{Name: "example.com", Preferred: "v1", Versions: []Version{
			{Name: "v2", Resources: []Resource{{Name: "foos", Singular: "foo", Kind: "Foo", Namespaced: true, Subresources: []string{"status", "scale"}}}},
			{Name: "v1", Resources: []Resource{
				{Name: "bars", Kind: "Bar"},
				{Name: "parents", NoKind: true, Kind: "Child", Subresources: []string{"children"}},
			}},
		}},
		{Name: "metrics.example.com", Versions: []Version{{
			Name: "v1beta1", Stale: true,
			Resources: []Resource{{Name: "pods", Singular: "pod", Kind: "PodMetrics", Namespaced: true}},
		}}},
	}
}

// wantResources is what client-go makes of sample; stale versions are not in it.
var wantResources = map[schema.GroupVersion][]string{
	{Version: "v1"}:                       {"pods Pod namespaced", "pods/status Pod namespaced", "nodes Node"},
	{Group: "example.com", Version: "v2"}: {"foos Foo namespaced", "foos/status Foo namespaced", "foos/scale autoscaling/v1 Scale namespaced"},
	{Group: "example.com", Version: "v1"}: {"bars Bar", "parents/children Child"},
}

// client-go reads what the server says, in each form that it asks for. Only of a legacy server
// it reads the versions themselves, and then a stale one is listed like any other.
func TestClientGoReadsWhatIsServed(t *testing.T) {
	aggregated := []string{" v1 (v1)", "example.com v2,v1 (v2)", "metrics.example.com  ()"}
	legacy := []string{" v1 (v1)", "example.com v2,v1 (v1)", "metrics.example.com v1beta1 (v1beta1)"}
	for form, tests := range map[string]struct {
		forms  []Forms
		groups []string
	}{
		"v2+json": {[]Forms{Aggregated(), {V2: true}}, aggregated},
		"legacy":  {[]Forms{Legacy(), {}}, legacy},
	} {
		for _, forms := range tests.forms {
			s := New(sample()...)
			s.SetForms(forms)
			client, err := discovery.NewDiscoveryClientForConfigAndClient(s.Config(), s.Client())
			if err != nil {
				t.Fatal(err)
			}
			groups, resources, failed, err := client.GroupsAndMaybeResources()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"GET /api  " + form + " 200", "GET /apis  " + form + " 200"}, lines(s.Requests())); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tests.groups, describeGroups(groups)); diff != "" {
				t.Errorf("%s: groups (-want +got):\n%s", form, diff)
			}
			if form == "legacy" {
				resources = map[schema.GroupVersion]*metav1.APIResourceList{}
				for gv := range wantResources {
					if resources[gv], err = client.ServerResourcesForGroupVersion(gv.String()); err != nil {
						t.Fatal(err)
					}
				}
			} else if stale := (schema.GroupVersion{Group: "metrics.example.com", Version: "v1beta1"}); len(failed) != 1 || failed[stale] == nil {
				t.Errorf("failed: %v, want %v alone", failed, stale)
			}
			if diff := cmp.Diff(wantResources, describeResources(resources)); diff != "" {
				t.Errorf("%s: resources (-want +got):\n%s", form, diff)
			}
		}
	}
}

func describeGroups(list *metav1.APIGroupList) []string {
	var lines []string
	for _, group := range list.Groups {
		var versions []string
		for _, version := range group.Versions {
			versions = append(versions, version.Version)
		}
		lines = append(lines, group.Name+" "+strings.Join(versions, ",")+" ("+group.PreferredVersion.Version+")")
	}
	return lines
}

func describeResources(lists map[schema.GroupVersion]*metav1.APIResourceList) map[schema.GroupVersion][]string {
	all := map[schema.GroupVersion][]string{}
	for gv, list := range lists {
		for _, r := range list.APIResources {
			line := r.Name
			if other := (schema.GroupVersion{Group: r.Group, Version: r.Version}); !other.Empty() && other != gv {
				line += " " + other.String()
			}
			line += " " + r.Kind
			if r.Namespaced {
				line += " namespaced"
			}
			all[gv] = append(all[gv], line)
		}
	}
	return all
}
