// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"testing"

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
