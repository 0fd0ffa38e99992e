// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A document has news of a group only if it says something else than it said before.

// documentForms are the forms in which a document may come, with validators and
// without.
var documentForms = map[string]fakeapi.Forms{
	"protobuf": fakeapi.Aggregated(), "JSON": {V2: true, ETag: true}, "no ETag": {V2: true, Protobuf: true},
	"JSON, no ETag": {V2: true}, "v2beta1": fakeapi.V2Beta1Only(),
}

// eachDocument runs test with a mapper that is started and knows all of a server,
// in each form of document.
func eachDocument(t *testing.T, test func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper)) {
	eachMode(t, documentForms, func(t *testing.T, forms fakeapi.Forms) {
		inBubble(t, func(t *testing.T) {
			server := newServer(forms)
			m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: 5 * time.Second})
			readAll(t, m)
			stop := startMapper(t, m)
			synctest.Wait()
			test(t, server, m)
			stop()
		})
	})
}

// If a document changes in one group, that is no news of the other groups: what it says
// of them is as old as before.
func TestNewsOfAnotherGroupIsNoNews(t *testing.T) {
	const lag = time.Minute
	liveOnly := schema.GroupVersionKind{Group: "live.example.com", Version: "v1", Kind: "Live"}
	eachDocument(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
		s := subscribe(m)
		s.take(t)
		server.SetLag(fakeapi.PartDocument, lag)
		serve(server, newKind)
		time.Sleep(lag - 5*time.Second)
		s.want(t, "before the document has it")
		serve(server, lateKind)
		serve(server, liveOnly)
		wantServed(t, m, lateKind)
		s.want(t, "after a live read", "Added example.com/v2 Late -> lates, namespace")
		wantServed(t, m, liveOnly)
		s.want(t, "after a live read", "Added live.example.com/v1 Live -> lives, namespace")
		time.Sleep(20 * time.Second)
		wantServed(t, m, lateKind, newKind, liveOnly)
		if _, err := m.RESTMapping(lateKind.GroupKind()); err != nil {
			t.Error(err)
		}
		s.want(t, "when the document has the first alone", "Added new.example.com/v1 New -> news, namespace")
		time.Sleep(lag)
		wantServed(t, m, lateKind, newKind, liveOnly)
		s.want(t, "when it has all")
		s.close(t)
	})
}

// Subscribers hear of each change once, however late the document is.
func TestSubscribeBesideALaggingDocument(t *testing.T) {
	eachDocument(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
		s := subscribe(m)
		s.take(t)
		server.SetLag(fakeapi.PartDocument, time.Minute)
		serve(server, lateKind)
		wantServed(t, m, lateKind)
		s.want(t, "a version that comes", "Added example.com/v2 Late -> lates, namespace")
		generation := m.Generation()
		time.Sleep(2 * time.Minute)
		s.want(t, "when the document has it")
		if m.Generation() != generation {
			t.Error("the generation has moved without a change")
		}
		server.RemoveVersion(lateKind.Group, lateKind.Version)
		m.ResetGroup(lateKind.Group)
		wantAbsent(t, m, lateKind)
		s.want(t, "a version that goes", "Removed example.com/v2 Late -> lates, namespace")
		generation = m.Generation()
		time.Sleep(2 * time.Minute)
		s.want(t, "when the document has heard of it")
		if m.Generation() != generation {
			t.Error("the generation has moved without a change")
		}
		s.close(t)
	})
}

// The same holds for a scope that was read live: it stays.
func TestLiveScopeOutlivesALaggingDocument(t *testing.T) {
	for when, meanwhile := range map[string]func(*testing.T, *apiutil.DynamicRESTMapper){
		"nothing": meanwhiles["nothing"], "misses": missElsewhere, "a refresh": refreshOnce, "ResetGroup": meanwhiles["ResetGroup"],
	} {
		t.Run(when, func(t *testing.T) {
			eachDocument(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
				server.SetLag(fakeapi.PartDocument, fakeapi.Forever)
				server.PutVersion(fooKind.Group, fakeVersion("v1", "Foo:cluster", "Bar"))
				m.ResetGroup(fooKind.Group)
				for n := range 3 {
					for _, versions := range [][]string{nil, {"v1"}} {
						mapping, err := m.RESTMapping(fooKind.GroupKind(), versions...)
						if err != nil || mapping.Scope.Name() != meta.RESTScopeNameRoot {
							t.Errorf("round %d, versions %q: %s", n, versions, answered(mappingText(mapping), err))
						}
					}
					meanwhile(t, m)
				}
			})
		})
	}
}

// A kind went and came back before the document showed either. When the document then
// drops the kind, lookups still find it.
func TestReturnedKindBesideALaggingDocument(t *testing.T) {
	for what, remove := range map[string]func(*fakeapi.Server){
		"kind":    func(s *fakeapi.Server) { s.PutVersion("example.com", fakeVersion("v1", "Bar")) },
		"version": func(s *fakeapi.Server) { s.Put(fakeGroup("example.com", fakeVersion("v2", "Bar"))) },
		"group":   func(s *fakeapi.Server) { s.Remove("example.com") },
	} {
		t.Run(what, func(t *testing.T) {
			eachDocument(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
				server.SetLag(fakeapi.PartDocument, time.Minute)
				remove(server)
				time.Sleep(10 * time.Second)
				server.Put(fakeGroup("example.com", fakeVersion("v1", "Foo", "Bar")))
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				if err := m.WaitForKinds(ctx, fooKind); err != nil {
					t.Fatal(err)
				}
				c := runController(m, fooKind)
				for n := range 90 {
					time.Sleep(time.Second)
					wantServed(t, m, fooKind)
					if _, err := m.RESTMapping(fooKind.GroupKind()); err != nil {
						t.Errorf("without a version, %d: %v", n, err)
					}
				}
				c.want(t, 1, 0)
				c.wantReturn(t, true, nil)
			})
		})
	}
}

// A server that contradicts itself gets a limited number of requests, and the lookup
// returns an answer all the same.
func TestContradictions(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		for _, version := range []string{"v2", "v3", "v4", "v5"} {
			server.PutVersion(fooKind.Group, fakeVersion(version, "In"+version))
		}
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		server.SetLag(fakeapi.PartDocument, fakeapi.Forever)
		server.SetLag(fakeapi.PartLists, fakeapi.Forever)
		server.Remove(fooKind.Group) // all its versions, whatever the documents say
		absent := schema.GroupKind{Group: fooKind.Group, Kind: "Absent"}
		for _, reset := range []func(){func() {}, m.Reset, func() { m.ResetGroup(fooKind.Group) }} {
			for _, versions := range [][]string{nil, {"v1"}, {"v9", "v5"}} {
				reset()
				server.TakeRequests()
				if _, err := m.RESTMapping(absent, versions...); !meta.IsNoMatchError(err) {
					t.Errorf("versions %q: %v", versions, err)
				}
				if requests := server.TakeRequests(); len(requests) > 12 {
					t.Errorf("versions %q: %d requests: %v", versions, len(requests), requests)
				}
			}
		}
		wantServed(t, m, otherKind)
	})
}

// The group of a lookup by resource may be the beginning of a name. A group that is
// new is found by it, although another one has just that name.
func TestNewGroupByTheBeginningOfItsName(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		server.PutVersion("apps", fakeVersion("v1", "Deployment"))
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		server.PutVersion("apps.example.com", fakeVersion("v1", "New"))
		for n := range 3 {
			kind, err := m.KindFor(schema.GroupVersionResource{Group: "apps", Resource: "news"})
			if err != nil || kind != (schema.GroupVersionKind{Group: "apps.example.com", Version: "v1", Kind: "New"}) {
				t.Errorf("try %d: %v, %v", n, kind, err)
			}
		}
		server.PutVersion("apps.example.com", fakeVersion("v2", "Newer"))
		kind, err := m.KindFor(schema.GroupVersionResource{Group: "app", Resource: "newers"})
		if err != nil || kind != (schema.GroupVersionKind{Group: "apps.example.com", Version: "v2", Kind: "Newer"}) {
			t.Errorf("a new version: %v, %v", kind, err)
		}
	})
}
