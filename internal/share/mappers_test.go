// SPDX-License-Identifier: Apache-2.0

//go:build go1.24

package share_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/reload"
	"github.com/freshmapper/freshmapper/internal/share"
)

// Servers that have nothing to do with each other serve mostly the same. Equal groups are
// in memory once, and each mapper has its own copy of the others.
func TestEqualGroupsAreThereOnce(t *testing.T) {
	for name, forms := range map[string]fakeapi.Forms{
		"protobuf": fakeapi.Aggregated(), "JSON": {V2: true, ETag: true}, "v2beta1": fakeapi.V2Beta1Only(),
	} {
		a, b := fakeapi.New(fakeapi.Typical(20, 2, 2)...), fakeapi.New(fakeapi.Typical(20, 2, 2)...)
		b.PutVersion("g0007.example.com", fakeapi.Version{Name: "v1"})
		a.SetForms(forms)
		b.SetForms(forms)
		inA := read(t, newReloader(t, a.Config(), a.Client()))
		inB := read(t, newReloader(t, b.Config(), b.Client()))
		for _, g := range inA.Groups() {
			if shared := inB.Group(g.Name()) == g; shared == (g.Name() == "g0007.example.com") {
				t.Errorf("%s: group %q: shared is %v", name, g.Name(), shared)
			}
		}
		if v := inB.Group("g0007.example.com").Version("v1"); v == nil || v.Table == inA.Group("g0007.example.com").Version("v1").Table {
			t.Errorf("%s: the group that differs is not each one's own", name)
		}
	}
}

// A new mapper of a server that the process knows starts with two 304, and with
// the very groups of the others.
func TestNewMappersStartWith304(t *testing.T) {
	server := fakeapi.New(fakeapi.Typical(5, 1, 1)...)
	cfg, name := server.Config(), uniqueName(t)
	first := newNamed(t, cfg, server.Client(), name)
	known := read(t, first)
	wantRequests(t, server, "the first mapper", bothRead...)
	for range 3 {
		s := read(t, newNamed(t, cfg, server.Client(), name))
		wantRequests(t, server, "another mapper", bothUnchanged...)
		if !slices.Equal(s.Groups(), known.Groups()) {
			t.Error("another mapper has groups of its own")
		}
	}
	server.PutVersion("g0002.example.com", fakeapi.Version{Name: "v9"})
	s := read(t, newNamed(t, cfg, server.Client(), name))
	wantRequests(t, server, "after a change", "GET /api  304", "GET /apis  v2+protobuf 200")
	if s.Group("g0002.example.com").Version("v9") == nil || s.Group("g0001.example.com") != known.Group("g0001.example.com") {
		t.Error("the change is not there, or what did not change is not shared")
	}
	runtime.KeepAlive(first)
}

// The same over TCP, with a client per mapper as rest.HTTPClientFor makes them.
func TestClientsOfTheSameTransport(t *testing.T) {
	server := fakeapi.New(fakeapi.Typical(5, 1, 1)...)
	listener := httptest.NewServer(server)
	defer listener.Close()
	cfg := &rest.Config{Host: listener.URL, BearerToken: fakeapi.Token, QPS: -1}
	for i := range 3 {
		client, err := rest.HTTPClientFor(cfg)
		if err != nil {
			t.Fatal(err)
		}
		read(t, newReloader(t, cfg, client))
		want := bothUnchanged
		if i == 0 {
			want = bothRead
		}
		wantRequests(t, server, "a mapper with a client of its own", want...)
	}
	other := rest.CopyConfig(cfg)
	other.BearerToken = "another"
	client, err := rest.HTTPClientFor(other)
	if err != nil {
		t.Fatal(err)
	}
	read(t, newReloader(t, other, client))
	wantRequests(t, server, "a mapper with another token", bothRead...)
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	client.CloseIdleConnections()
}

// A mapper of another caller, or with another way to the server, starts from nothing.
func TestValidatorsAreNotSharedWithOthers(t *testing.T) {
	server := fakeapi.New(fakeapi.Typical(5, 1, 1)...)
	cfg, client, name := server.Config(), server.Client(), uniqueName(t)
	first := newNamed(t, cfg, client, name)
	read(t, first)
	server.TakeRequests()
	for name, change := range map[string]func(*rest.Config){
		"another token":   func(c *rest.Config) { c.BearerToken = "another" },
		"another user":    func(c *rest.Config) { c.Username = "another" },
		"impersonation":   func(c *rest.Config) { c.Impersonate.UserName = "another" },
		"another CA":      func(c *rest.Config) { c.CAData = []byte("another") },
		"insecure":        func(c *rest.Config) { c.Insecure = true },
		"another address": func(c *rest.Config) { c.Host = "http://other.invalid" },
	} {
		other := rest.CopyConfig(cfg)
		change(other)
		read(t, newNamed(t, other, client, name))
		wantRequests(t, server, name, bothRead...)
	}
	read(t, newNamed(t, cfg, client, uniqueName(t)))
	wantRequests(t, server, "another name", bothRead...)
	for range 2 {
		read(t, newReloader(t, cfg, client))
		wantRequests(t, server, "no name, though it is the same client", bothRead...)
	}
	runtime.KeepAlive(first)
}

// A document that no mapper uses any more goes, once its time is over.
func TestUnusedDocumentsGo(t *testing.T) {
	nothing := func() bool { return share.Kept() == [4]int{} }
	forget := func() { share.Keep(share.DefaultKeepFor, share.DefaultKeepBytes) }
	forget()
	if !share.Collected(nothing) {
		t.Fatalf("%v groups, lists and documents are kept of other tests", share.Kept())
	}
	func() {
		server, name := fakeapi.New(fakeapi.Typical(30, 1, 1)...), uniqueName(t)
		read(t, newNamed(t, server.Config(), server.Client(), name))
		runtime.GC()
		read(t, newNamed(t, server.Config(), server.Client(), name))
		wantRequests(t, server, "make and drop", append(slices.Clone(bothRead), bothUnchanged...)...)
		if kept := share.Kept(); kept[3] != 1 {
			t.Errorf("%d documents are kept of one server", kept[3])
		}
	}()
	forget()
	if !share.Collected(nothing) || share.KeptBytes() != 0 {
		t.Errorf("%v groups, lists and documents, %d bytes, are kept of nobody's", share.Kept(), share.KeptBytes())
	}
}

// Servers behind one address, to which a wrapper leads requests, are not one
// server: none can make another confirm its document.
func TestServersBehindAGateway(t *testing.T) {
	gk := schema.GroupKind{Group: "g0001.example.com", Kind: "Kind0001A"}
	honest, hostile := fakeapi.New(fakeapi.Typical(3, 1, 1)...), fakeapi.New(fakeapi.Typical(3, 1, 1)...)
	hostile.PutVersion(gk.Group, fakeapi.Version{Name: "v1", Resources: []fakeapi.Resource{{Name: "evils", Singular: "evil", Kind: gk.Kind}}})
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("X-Cluster") == "hostile" {
			hostile.ServeHTTP(w, req)
		} else {
			honest.ServeHTTP(w, req)
		}
	}))
	defer gateway.Close()
	newRouted := func(to string) *reload.Reloader {
		cfg := &rest.Config{Host: gateway.URL, QPS: -1}
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &routed{next, to} })
		client, err := rest.HTTPClientFor(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return newReloader(t, cfg, client)
	}
	first := newRouted("hostile")
	read(t, first)
	m, _, err := read(t, newRouted("honest")).RESTMapping(gk, nil)
	if err != nil || m.Resource.Resource != "kind0001as" {
		t.Errorf("the honest server is said to serve %v, %v", m, err)
	}
	for _, r := range honest.TakeRequests() {
		if r.IfNoneMatch != "" {
			t.Errorf("the honest server is asked for the hostile one's document: %s", r)
		}
	}
	runtime.KeepAlive(first)
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// A hostile server B claims to be as A is. That changes nothing for A's mappers.
func TestHostileServers(t *testing.T) {
	gk := schema.GroupKind{Group: "g0001.example.com", Kind: "Kind0001A"}
	etagOf := func(server *fakeapi.Server) string {
		req, _ := http.NewRequest(http.MethodGet, "http://fake.invalid/apis", nil)
		req.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		server.TakeRequests()
		return resp.Header.Get("ETag")
	}
	lies := map[string]func(a *fakeapi.Server) fakeapi.Fault{
		"A's ETag over another body": func(a *fakeapi.Server) fakeapi.Fault { return fakeapi.LieETag(etagOf(a)) },
		"304 to everything": func(*fakeapi.Server) fakeapi.Fault {
			return fakeapi.Func("304", func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 304, Header: http.Header{}, Body: http.NoBody}, nil
			})
		},
		"304 with A's ETag": func(a *fakeapi.Server) fakeapi.Fault {
			etag := etagOf(a)
			return fakeapi.Func("304", func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 304, Header: http.Header{"Etag": {etag}}, Body: http.NoBody}, nil
			})
		},
		"no ETag": func(*fakeapi.Server) fakeapi.Fault { return fakeapi.NoETag() },
	}
	for name, lie := range lies {
		a, b := fakeapi.New(fakeapi.Typical(3, 1, 1)...), fakeapi.New(fakeapi.Typical(3, 1, 1)...)
		b.PutVersion(gk.Group, fakeapi.Version{Name: "v1", Resources: []fakeapi.Resource{{Name: "evils", Singular: "evil", Kind: gk.Kind}}})
		nameA, nameB := uniqueName(t), uniqueName(t)
		ofA := newNamed(t, a.Config(), a.Client(), nameA)
		wantResource := func(r *reload.Reloader, when, want string) {
			t.Helper()
			_ = r.ReadAll(context.Background())
			m, _, err := r.Snapshot().RESTMapping(gk, nil)
			if err != nil || m.Resource.Resource != want {
				t.Errorf("%s, %s: %v, %v; want %s", name, when, m, err, want)
			}
		}
		wantResource(ofA, "before", "kind0001as")

		ofB := newNamed(t, b.Config(), b.Client(), nameB)
		heal := b.SetFault(fakeapi.All(), lie(a))
		_ = ofB.ReadAll(context.Background())
		ofB.Reset()
		_ = ofB.ReadAll(context.Background())
		_ = newNamed(t, b.Config(), b.Client(), nameB).ReadAll(context.Background())
		if m, _, err := ofB.Snapshot().RESTMapping(gk, nil); err == nil && m.Resource.Resource != "evils" {
			t.Errorf("%s: B is said to serve %v", name, m)
		}

		wantResource(ofA, "after", "kind0001as")
		wantResource(newNamed(t, a.Config(), a.Client(), nameA), "a new mapper of A", "kind0001as")
		for _, r := range a.TakeRequests() {
			if r.IfNoneMatch != "" && r.IfNoneMatch != etagOf(a) && r.Path == "/apis" {
				t.Errorf("%s: A is asked for %s", name, r.IfNoneMatch)
			}
		}
		for _, r := range b.TakeRequests() {
			if name != "A's ETag over another body" && r.IfNoneMatch == etagOf(a) {
				t.Errorf("%s: B is asked for A's document", name)
			}
		}
		heal()
		wantResource(ofB, "healed", "evils")
		wantResource(newNamed(t, b.Config(), b.Client(), nameB), "a new mapper of B", "evils")
	}
}
