// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/metrics"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newClient(t testing.TB, server http.RoundTripper) *Client {
	t.Helper()
	cfg := &rest.Config{Host: "http://fake.invalid", QPS: -1, BearerToken: fakeapi.Token}
	c, err := NewClient(
		cfg, &http.Client{Transport: server}, Options{RequestTimeout: time.Minute, MaxResponseBytes: 8 << 20},
	)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newServer(groups ...fakeapi.Group) (*fakeapi.Server, http.RoundTripper) {
	server := fakeapi.New(groups...)
	return server, server.Client().Transport
}

type transport func(*http.Request) (*http.Response, error)

func (rt transport) RoundTrip(req *http.Request) (*http.Response, error) { return rt(req) }

// readDocument reads the document.
func readDocument(t *testing.T, c *Client) *snapshot.Snapshot {
	t.Helper()
	doc, err := c.Document(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return new(snapshot.Snapshot).WithDocument(doc, 1)
}

// readLive reads each list and each version of a snapshot.
func readLive(t *testing.T, c *Client, s *snapshot.Snapshot) *snapshot.Snapshot {
	t.Helper()
	for _, g := range s.Groups() {
		versions, preferred, _, err := c.List(context.Background(), g.Name())
		if err != nil || len(versions) != len(g.Versions()) {
			t.Errorf("the list of group %q has versions %q, %v; want %d as in the document",
				g.Name(), versions, err, len(g.Versions()))
			continue
		}
		s = s.WithGroup(g.Name(), versions, preferred, 2, s)
		for _, name := range versions {
			table, _, err := c.Version(context.Background(), g.Name(), name)
			if table == nil && err == nil {
				t.Errorf("%s/%s is listed and not served", g.Name(), name)
			}
			s = s.WithVersion(g.Name(), name, snapshot.VersionResult{Table: table, Err: err}, 2, s)
		}
	}
	return s
}

// body returns what a server answers.
func body(server *fakeapi.Server, path, accept string) []byte {
	req, answer := httptest.NewRequest(http.MethodGet, path, nil), httptest.NewRecorder()
	req.Header.Set("Accept", accept)
	server.ServeHTTP(answer, req)
	return answer.Body.Bytes()
}

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
		lines = append(
			lines, fmt.Sprintf("%v %v %v %q", m.GroupVersionKind, m.Resource, m.Scope.Name(), change.Verbs.Names()),
		)
		singular, _, err := s.ResourceSingularizer(m.Resource.Resource)
		lines = append(lines, fmt.Sprintf("  %s %v", singular, err))
	}
	return lines
}

// Whichever form a server speaks, what it says is the same, and so is what is read live. A cache that
// drops Vary may send any form to whoever asks for a list of versions: it is read.
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
		server, via := newServer(oddities()...)
		server.SetForms(test.forms)
		c := newClient(t, via)
		s := readDocument(t, c)
		if !s.Aggregated() {
			s = readLive(t, c, s)
		}
		got := dump(s)
		if want == nil {
			want = got
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: the document (-aggregated +this):\n%s", test.name, diff)
		}
		if diff := cmp.Diff(got, dump(readLive(t, c, s))); diff != "" {
			t.Errorf("%s: what each path says (-document +paths):\n%s", test.name, diff)
		}
		for _, r := range server.Requests()[:2] {
			if r.Form != test.form {
				t.Errorf("%s: %s; want form %s", test.name, r, test.form)
			}
		}
		core, err := decodeGroup(body(server, corePath, acceptDocument), schema.GroupVersion{})
		if err != nil || len(core.Versions()) != 1 || core.Versions()[0].Name != "v1" {
			t.Errorf("%s: %s read as the list of the core group: %v, %v; want v1", test.name, test.form, core, err)
		}
	}
}

// A parent that exists only for its subresources has no kind, or one without a name, which kube-apiserver writes for
// old clients (kubernetes/kubernetes#118361). It is no resource of its own in either encoding.
func TestParentsOfSubresourcesAreNoResources(t *testing.T) {
	noName := message{}.with(1, "").with(2, "").with(kindKind, "")
	parents := message{}.with(resourceName, "parents")
	one := message{}.with(resourceName, "ones").with(
		resourceKind, string(message{}.with(1, "").with(2, "").with(kindKind, "One")),
	)
	version := message{}.with(versionName, "v1").with(versionResources, string(parents)).
		with(versionResources, string(parents.with(resourceKind, string(noName)))).with(versionResources, string(one))
	group := message{}.with(groupMeta, string(message{}.with(metaName, "g"))).with(groupVersions, string(version))
	for encoding, body := range map[string][]byte{
		"protobuf": aggregatedProtobuf(message{}.with(listItems, string(group))),
		"JSON": aggregatedJSON(`{"metadata":{"name":"g"},"versions":[{"version":"v1","resources":[{"resource":"parents"},` +
			`{"resource":"parents","responseKind":{"group":"","version":"","kind":""}},` +
			`{"resource":"ones","responseKind":{"group":"","version":"","kind":"One"}}]}]}`),
	} {
		read, err := decodeDocument(body, namedPath, false)
		if err != nil {
			t.Errorf("%s: %v", encoding, err)
			continue
		}
		var got []string
		document := snapshot.NewDocument(read.groups, true)
		for _, change := range snapshot.Diff(new(snapshot.Snapshot), new(snapshot.Snapshot).WithDocument(document, 1)) {
			got = append(got, change.Mapping.Resource.Resource+" "+change.Mapping.GroupVersionKind.Kind)
		}
		if diff := cmp.Diff([]string{"ones One"}, got); diff != "" {
			t.Errorf("%s: resources and kinds (-want +got):\n%s", encoding, diff)
		}
	}
}

// A server may refuse the request that sends a long ETag back, and a proxy that compresses makes one weak.
func TestETagsThatAreSentBack(t *testing.T) {
	for etag, want := range map[string]string{
		`"it"`: `"it"`, `W/"it"`: `"it"`, `""`: `""`, `"`: "", "it": "", `"it`: "", `it"`: "", "": "",
		`"` + strings.Repeat("x", maxETag-2) + `"`: `"` + strings.Repeat("x", maxETag-2) + `"`,
		`"` + strings.Repeat("x", maxETag-1) + `"`: "",
	} {
		if got := strongETag(http.Header{"Etag": {etag}}); got != want {
			t.Errorf("of the ETag %s, %s is sent back; want %s", etag, got, want)
		}
	}
}

// A 304 proves nothing if the mapper sends other credentials than before (a file has a new token, a wrapper
// impersonates somebody else): a server may give documents of different content the same ETag. Nor does one
// whose own ETag is another one: a gateway speaks of a document that it has.
func TestUnchangedForOthers(t *testing.T) {
	// served to everybody, as a resource of the tenant's name
	mine := schema.GroupKind{Group: "tenant.example.com", Kind: "Mine"}
	for header, prefix := range map[string]string{
		"Authorization": "Bearer ", "Impersonate-User": "", "Impersonate-Extra-Tenant": "", "X-Gateway": "",
	} {
		etagOf := func(tenant string) string {
			if header == "X-Gateway" { // says nothing of the caller
				return `"` + tenant + `"`
			}
			return `"same"`
		}
		servers := map[string]http.RoundTripper{}
		for _, tenant := range []string{"a", "b"} {
			server, via := newServer(fakeapi.Typical(2, 1, 1)...)
			server.PutVersion(mine.Group, fakeapi.Version{Name: "v1", Resources: []fakeapi.Resource{{Name: "of-" + tenant, Singular: "mine", Kind: mine.Kind}}})
			server.SetFault(fakeapi.At("/api", "/apis"), fakeapi.LieETag(etagOf(tenant)))
			servers[tenant] = via
		}
		var tenant string
		var asked []string
		c := newClient(t, transport(func(req *http.Request) (*http.Response, error) {
			req = req.Clone(req.Context())
			req.Header.Set(header, prefix+tenant)
			if req.Header.Get("If-None-Match") != "" {
				asked = append(asked, req.URL.Path+" 304")
				return &http.Response{
					StatusCode: http.StatusNotModified, Header: http.Header{"Etag": {etagOf(tenant)}}, Body: http.NoBody,
					Request: req,
				}, nil
			}
			asked = append(asked, req.URL.Path)
			resp, err := servers[tenant].RoundTrip(req)
			if err == nil {
				resp.Request = req // as http.Transport does
			}
			return resp, err
		}))
		for _, tenant = range []string{"a", "b", "a", "b"} {
			for range 2 {
				asked = nil
				m, _, err := readDocument(t, c).RESTMapping(mine, nil)
				if err != nil || m.Resource.Resource != "of-"+tenant {
					t.Errorf("by %s, tenant %s gets %v, %v; want of-%[2]s", header, tenant, m, err)
				}
			}
			if diff := cmp.Diff([]string{"/api 304", "/apis 304"}, asked); diff != "" {
				t.Errorf("by %s, the same again: requests (-want +got):\n%s", header, diff)
			}
		}
	}
}

// Programs see the mapper's requests in client-go's metric, as those of controller-runtime's own.
func TestClientGoCountsRequests(t *testing.T) {
	var counted results
	defer func(before metrics.ResultMetric) { metrics.RequestResult = before }(metrics.RequestResult)
	metrics.RequestResult = &counted
	server, via := newServer(fakeapi.Typical(1, 1, 1)...)
	c := newClient(t, via)
	readDocument(t, c)
	server.SetFault(fakeapi.All(), fakeapi.Refused())
	_, _, _ = c.Version(context.Background(), "g0001.example.com", "v1")
	want := results{"GET fake.invalid 200", "GET fake.invalid 200", "GET fake.invalid <error>"}
	if !slices.Equal(want, counted) {
		t.Errorf("client-go's metric counts %q; want %q", counted, want)
	}
}

type results []string

func (r *results) Increment(_ context.Context, code, method, host string) {
	*r = append(*r, method+" "+host+" "+code)
}

// Names that are no names of groups or versions are not served, and no request goes astray for them.
func TestNamesThatAreNoneAreNotAskedFor(t *testing.T) {
	server, via := newServer(fakeapi.Typical(1, 1, 1)...)
	c := newClient(t, via)
	ask := func(group, version string) {
		table, proven, err := c.Version(context.Background(), group, version)
		if table != nil || err != nil {
			t.Errorf("group %q, version %q: served %v, %v; want that it is not served", group, version, table != nil, err)
		}
		if !proven {
			t.Errorf("group %q, version %q: whether it is served is open; want that it is not", group, version)
		}
	}
	for _, name := range []string{
		"a/b", "..", ".", "x?y", "x#y", "%2e%2e", "../../api/v1/secrets", "/", "a/../b", "?", "..%2fapi",
	} {
		ask(name, "v1")
		ask("g0001.example.com", name)
		ask("", name)
		versions, _, proven, err := c.List(context.Background(), name)
		if err != nil || len(versions) > 0 || !proven {
			t.Errorf("group %q: versions %q, %v, proven: %t; want none, and no doubt", name, versions, err, proven)
		}
	}
	ask("g0001.example.com", "")
	var asked []string
	for _, name := range []string{"with space", "ü", "a:b", "a;b"} {
		ask(name, "v1")
	}
	for _, r := range server.TakeRequests() {
		asked = append(asked, r.Path)
	}
	if diff := cmp.Diff([]string{"/apis/with space/v1", "/apis/ü/v1", "/apis/a:b/v1", "/apis/a;b/v1"}, asked); diff != "" {
		t.Errorf("requests: none for what cannot be a name, and for others each its path (-want +got):\n%s", diff)
	}
}

// The path says of which version a list is (R1), whatever version it calls itself (kubevirt#10899). A
// list of another group is an error.
func TestListsThatCallThemselvesOtherwise(t *testing.T) {
	for claim, fine := range map[string]bool{
		"g/v1": true, "g/v1alpha3": true, "other.example.com/v1": false, "v1": false, "g/v1/v1": false,
	} {
		body := fmt.Sprintf(`{"kind":"APIResourceList","groupVersion":%q,"resources":[{"name":"rs","kind":"R"}]}`, claim)
		if table, err := decodeTable([]byte(body), schema.GroupVersion{Group: "g", Version: "v1"}, false); (err == nil) != fine || (table != nil) != fine {
			t.Errorf("a list at g/v1 that calls itself %s: table %v, %v; want that it is read: %t", claim, table, err, fine)
		}
	}
	for claim, fine := range map[string]bool{"v1": true, "v2": true, "apps/v1": false, "a/b/c": false} {
		body := fmt.Sprintf(`{"kind":"APIResourceList","groupVersion":%q,"resources":[{"name":"rs","kind":"R"}]}`, claim)
		table, err := decodeTable([]byte(body), schema.GroupVersion{Version: "v1"}, false)
		if (err == nil) != fine || (table != nil) != fine {
			t.Errorf("a list at v1 that calls itself %s: table %v, %v; want that it is read: %t", claim, table, err, fine)
		}
	}
}

// A document of another kind than the one that was asked for is an error, although it has what is looked for in it.
func TestDocumentsOfAnotherKindAreErrors(t *testing.T) {
	const (
		groups = `"items":[{"metadata":{"name":"g"}}],"groups":[{"name":"g","versions":[{"version":"v1"}]}]`
		one    = `"name":"g","versions":[{"version":"v1"}],"groupVersion":"g/v1","resources":[]`
	)
	document := func(path string) func([]byte) error {
		return func(body []byte) error { _, err := decodeDocument(body, path, false); return err }
	}
	group := func(name string) func([]byte) error {
		return func(body []byte) error { _, err := decodeGroup(body, schema.GroupVersion{Group: name}); return err }
	}
	table := func(body []byte) error {
		_, err := decodeTable(body, schema.GroupVersion{Group: "g", Version: "v1"}, false)
		return err
	}
	for _, test := range []struct {
		decode           func([]byte) error
		kind, apiVersion string
		content, want    string // want: "" if it is read
	}{
		{document(namedPath), aggregatedKind, "apidiscovery.k8s.io/v2", groups, ""},
		{document(namedPath), aggregatedKind, "v1", groups, "not of kind"},
		{document(namedPath), "APIGroupDiscovery", "apidiscovery.k8s.io/v2", groups, "not of kind"},
		{document(namedPath), "APIGroupList", "v1", groups, ""},
		{document(namedPath), "APIVersions", "", groups, "not of kind"},
		{document(namedPath), "Status", "v1", groups, "not of kind"},
		{document(corePath), "APIVersions", "", `"versions":["v1"]`, ""},
		{document(corePath), "APIGroupList", "v1", groups, "not of kind"},
		{group("g"), "APIGroup", "v1", one, ""},
		{group("g"), "APIGroupList", "v1", one, "not of kind"},
		{group("g"), "APIResourceList", "v1", one, "not of kind"},
		{group("g"), "APIGroup", "v1", `"name":"h","versions":[{"version":"v1"}]`, `about group "h"`},
		{group("g"), "APIGroup", "v1", `"name":"g","versions":[]`, "no versions"},
		{group(""), "APIVersions", "", `"versions":["v1"]`, ""},
		{group(""), "APIVersions", "", `"versions":[]`, "not about the core group"},
		{group(""), aggregatedKind, "apidiscovery.k8s.io/v2", groups, "not about the core group"},
		{table, "APIResourceList", "v1", one, ""},
		{table, "", "", one, ""},
		{table, "", "", `"resources":[]`, "not of kind"},
		{table, "APIGroup", "v1", one, "not of kind"},
	} {
		body := fmt.Sprintf(`{"kind":%q,"apiVersion":%q,%s}`, test.kind, test.apiVersion, test.content)
		err := test.decode([]byte(body))
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v; want an error with %q, or none", body, err, test.want)
		}
	}
}

// A server that only extends another one has no core group, and says so with a 404 at /api. Without an Audit-Id that
// 404 may be a gateway's: it is an error if the other path shows that the server sends the header.
func TestServerWithoutACoreGroup(t *testing.T) {
	for _, test := range []struct {
		coreHas, namedHas bool // an Audit-Id
		fails             bool
	}{
		{true, true, false}, {true, false, false}, {false, false, false}, {false, true, true},
	} {
		_, via := newServer(fakeapi.Typical(1, 1, 1)...)
		c := newClient(t, transport(func(req *http.Request) (*http.Response, error) {
			resp, err := via.RoundTrip(req)
			if err != nil {
				return nil, err
			}
			has := test.namedHas
			if req.URL.Path == corePath {
				has = test.coreHas
				resp = &http.Response{
					StatusCode: http.StatusNotFound, Header: http.Header{}, Request: req,
					Body: io.NopCloser(strings.NewReader(pageNotFound)),
				}
			}
			resp.Header.Del(auditID)
			if has {
				resp.Header.Set(auditID, "x")
			}
			return resp, nil
		}))
		doc, err := c.Document(context.Background())
		if (err != nil) != test.fails || err == nil && len(doc.Groups()) != 1 {
			t.Errorf("an Audit-Id at /api: %t, at /apis: %t: %v; want the groups at /apis, or an error: %t",
				test.coreHas, test.namedHas, err, test.fails)
		}
	}
}

// A server that lists no groups at all is an error, and not one without APIs: what is known stays.
func TestServerWithoutGroupsIsAnError(t *testing.T) {
	c := newClient(t, transport(func(req *http.Request) (*http.Response, error) {
		kind := "APIGroupList"
		if req.URL.Path == corePath {
			kind = "APIVersions"
		}
		body := io.NopCloser(strings.NewReader(`{"kind":"` + kind + `"}`))
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: req, Body: body}, nil
	}))
	doc, err := c.Document(context.Background())
	const want = "discovery of /apis failed: the server lists no API groups, and none at /api"
	if doc != nil || err == nil || err.Error() != want {
		t.Errorf("%v, %v; want no document, and %s", doc, err, want)
	}
}

// The error of a read that nobody waited for names what was read, and is no timeout of that: it goes on.
func TestErrorOfAReadThatIsNotAwaited(t *testing.T) {
	for _, test := range []struct {
		read snapshot.Read
		want string
	}{
		{snapshot.Read{Part: snapshot.PartDocument}, "discovery of /apis failed: no answer within 2s"},
		{
			snapshot.Read{Part: snapshot.PartVersion, Group: "g", Version: "v1"},
			"discovery of g/v1 at /apis/g/v1 failed: no answer within 2s",
		},
		{snapshot.Read{Part: snapshot.PartVersion, Version: "v1"}, "discovery of v1 at /api/v1 failed: no answer within 2s"},
		{snapshot.Read{Part: snapshot.PartGroup, Group: "g"}, "discovery of g at /apis/g failed: no answer within 2s"},
	} {
		if err := NotAwaited(test.read, 2*time.Second); err.Error() != test.want || GivesNoAnswer(err) {
			t.Errorf("of %v: %v; want %s", test.read, err, test.want)
		}
	}
}

// Only built-in groups may be served by another API server of the same cluster alone, as far as their names tell.
func TestGroupsThatMayBeOfAPeer(t *testing.T) {
	for group, want := range map[string]bool{
		"": true, "apps": true, "batch": true, "networking.k8s.io": true, "gateway.networking.k8s.io": true,
		"example.com": false, "k8s.io.example.com": false, "xk8s.io": false, "a.xk8s.io": false,
	} {
		if got := MayBeOfPeer(group); got != want {
			t.Errorf("group %q may be of a peer: %t; want %t", group, got, want)
		}
	}
}
