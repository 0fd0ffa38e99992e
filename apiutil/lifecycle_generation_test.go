// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// Generation moves when the served API changes, and only then.
func TestGeneration(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		last := m.Generation()
		check := func(what string, moves bool) {
			t.Helper()
			readAll(t, m)
			now := m.Generation()
			if (now != last) != moves || now < last {
				t.Errorf("%s: generation %d after %d", what, now, last)
			}
			if m.Status().Generation != now {
				t.Errorf("%s: generation %d, Status says %d", what, now, m.Status().Generation)
			}
			last = now
		}
		foo := func(edit func(*fakeapi.Resource)) {
			v := fakeVersion("v1", "Foo", "Bar")
			edit(&v.Resources[0])
			server.PutVersion("example.com", v)
		}
		check("the first read", true)
		check("a read again", false)
		server.PutVersion("example.com", fakeVersion("v1", "Foo", "Bar"))
		check("the same again", false)
		foo(func(r *fakeapi.Resource) {
			r.ShortNames, r.Categories, r.Subresources = []string{"f"}, []string{"all"}, nil
		})
		check("what is no part of the mapping", false)

		server.PutVersion("example.com", fakeVersion("v1", "Foo", "Bar", "Baz"))
		check("a new kind", true)
		server.PutVersion("example.com", fakeVersion("v1", "Foo", "Bar"))
		check("without it", true)
		foo(func(r *fakeapi.Resource) { r.Namespaced = false })
		check("another scope", true)
		foo(func(r *fakeapi.Resource) { r.Name = "phooeys" })
		check("another resource name", true)
		server.PutVersion("example.com", fakeVersion("v2", "Foo"))
		check("a new version", true)
		server.Put(fakeGroup("example.com", fakeVersion("v2", "Foo"), fakeVersion("v1", "Foo")))
		check("another order of versions", true)
		server.RemoveVersion("example.com", "v1")
		check("a version less", true)
		serve(server, newKind)
		check("a new group", true)
		server.Remove(newKind.Group)
		check("a group less", true)

		heal := server.SetFault(fakeapi.All(), fakeapi.Status(503, 0))
		m.Reset()
		m.ResetGroup("example.com")
		for range 3 {
			_ = lookUp(m, newKind)
			_, _ = m.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Foo"})
		}
		if m.Generation() != last {
			t.Errorf("resets and failures: generation %d after %d", m.Generation(), last)
		}
		heal()
		check("recovery", false)

		dead := fakeVersion("v2", "Foo")
		dead.Stale = true
		server.PutVersion("example.com", dead)
		check("a service that is down", false)
		server.PutVersion("example.com", fakeVersion("v2", "Foo"))
		check("a service that is up again", false)
	})
}

// Misses that find nothing, hits, and reading what was listed do not move it.
func TestGenerationStaysOnLookups(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		wantServed(t, m, fooKind)
		first := m.Generation()
		wantServed(t, m, fooKind, otherKind)
		wantAbsent(t, m, newKind)
		for _, kind := range []string{"Absent", "Foo", "Other"} {
			for _, group := range []string{"", fooKind.Group, otherKind.Group, "absent.example.com"} {
				_, _ = m.RESTMapping(schema.GroupKind{Group: group, Kind: kind})
				_, _ = m.RESTMapping(schema.GroupKind{Group: group, Kind: kind}, "v1", "v2")
				_, _ = m.ResourcesFor(schema.GroupVersionResource{Group: group, Resource: kind})
			}
		}
		if m.Generation() != first {
			t.Errorf("generation %d after %d, nothing has changed", m.Generation(), first)
		}
	})
}

// An answer of NegativeTTL is given without a request for as long as that, and
// as long as nothing has changed or was reset.
func TestNegativeTTL(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{NegativeTTL: time.Minute, MaxAge: -1})
		readAll(t, m)
		server.TakeRequests()
		miss := []string{"/apis/new.example.com/v1 404"}
		ask := func(what string, want ...string) {
			t.Helper()
			wantAbsent(t, m, newKind)
			wantRequests(t, server, what, want...)
		}
		ask("the first miss", miss...)
		for range 5 {
			time.Sleep(11 * time.Second)
			ask("within the TTL")
		}
		time.Sleep(10 * time.Second)
		ask("after it", miss...)
		ask("within the next")

		absent := fooKind
		absent.Kind = "Absent"
		wantAbsent(t, m, absent)
		wantRequests(t, server, "another lookup", "/apis/example.com/v1 200")
		wantServed(t, m, fooKind, otherKind)
		wantRequests(t, server, "hits")
		ask("the first lookup again")

		m.ResetGroup(otherKind.Group)
		ask("after a reset of a group", miss...)
		ask("within the TTL")
		m.Reset()
		wantAbsent(t, m, newKind)
		if n := len(server.TakeRequests()); n < 2 {
			t.Errorf("%d requests after a reset", n)
		}
		ask("within the TTL")

		extra := fooKind
		extra.Kind = "Extra"
		server.PutVersion(fooKind.Group, fakeVersion("v1", "Foo", "Bar", "Extra"))
		wantServed(t, m, extra) // by which a change is learnt
		server.TakeRequests()
		ask("after a change", miss...)

		serve(server, newKind)
		ask("within the TTL, though it is served now")
		time.Sleep(time.Minute + time.Second)
		wantServed(t, m, newKind)
		wantRequests(t, server, "after the TTL", "/apis/new.example.com/v1 200")
	})
}

// The error is the same as that of the server, in every form of lookup.
func TestNegativeTTLOfEveryLookup(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{NegativeTTL: time.Minute})
		plain := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		forms := lookupForms(newKind)
		for _, form := range forms {
			_, want := form.ask(t.Context(), plain)
			for range 2 {
				if _, err := form.ask(t.Context(), m); err == nil || err.Error() != want.Error() {
					t.Errorf("%s: %v; want %v", form.name, err, want)
				}
			}
		}
		server.TakeRequests()
		for _, form := range forms {
			if _, err := form.ask(t.Context(), m); err == nil {
				t.Errorf("%s: found", form.name)
			}
		}
		wantRequests(t, server, "what was asked before")
		serve(server, newKind)
		m.Reset()
		for _, form := range forms {
			form.wantAnswer(t, m, "after a reset")
		}
	})
}

// Failures are not remembered: that nothing could be found out is not an absence.
func TestNegativeTTLIsNotForFailures(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{NegativeTTL: time.Hour})
		readAll(t, m)
		serve(server, newKind)
		for _, fault := range []fakeapi.Fault{fakeapi.Refused(), fakeapi.Status(503, 0), fakeapi.LoginPage()} {
			heal := server.SetFault(fakeapi.All(), fault)
			if err := lookUp(m, newKind); err == nil {
				t.Error("found through a fault")
			}
			heal()
		}
		wantServed(t, m, newKind)
	})
}

// It does not grow without bound.
func TestNegativeTTLOfManyNames(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{NegativeTTL: time.Hour})
		for n := range 10000 {
			gvk := fooKind
			gvk.Kind = "Absent" + time.Duration(n).String()
			wantAbsent(t, m, gvk)
		}
		server.TakeRequests()
		wantAbsent(t, m, newKind)
		wantAbsent(t, m, newKind)
		wantRequests(t, server, "after ten thousand", "/apis/new.example.com/v1 404")
	})
}
