// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// oddities is a server with something of everything that documents can say.
func oddities() []fakeapi.Group {
	groups := fakeapi.Typical(3, 2, 3)
	return append(groups,
		fakeapi.Group{Name: "odd.example.com", Versions: []fakeapi.Version{
			{Name: "v2", Resources: []fakeapi.Resource{
				{Name: "nosingulars", Kind: "NoSingular", Verbs: []string{"watch", "list", "list", "dance", "", "get"}},
				{Name: "noverbs", Singular: "noverb", Kind: "NoVerb", Verbs: []string{}},
				{Name: "parents", Kind: "Parent", NoKind: true, Subresources: []string{"scale"}},
				{Name: "scales", Singular: "scale", Kind: "Scaled", Namespaced: true, Subresources: []string{"scale", "status"}},
				{Name: "ünïcödes", Singular: "ünïcöde", Kind: "Ünïcöde", Namespaced: true},
			}},
			{Name: "v1"},
			{Name: "v3beta1", Stale: true, Resources: []fakeapi.Resource{{Name: "olds", Singular: "old", Kind: "Old"}}},
		}},
		fakeapi.Group{Name: "down.example.com", Versions: []fakeapi.Version{{Name: "v1", Stale: true}}},
	)
}

// dump writes down all that a snapshot says of its groups.
func dump(s *snapshot.Snapshot) []string {
	var lines []string
	for _, g := range s.Groups() {
		lines = append(lines, fmt.Sprintf("group %q prefers %q", g.Name(), g.Preferred()))
		for _, v := range g.Versions() {
			lines = append(lines, fmt.Sprintf("  %s known %v failed %v", v.Name, v.Table != nil, v.Err != nil))
		}
	}
	for _, change := range snapshot.Diff(new(snapshot.Snapshot), s) {
		m := change.Mapping
		lines = append(lines, fmt.Sprintf("%v %v %v %q", m.GroupVersionKind, m.Resource, m.Scope.Name(), change.Verbs.Names()))
		singular, _, err := s.ResourceSingularizer(m.Resource.Resource)
		lines = append(lines, fmt.Sprintf("  %s %v", singular, err))
	}
	return lines
}

// Whichever form a server speaks, what it says is the same, and so is what is read live.
func TestFormsAgree(t *testing.T) {
	var want []string
	for _, test := range []struct {
		name  string
		forms fakeapi.Forms
		form  string // of the answers to /api and /apis
	}{
		{"aggregated", fakeapi.Aggregated(), "v2+protobuf"},
		{"without protobuf", fakeapi.Forms{V2: true, ETag: true}, "v2+json"},
		{"both versions", fakeapi.Forms{V2: true, V2beta1: true, Protobuf: true}, "v2+protobuf"},
		{"v2beta1", fakeapi.V2Beta1Only(), "v2beta1+protobuf"},
		{"v2beta1 without protobuf", fakeapi.Forms{V2beta1: true}, "v2beta1+json"},
		{"legacy", fakeapi.Legacy(), "legacy"},
		{"legacy without protobuf", fakeapi.Forms{}, "legacy"},
	} {
		server := fakeapi.New(oddities()...)
		server.SetForms(test.forms)
		c := newClient(t, server)
		s := everything(t, c)
		got := dump(s)
		if want == nil {
			want = got
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-aggregated +this):\n%s", test.name, diff)
		}
		if diff := cmp.Diff(got, dump(readLive(t, c, s))); diff != "" {
			t.Errorf("%s (-bulk +live):\n%s", test.name, diff)
		}
		for _, r := range server.Requests()[:2] {
			if r.Form != test.form {
				t.Errorf("%s: %s", test.name, r)
			}
		}
	}
}

// A server that only extends another one has no core group. It may have the aggregated document
// all the same.
func TestServerWithoutACoreGroupIsAggregated(t *testing.T) {
	server := fakeapi.New(fakeapi.Typical(2, 1, 1)[1:]...)
	server.SetFault(fakeapi.At("/api"), fakeapi.NotFound())
	doc, err := newClient(t, server).Document(context.Background())
	if err != nil || len(doc.Groups()) != 2 || !new(snapshot.Snapshot).WithDocument(doc, 1).Aggregated() {
		t.Errorf("%+v, %v; want an aggregated document of two groups", doc, err)
	}
}

// A server that changes its mind, or a proxy that gets in between, is followed:
// at each step the client knows what is served, and asks with validators only
// where they were given.
func TestServerChangesItsMind(t *testing.T) {
	server := fakeapi.New(fakeapi.Typical(3, 1, 1)...)
	c := newClient(t, server)
	noVary := fakeapi.Aggregated()
	noVary.Vary = false
	for i, step := range []struct {
		forms fakeapi.Forms
		fault fakeapi.Fault
		want  string
	}{
		{fakeapi.Legacy(), fakeapi.Fault{}, "legacy 200"},
		{fakeapi.V2Beta1Only(), fakeapi.Fault{}, "v2beta1+protobuf 200"},
		{fakeapi.Aggregated(), fakeapi.Fault{}, "v2+protobuf 200"},
		{fakeapi.Aggregated(), fakeapi.NoETag(), "NoETag 200"},
		{fakeapi.Aggregated(), fakeapi.LieETag(`W/"weak"`), "LieETag 200"},
		{fakeapi.Aggregated(), fakeapi.LieETag("no quotes"), "LieETag 200"},
		{noVary, fakeapi.Fault{}, "v2+protobuf 200"},
		{fakeapi.Forms{V2: true, ETag: true}, fakeapi.Fault{}, "v2+json 200"},
		{fakeapi.Aggregated(), fakeapi.WrongContentType(), "WrongContentType 200"},
		{fakeapi.Legacy(), fakeapi.Fault{}, "legacy 200"},
		{fakeapi.Forms{}, fakeapi.Fault{}, "legacy 200"},
		{fakeapi.Aggregated(), fakeapi.Fault{}, "v2+protobuf 200"},
	} {
		name := fmt.Sprintf("step %d", i)
		server.PutVersion("changing.example.com", fakeapi.Version{Name: fmt.Sprintf("v%d", i+1), Resources: []fakeapi.Resource{
			{Name: "things", Singular: "thing", Kind: fmt.Sprintf("Thing%d", i)},
		}})
		server.SetForms(step.forms)
		server.ClearFaults()
		if step.fault.String() != "" {
			server.SetFault(fakeapi.At("/api", "/apis"), step.fault)
		}
		server.TakeRequests()
		fresh := newClient(t, server)
		if diff := cmp.Diff(dump(everything(t, fresh)), dump(everything(t, c))); diff != "" {
			t.Errorf("%s (-fresh +this):\n%s", name, diff)
		}
		if got := server.TakeRequests()[1].String(); got != "GET /apis  "+step.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// A document that could not be read leaves no validator, so the next read is not answered
// with 304.
func TestSpoiledDocumentsAreNotRemembered(t *testing.T) {
	for _, fault := range []fakeapi.Fault{
		fakeapi.Truncated(), fakeapi.TruncatedClean(), fakeapi.NotJSON(), fakeapi.GarbageProtobuf(), fakeapi.Empty200(),
		fakeapi.EmptyObject(), fakeapi.WrongKind(), fakeapi.EmptyGroupList(), fakeapi.NullItems(), fakeapi.Huge(16 << 20),
	} {
		server := fakeapi.New(fakeapi.Typical(3, 1, 1)...)
		c := newClient(t, server)
		for _, path := range []string{"/api", "/apis"} {
			heal := server.SetFault(fakeapi.At(path), fault)
			_, err := c.Document(context.Background())
			var failed *Error
			if !errors.As(err, &failed) || failed.Path != path {
				t.Errorf("%s at %s: %v", fault, path, err)
			}
			heal()
		}
		server.PutVersion("changing.example.com", fakeapi.Version{Name: "v1"})
		server.TakeRequests()
		if s := everything(t, c); s.Group("changing.example.com") == nil || len(s.Groups()) != 5 {
			t.Errorf("%s: %d groups afterwards", fault, len(s.Groups()))
		}
		for _, r := range server.TakeRequests() {
			if r.Code != 200 {
				t.Errorf("%s: afterwards %s", fault, r)
			}
		}
	}
}

// Names that are no names of groups or versions are not served, and no request
// goes astray for them.
func TestNamesThatAreNoneAreNotAskedFor(t *testing.T) {
	server := fakeapi.New(fakeapi.Typical(1, 1, 1)...)
	c := newClient(t, server)
	wantNone := func(group, version string) {
		t.Helper()
		if table, _, err := c.Version(context.Background(), group, version); table != nil || err != nil {
			t.Errorf("%q/%q: served %v, %v", group, version, table != nil, err)
		}
	}
	for _, name := range []string{"a/b", "..", ".", "x?y", "x#y", "%2e%2e", "../../api/v1/secrets", "/", "a/../b", "?", "..%2fapi"} {
		wantNone(name, "v1")
		wantNone("g0001.example.com", name)
		wantNone("", name)
		if versions, _, _, err := c.List(context.Background(), name); err != nil || len(versions) > 0 {
			t.Errorf("group %q: versions %q, %v", name, versions, err)
		}
	}
	wantNone("g0001.example.com", "")
	if requests := server.TakeRequests(); len(requests) > 0 {
		t.Errorf("requests: %v", requests)
	}
	for _, name := range []string{"with space", "ü", "a:b", "a;b"} {
		wantNone(name, "v1")
		if requests := server.TakeRequests(); len(requests) != 1 || requests[0].Path != "/apis/"+name+"/v1" {
			t.Errorf("%q: %v", name, requests)
		}
	}
}

// Verbs that are none cost no kind and little memory, wherever they stand.
func TestMalformedVerbsCostNothing(t *testing.T) {
	const most = maxElements - 1
	for verbs, want := range map[string]string{
		`null`: "", `{}`: "", `7`: "", `true`: "", `""`: "", `[1,"get",null,{},"watch"]`: "get watch", `["\"","GET"," get"]`: "",
		`[` + strings.Repeat(`"",`, most) + `"get"]`: "get", `["get","` + strings.Repeat("x", most) + `"]`: "get",
	} {
		aggregated := `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{"metadata":{"name":"g"},"versions":[{"version":"v1",` +
			`"resources":[{"resource":"rs","responseKind":{"kind":"R"},"verbs":` + verbs + `}]}]}]}`
		list := `{"kind":"APIResourceList","groupVersion":"g/v1","resources":[{"name":"rs","kind":"R","verbs":` + verbs + `}]}`
		var live *snapshot.Table
		var doc *half
		var err, liveErr error
		took := allocated(func() {
			doc, err = decodeBulk([]byte(aggregated), namedPath)
			live, liveErr = decodeTable([]byte(list), schema.GroupVersion{Group: "g", Version: "v1"})
		})
		what := verbs[:min(len(verbs), 40)]
		if err != nil || liveErr != nil {
			t.Errorf("%s: %v, %v", what, err, liveErr)
			continue
		}
		listed := snapshot.NewGroup("g", "v1", []snapshot.Version{{Name: "v1", Table: live}})
		for from, list := range map[string]*snapshot.Document{
			"a list":       snapshot.NewDocument([]*snapshot.Group{listed}, true),
			"the document": documentOf(&half{}, doc, nil),
		} {
			diff := snapshot.Diff(new(snapshot.Snapshot), new(snapshot.Snapshot).WithDocument(list, 1))
			if len(diff) != 1 || strings.Join(diff[0].Verbs.Names(), " ") != want {
				t.Errorf("%s: %s has %v", what, from, diff)
			}
		}
		if size := uint64(len(aggregated) + len(list)); took > 4*size+64<<10 {
			t.Errorf("%s: %d bytes were taken for %d", what, took, size)
		}
	}
}

// A credential may be a part of the words in which absence is said.
func TestAbsenceBesideAnyPassword(t *testing.T) {
	for _, password := range []string{"404", "served", "e"} {
		server := fakeapi.New(fakeapi.Typical(1, 1, 1)...)
		cfg := server.Config()
		cfg.Password = password
		c, err := NewClient(cfg, server.Client(), Options{RequestTimeout: time.Minute, MaxResponseBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if table, _, err := c.Version(context.Background(), "g0001.example.com", "v9"); table != nil || err != nil {
			t.Errorf("password %q: served %v, %v", password, table != nil, err)
		}
	}
}
