// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// Reset does not wait for the server.
func TestResetDoesNotWait(t *testing.T) {
	for name, reset := range waysToReset {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
				readAll(t, m)
				server.SetFault(fakeapi.All(), fakeapi.Timeout())
				start := time.Now()
				reset(m)
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_, err := m.RESTMappingWithContext(ctx, fooKind.GroupKind(), "v1")
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				reset(m)
				if took := time.Since(start); took != time.Second {
					t.Errorf("took %v", took)
				}
				time.Sleep(time.Minute) // until the request has timed out
			})
		})
	}
}

// F3: while the server does not answer after a Reset, known kinds are served, and
// only the first lookup waits for all of a timeout.
func TestResetOfSilentServer(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		heal := server.SetFault(fakeapi.All(), fakeapi.Timeout())
		m.Reset()
		for n := range 5 {
			start := time.Now()
			wantServed(t, m, fooKind)
			if took := time.Since(start); n > 0 && took > 3*time.Second {
				t.Errorf("lookup %d took %v", n+1, took)
			}
		}
		if err := lookUp(m, newKind); err == nil || meta.IsNoMatchError(err) {
			t.Errorf("an unknown kind: %v", err)
		}
		heal()
		server.Remove(fooKind.Group)
		time.Sleep(time.Minute) // the reads that were under way
		wantAbsent(t, m, fooKind)
	})
}

// F3: the last read found a version dead. That is no reason to answer from before a Reset
// only because the server is slow.
func TestResetOfSlowServerBesideDeadVersion(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		server.SetFault(fakeapi.At("/apis/other.example.com/v1"), fakeapi.Status(503, 0))
		absent := otherKind
		absent.Kind = "Absent"
		if err := lookUp(m, absent); err == nil || m.Status().LastError == nil {
			t.Fatalf("a lookup in the dead version: %v", err)
		}
		server.PutVersion(fooKind.Group, fakeVersion(fooKind.Version, "Foo:cluster"))
		server.SetLatency(5 * time.Second)
		m.Reset()
		mapping, err := m.RESTMapping(fooKind.GroupKind(), fooKind.Version)
		if err != nil || mapping.Scope.Name() != meta.RESTScopeNameRoot {
			t.Errorf("answered from before the reset: %v, %v", mapping, err)
		}
	})
}

// The list of a group may be behind the versions that are served.
func TestResetGroupBesideALateList(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		server.SetFault(fakeapi.At("/apis/new.example.com"), fakeapi.Status(404, 0))
		serve(server, newKind)
		m.ResetGroup(newKind.Group)
		wantServed(t, m, newKind)

		later := schema.GroupVersionKind{Group: newKind.Group, Version: "v2", Kind: "Later"}
		serve(server, later)
		m.ResetGroup(newKind.Group)
		wantServed(t, m, later)
	})
}

// A version that only the aggregated document has, and not the list of its group, is not
// found by a lookup without a version in a known group: that reads no document. It is found
// after a Reset, which ResetOnNoMatch makes.
func TestResetGroupBesideALateListWithoutVersion(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		serve(server, newKind)
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		server.SetFault(fakeapi.At("/apis/new.example.com"), fakeapi.Status(404, 0))
		serve(server, schema.GroupVersionKind{Group: newKind.Group, Version: "v2", Kind: "Later"})
		m.ResetGroup(newKind.Group)
		later := schema.GroupKind{Group: newKind.Group, Kind: "Later"}
		_, err := m.RESTMapping(later)
		if !apiutil.ResetOnNoMatch(err, m) {
			t.Errorf("not reset on %v", err)
		}
		if _, err := m.RESTMapping(later); err != nil {
			t.Error(err)
		}
	})
}

// A lookup that may find something in a group that was reset reads that group live, even
// if it does not name the group and no document lists it.
func TestResetGroupThatNoDocumentLists(t *testing.T) {
	const live = "/apis/new.example.com 404"
	for _, query := range []schema.GroupVersionResource{
		{Resource: "news"},
		{Version: newKind.Version, Resource: "news"},
		{Group: "new.exam", Resource: "news"},
	} {
		name := map[bool]string{true: "in any group", false: "by the beginning of a group"}[query.Group == ""] + ", version " + query.Version
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				server := newServer(fakeapi.Aggregated())
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
				readAll(t, m)
				server.SetLag(fakeapi.PartDocument, fakeapi.Forever)
				server.TakeRequests()
				m.ResetGroup(newKind.Group)
				for _, want := range [][]string{{"/api 304", "/apis 304", live}, {"/api 304", "/apis 304"}} {
					if _, err := m.KindFor(query); !meta.IsNoMatchError(err) {
						t.Error(err)
					}
					wantRequests(t, server, "before it is served", want...)
				}
				serve(server, newKind)
				m.ResetGroup(newKind.Group)
				if _, err := m.KindFor(query); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The very first lookup believes the document, but not after a reset: a program that
// resets the mapper knows that something has come, and the document may be behind.
func TestResetBeforeTheFirstLookup(t *testing.T) {
	resets := map[string]func(*apiutil.DynamicRESTMapper){
		"all":   (*apiutil.DynamicRESTMapper).Reset,
		"group": func(m *apiutil.DynamicRESTMapper) { m.ResetGroup(lateKind.Group) },
	}
	for name, reset := range resets {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				server.SetLag(fakeapi.PartDocument, fakeapi.Forever)
				server.SetLag(fakeapi.PartLists, fakeapi.Forever)
				serve(server, lateKind)
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
				reset(m)
				wantServed(t, m, lateKind)
			})
		})
	}
}

// The order of a group's versions was read live and differs from the document's.
// After a reset that order is as old as anything else, for lookups without a group too.
func TestResetOfTheOrderOfVersions(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		first, second := fakeVersion("v1", "Foo"), fakeVersion("v2", "Foo")
		server.Put(fakeGroup("example.com", first, second))
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{MaxAge: -1})
		readAll(t, m)

		server.Put(fakeGroup("example.com", second, first))
		m.ResetGroup("example.com")
		wantVersionOfFoos(t, m, "v2")

		server.Put(fakeGroup("example.com", first, second))
		m.Reset()
		wantVersionOfFoos(t, m, "v1")
		server.TakeRequests()
		wantVersionOfFoos(t, m, "v1")
		wantRequests(t, server, "the second lookup")
	})
}

func wantVersionOfFoos(t *testing.T, m *apiutil.DynamicRESTMapper, version string) {
	t.Helper()
	kind, err := m.KindFor(schema.GroupVersionResource{Resource: "foos"})
	if err != nil || kind.Version != version {
		t.Errorf("foos are in %v, %v; want %s", kind, err, version)
	}
}
