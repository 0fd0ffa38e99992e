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

// A read that began before the reset does not answer a lookup after it, even if
// it ends later.
func TestResetDuringRead(t *testing.T) {
	for name, reset := range waysToReset {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
				readAll(t, m)
				server.SetLatency(time.Second)
				for _, read := range []func() error{
					func() error { return lookUp(m, newKind) },
					func() error { _, err := m.RESTMapping(newKind.GroupKind()); return err },
					func() error { absent := fooKind; absent.Kind = "Absent"; return lookUp(m, absent) },
					func() error { m.Reset(); return lookUp(m, fooKind) },
					func() error { m.ResetGroup(fooKind.Group); return lookUp(m, fooKind) },
				} {
					for during := 100 * time.Millisecond; during < 5*time.Second; during += 500 * time.Millisecond {
						done := make(chan error, 1)
						go func() { done <- read() }()
						time.Sleep(during)
						server.PutVersion("example.com", fakeVersion("v1", "Bar"))
						reset(m)
						wantAbsent(t, m, fooKind)
						<-done
						server.PutVersion("example.com", fakeVersion("v1", "Foo", "Bar"))
						reset(m)
						wantServed(t, m, fooKind)
					}
				}
			})
		})
	}
}

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

// A refresh settles the resets before it.
func TestRefreshSettlesResets(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute})
		stop := startMapper(t, m)
		defer stop()
		time.Sleep(time.Second)
		m.Reset()
		m.ResetGroup(fooKind.Group)
		server.Remove(otherKind.Group)
		time.Sleep(70 * time.Second)
		server.TakeRequests()
		wantServed(t, m, fooKind, barKind)
		wantRequests(t, server, "hits after a refresh")
		wantAbsent(t, m, otherKind)
	})
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

// A lookup that only the group it names may answer reads no other group that was reset.
func TestResetGroupOfALongerName(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		m := laggingServer(t, server, false, apiutil.DynamicRESTMapperOptions{})
		m.ResetGroup(newKind.Group)
		if _, err := m.RESTMapping(schema.GroupKind{Group: "new.exam", Kind: newKind.Kind}); !meta.IsNoMatchError(err) {
			t.Error(err)
		}
		wantRequests(t, server, "another group was reset", "/api 304", "/apis 304")
	})
}

// After a Reset a lookup reads the document, and the version only if it is not in
// there; what is known costs two answers without a body.
func TestRequestsAfterReset(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		server.TakeRequests()
		m.Reset()
		wantServed(t, m, fooKind, barKind, otherKind)
		wantRequests(t, server, "known kinds", "/api 304", "/apis 304")
		m.Reset()
		wantAbsent(t, m, schema.GroupVersionKind{Group: fooKind.Group, Version: "v1", Kind: "Absent"})
		wantRequests(t, server, "a miss", "/api 304", "/apis 304", "/apis/example.com/v1 200")
		m.Reset()
		wantAbsent(t, m, newKind)
		wantRequests(t, server, "a miss in an absent group", "/api 304", "/apis 304", "/apis/new.example.com/v1 404")
		serve(server, lateKind)
		m.Reset()
		wantServed(t, m, lateKind)
		wantRequests(t, server, "a kind that the document has", "/api 304", "/apis 200")
		m.Reset()
		if _, err := m.RESTMapping(schema.GroupKind{Group: otherKind.Group, Kind: "Absent"}); !meta.IsNoMatchError(err) {
			t.Error(err)
		}
		wantRequests(t, server, "a miss without a version", "/api 304", "/apis 304", "/apis/other.example.com/v1 200", "/apis/other.example.com 200")
	})
}
