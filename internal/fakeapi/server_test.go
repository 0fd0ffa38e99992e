// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
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

func wantLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
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
		"no such group, as a Status":       {Forms{StatusNotFound: true}, "/apis/absent", plainJSON, absent},
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

// client-go reads what the server says, in each form that it asks for. A stale version has no resources;
// a legacy server lists it like any other.
func TestClientGoReadsWhatIsServed(t *testing.T) {
	resources := []string{
		"example.com/v1 bars Bar", "example.com/v1 parents/children Child", "example.com/v2 foos Foo namespaced",
		"example.com/v2 foos/scale autoscaling/v1 Scale namespaced", "example.com/v2 foos/status Foo namespaced",
		"v1 nodes Node", "v1 pods Pod namespaced", "v1 pods/status Pod namespaced",
	}
	for form, test := range map[string]struct {
		forms  []Forms
		groups []string
	}{
		"v2+json": {[]Forms{Aggregated(), {V2: true}}, []string{" v1 (v1)", "example.com v2,v1 (v2)", "metrics.example.com  ()"}},
		"legacy":  {[]Forms{Legacy(), {}}, []string{" v1 (v1)", "example.com v2,v1 (v1)", "metrics.example.com v1beta1 (v1beta1)"}},
	} {
		for _, forms := range test.forms {
			s := New(sample()...)
			s.SetForms(forms)
			client, err := discovery.NewDiscoveryClientForConfigAndClient(s.Config(), s.Client())
			if err != nil {
				t.Fatal(err)
			}
			groups, lists, err := client.ServerGroupsAndResources()
			var failed *discovery.ErrGroupDiscoveryFailed
			stale := schema.GroupVersion{Group: "metrics.example.com", Version: "v1beta1"}
			if !errors.As(err, &failed) || len(failed.Groups) != 1 || failed.Groups[stale] == nil {
				t.Errorf("%s: %v, want %v alone to fail", form, err, stale)
			}
			wantLines(t, form+": requests", lines(s.Requests())[:2], "GET /api  "+form+" 200", "GET /apis  "+form+" 200")
			wantLines(t, form+": groups", groupLines(groups), test.groups...)
			wantLines(t, form+": resources", resourceLines(lists), resources...)
		}
	}
}

func groupLines(groups []*metav1.APIGroup) (lines []string) {
	for _, group := range groups {
		var versions []string
		for _, version := range group.Versions {
			versions = append(versions, version.Version)
		}
		lines = append(lines, group.Name+" "+strings.Join(versions, ",")+" ("+group.PreferredVersion.Version+")")
	}
	return lines
}

func resourceLines(lists []*metav1.APIResourceList) (lines []string) {
	for _, list := range lists {
		for _, r := range list.APIResources {
			line := list.GroupVersion + " " + r.Name
			if other := (schema.GroupVersion{Group: r.Group, Version: r.Version}); !other.Empty() && other.String() != list.GroupVersion {
				line += " " + other.String()
			}
			line += " " + r.Kind
			if r.Namespaced {
				line += " namespaced"
			}
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}
