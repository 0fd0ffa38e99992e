// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package reload

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// overtake reads a document at once that has v2 of the group no more, and never again.
func overtake(t *testing.T, server *fakeapi.Server, r *Reloader) {
	t.Helper()
	server.SetLatency(0)
	server.RemoveVersion(group, "v2")
	server.SetLag(fakeapi.PartDocument, fakeapi.Forever)
	if _, err := r.flights.do(context.Background(), snapshot.Read{Part: snapshot.PartDocument}); err != nil {
		t.Fatal(err)
	}
}

// All own reads of a lookup count, also those that a document has overtaken and that are
// not the last: if one of them has found the kind, the lookup returns it.
func TestLookupKeepsWhatWasOvertaken(t *testing.T) {
	const other = "g0002.example.com"
	for name, asked := range map[string]schema.GroupVersionResource{
		"in several groups":   {Resource: "lasting"},
		"in several versions": {Group: group, Resource: "lasting"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, r := known(t, fakeapi.Aggregated())
				ctx := context.Background()
				lasting := fakeapi.Resource{Name: "lasting", Kind: "Lasting", Namespaced: true}
				v2 := fakeapi.Version{Name: "v2", Resources: []fakeapi.Resource{lasting}}
				server.SetGroups(
					fakeapi.Group{Name: group, Versions: []fakeapi.Version{v2, {Name: "v1", Resources: []fakeapi.Resource{resource("Other", true)}}}},
					fakeapi.Group{Name: other, Versions: []fakeapi.Version{{Name: "v1", Resources: []fakeapi.Resource{resource("Other", true)}}}},
				)
				if err := r.Refresh(ctx); err != nil {
					t.Fatal(err)
				}
				r.ResetGroup(group)
				r.ResetGroup(other)
				server.TakeRequests()
				server.SetLatency(100 * time.Millisecond)

				q := snapshot.Query{Group: asked.Group, Name: asked.Resource, ByResource: true}
				find := func(s *snapshot.Snapshot) (known, settled bool) {
					_, settled, err := s.KindsFor(asked)
					return err == nil, settled
				}
				done := make(chan Finding)
				go func() { done <- r.Lookup(ctx, q, find) }()
				time.Sleep(150 * time.Millisecond) // the list of the group is read, and v2 under way
				overtake(t, server, r)
				server.PutVersion(group, v2)
				server.SetLatency(100 * time.Millisecond)
				time.Sleep(100 * time.Millisecond) // v1 is under way
				server.SetFault(fakeapi.Under("/apis/"+group+"/v2"), fakeapi.Refused())
				found := <-done
				if found.Err != nil || len(found.Failed) > 0 {
					t.Errorf("%+v", found)
				}
				if kinds, _, err := found.Snapshot.KindsFor(asked); err != nil || len(kinds) != 1 {
					t.Errorf("kinds %v, %v", kinds, err)
				}
			})
		})
	}
}

// Nor does it lose what was overtaken if it finds the kind elsewhere as well.
func TestLookupKeepsAllThatWasOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, r := known(t, fakeapi.Aggregated())
		ctx := context.Background()
		resources := []fakeapi.Resource{{Name: "lasting", Kind: "Lasting", Namespaced: true}}
		v1, v2 := fakeapi.Version{Name: "v1", Resources: resources}, fakeapi.Version{Name: "v2", Resources: resources}
		server.Put(fakeapi.Group{Name: group, Versions: []fakeapi.Version{v2, v1}})
		if err := r.Refresh(ctx); err != nil {
			t.Fatal(err)
		}
		r.ResetGroup(group)
		server.SetLatency(100 * time.Millisecond)

		asked := schema.GroupKind{Group: group, Kind: "Lasting"}
		done := make(chan Finding)
		go func() {
			done <- r.Lookup(ctx, snapshot.KindQuery(asked, nil), func(s *snapshot.Snapshot) (known, settled bool) {
				_, settled, err := s.RESTMappings(asked, nil)
				return err == nil, settled
			})
		}()
		time.Sleep(150 * time.Millisecond) // the list of the group is read, and v2 under way
		overtake(t, server, r)
		server.Put(fakeapi.Group{Name: group, Versions: []fakeapi.Version{v2, v1}})
		found := <-done
		mappings, settled, err := found.Snapshot.RESTMappings(asked, nil)
		if err != nil || !settled || len(mappings) != 2 || mappings[0].Resource.Version != "v2" {
			t.Errorf("%d mappings, settled %v, %v; want those of v2 and v1", len(mappings), settled, err)
		}
	})
}

// A document that is behind brings back no group that the lookup itself has found gone.
func TestDocumentBringsNothingBack(t *testing.T) {
	server, r := known(t, fakeapi.Aggregated())
	lasting := []fakeapi.Resource{resource("Lasting", true)}
	server.SetGroups(fakeapi.Group{Name: group, Versions: []fakeapi.Version{{Name: "v1", Resources: lasting}}}, fakeapi.Typical(2, 1, 1)[1])
	if err := r.Refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	server.PutVersion(group, fakeapi.Version{Name: "v2", Resources: lasting})
	server.SetLag(fakeapi.PartDocument, fakeapi.Forever)
	server.Remove(group)
	r.ResetGroup(group)
	gk := schema.GroupKind{Group: group, Kind: "Lasting"}
	if m, err := mapping(r, gk); !meta.IsNoMatchError(err) {
		t.Errorf("%v, %v, after %s", m, err, paths(server))
	}
}
