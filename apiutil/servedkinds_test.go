// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

func namesOf(all apiutil.ServedAPIs) (names []string) {
	for _, k := range all.Kinds {
		gvk := k.Mapping.GroupVersionKind
		names = append(names, gvk.GroupVersion().String()+"."+gvk.Kind+" "+k.Mapping.Resource.Resource)
	}
	return names
}

func wantKinds(t *testing.T, m *apiutil.DynamicRESTMapper, kinds []string, want ...string) apiutil.ServedAPIs {
	t.Helper()
	all, err := m.Served(context.Background(), kinds...)
	if got := namesOf(all); err != nil || !slices.Equal(got, want) {
		t.Errorf("served %q, %v; want %q", got, err, want)
	}
	return all
}

// Served lists all kinds in the server's order, and those of a name in all groups. What is current costs no request.
func TestServedListsKinds(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		all := wantKinds(t, m, nil, "v1.Pod pods", "v1.Node nodes", "example.com/v1.Foo foos", "example.com/v1.Bar bars", "other.example.com/v1.Other others")
		if node := all.Kinds[1]; node.Mapping.Scope.Name() != "root" || !slices.Contains(node.Verbs, "watch") || all.Generation != m.Generation() {
			t.Errorf("%+v, generation %d, want %d", node, all.Generation, m.Generation())
		}
		server.TakeRequests()
		wantKinds(t, m, []string{"foo", "NODE"}, "v1.Node nodes", "example.com/v1.Foo foos")
		wantKinds(t, m, []string{"Absent"})
		wantRequests(t, server, "while all is current")

		all.Kinds[0].Verbs[0] = "mine"
		serve(server, schema.GroupVersionKind{Group: "new.example.com", Version: "v1", Kind: "Foo"})
		m.Reset()
		wantKinds(t, m, []string{"Foo"}, "example.com/v1.Foo foos", "new.example.com/v1.Foo foos")
		server.Remove("new.example.com")
		server.Remove("other.example.com") // where the last resource was that the mapper knows
		m.Reset()
		wantKinds(t, m, nil, "v1.Pod pods", "v1.Node nodes", "example.com/v1.Foo foos", "example.com/v1.Bar bars")
	})
}

// What can't be read is an error, beside what is known.
func TestServedInAnOutage(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		server.SetFault(fakeapi.All(), fakeapi.Refused())
		if all, err := m.Served(context.Background()); err == nil || len(all.Kinds) > 0 {
			t.Errorf("served %q, %v; want an error", namesOf(all), err)
		}
		server.ClearFaults()
		time.Sleep(time.Minute)
		wantKinds(t, m, []string{"Foo"}, "example.com/v1.Foo foos")
		server.SetFault(fakeapi.At("/apis/other.example.com/v1"), fakeapi.Status(503, 0))
		_ = m.Refresh(context.Background(), "other.example.com")
		all, err := m.Served(context.Background())
		var failed *apiutil.ErrResourceDiscoveryFailed
		if !errors.As(err, &failed) || (*failed)[otherKind.GroupVersion()] == nil || len(all.Kinds) != 5 {
			t.Errorf("served %q, %v; want all, and the version that fails", namesOf(all), err)
		}
	})
}

// A NoMatch says what upstream's says. Beside it, the mapper knows where the kind is served.
func TestNoMatchHint(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		log, logger := newTestLog()
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{Logger: logger})
		for _, gv := range []schema.GroupVersion{{Group: "other.example.com", Version: "v2"}, {Group: "example.org", Version: "v1"}} {
			serve(server, gv.WithKind("Foo"))
		}
		readAll(t, m)
		_, err := m.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Foo"}, "v3")
		if want := `no matches for kind "Foo" in version "example.com/v3"`; err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		const hint = "Foo: example.com/v1, other.example.com/v2, example.org/v1"
		if got := m.NoMatchHint(fmt.Errorf("wrapped: %w", err)); got != hint {
			t.Errorf("hint %q, want %q", got, hint)
		}
		for range 3 {
			_, err = m.KindFor(schema.GroupVersionResource{Group: "example.com", Version: "v3", Resource: "foos"})
			_ = lookUp(m, schema.GroupVersionKind{Group: "example.com", Version: "v3", Kind: "Foo"})
			_ = lookUp(m, newKind)
		}
		if got := m.NoMatchHint(err); got != hint {
			t.Errorf("of a resource: %v: hint %q, want %q", err, got, hint)
		}
		for _, err := range []error{nil, errors.New("other"), lookUp(m, newKind)} {
			if got := m.NoMatchHint(err); got != "" {
				t.Errorf("%v: hint %q", err, got)
			}
		}
		time.Sleep(time.Second)
		lines := log.containing("looked up a kind where it is not served")
		if len(lines) != 2 || !strings.HasPrefix(lines[0], "V1 ") || !strings.Contains(lines[0], hint) {
			t.Errorf("logged %q, want one line at level 1 for each error", lines)
		}
		if lines := log.containing("looked up what is not served"); len(lines) < 9 || !strings.Contains(lines[0], hint) {
			t.Errorf("logged %q", lines)
		}
		page := httptest.NewRecorder()
		m.DebugHandler().ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/", nil))
		_ = lookUp(m, schema.GroupVersionKind{Group: "example.com", Version: "v4", Kind: "Foo"})
		time.Sleep(time.Second)
		m.DebugHandler().ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/", nil))
		if !strings.Contains(page.Body.String(), hint) {
			t.Errorf("the debug page has no hint:\n%s", page.Body)
		}
	})
}

// What is known from before a reset comes with an error while the server is down.
func TestServedInAnOutageAfterAReset(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		wantKinds(t, m, []string{"Foo"}, "example.com/v1.Foo foos")
		server.SetFault(fakeapi.All(), fakeapi.Refused())
		m.Reset()
		all, err := m.Served(context.Background(), "Foo")
		if err == nil {
			t.Errorf("the server is down, and Served has no error: %q", namesOf(all))
		}
		_, err = m.Served(context.Background())
		if err == nil {
			t.Errorf("again, all: no error")
		}
		if s, err := m.IsServed(context.Background(), fooKind); s || err == nil {
			t.Errorf("IsServed: %t, %v", s, err)
		}
	})
}
