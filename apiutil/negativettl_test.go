// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// Within NegativeTTL the same error is returned without a request, as long as nothing has
// changed or was reset.
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
		wantServed(t, m, extra) // its miss finds the change
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
			_, want := form.ask(context.Background(), plain)
			for range 2 {
				if _, err := form.ask(context.Background(), m); err == nil || err.Error() != want.Error() {
					t.Errorf("%s: %v; want %v", form.name, err, want)
				}
			}
		}
		server.TakeRequests()
		for _, form := range forms {
			if _, err := form.ask(context.Background(), m); err == nil {
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

// Failures are not remembered: a read that failed does not prove an absence.
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

// The memory of absences is bounded.
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

// NoMatch is kept if it was proven live: not that of the very first lookup, which believes
// the document, and not that of a lookup that found a known version gone and left out the
// list.
func TestNegativeTTLKeepsWhatIsProven(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{NegativeTTL: time.Hour, MaxAge: -1})
		absent := schema.GroupKind{Group: fooKind.Group, Kind: "Absent"}
		asks := func(what string, want bool) {
			t.Helper()
			server.TakeRequests()
			if _, err := m.RESTMapping(absent); !meta.IsNoMatchError(err) {
				t.Errorf("%s: %v; want NoMatch", what, err)
			}
			if n := len(server.TakeRequests()); (n > 0) != want {
				t.Errorf("%s: %d requests", what, n)
			}
		}
		asks("the first lookup", true)
		asks("after the first lookup", true)
		asks("after a live read", false)
		server.Put(fakeGroup(fooKind.Group, fakeVersion("v2", "Foo")))
		m.Reset()
		wantServed(t, m, otherKind)
		m.ResetGroup(fooKind.Group)
		server.Put(fakeGroup(fooKind.Group, fakeVersion("v3", "Foo")))
		asks("a known version is gone", true)
		asks("after a known version was gone", true)
		asks("after all versions were read", false)
	})
}
