// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// withoutGroup are the lookups of a resource that name no group.
func withoutGroup(resource string) []query {
	gvr := schema.GroupVersionResource{Resource: resource}
	return []query{
		{method: kindFor, gvr: gvr},
		{method: kindsFor, gvr: gvr},
		{method: resourceFor, gvr: gvr},
		{method: resourcesFor, gvr: gvr.GroupResource().WithVersion("v1")},
		{method: resourceSingularizer, resource: resource},
	}
}

// groupsWith lists the groups and versions that s, asked once, finds a resource in.
func groupsWith(s *Snapshot, resource string) []string {
	var groups []string
	kinds, _, _ := s.KindsFor(schema.GroupVersionResource{Resource: resource})
	for _, gvk := range kinds {
		groups = append(groups, gvk.Group+"/"+gvk.Version)
	}
	return groups
}

// TestIndexIsMadeMeanwhile: one of many concurrent lookups makes the index. The others do
// not wait, and all get the same answers.
func TestIndexIsMadeMeanwhile(t *testing.T) {
	s := typical(50).snapshot()
	queries := withoutGroup("kind1of33s")
	want := make([]answer, len(queries))
	for i, q := range queries {
		want[i], _ = q.askOnce(typical(50).snapshot())
	}
	var askers sync.WaitGroup
	for range 4 {
		askers.Add(1)
		go func() {
			defer askers.Done()
			for range walksBeforeIndex {
				for i, q := range queries {
					if a, _ := q.askOnce(s); !a.equal(want[i]) {
						t.Errorf("%+v: %v, not %v", q, a, want[i])
					}
				}
			}
		}()
	}
	askers.Wait()
	if err := checkInvariants(s); err != nil || s.lazy.byStem.Load() == nil {
		t.Errorf("made: %v, error %v", s.lazy.byStem.Load() != nil, err)
	}
}

// knownNames lists all names, plural and singular, that stand for something in a version of g.
func (g *Group) knownNames() (names []string) {
	for _, v := range g.versions {
		for _, r := range v.Table.rows {
			plural, singular := guess(r.Kind + listSuffix)
			names = append(names, r.Name, r.Singular, plural, singular)
		}
	}
	return names
}

// TestUnusualNamesAreFound are found whether they are looked up in the index or not.
func TestUnusualNamesAreFound(t *testing.T) {
	resources := []Resource{
		{Name: "classes", Singular: "class", Kind: "Class"},
		{Name: "dns", Singular: "dns", Kind: "DNS"},
		{Name: "allowlists", Singular: "allowlist", Kind: "AllowList"},
		{Name: "allows", Singular: "allow", Kind: "Denied"},
		{Name: "s", Singular: "s", Kind: "S"},
		{Name: "Uppers", Singular: "Upper", Kind: "UPPER"},
		{Name: "kelvins", Singular: "\u212a", Kind: "\u212a"}, // in lower case, a k
		{Name: "invalids", Singular: "\xff", Kind: "\xff"},
	}
	var doc document
	for i := range resources {
		doc = append(doc, docGroup{name: fmt.Sprintf("g%d", i), versions: []docVersion{
			{name: "v1", read: true, resources: resources[i : i+1]}, {name: "v2", read: true, resources: resources[:i]},
		}})
	}
	s := doc.snapshot().indexed()
	if err := checkInvariants(s); err != nil {
		t.Error(err)
	}
	library := doc.library()
	for _, g := range s.groups {
		for _, name := range g.knownNames() {
			for _, q := range withoutGroup(name) {
				if err := compare(doc, s, library, q, new(tally)); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// A resource is found by its own name, also if that is another's singular that sorts before it.
func TestResourceIsFoundByItsOwnNameFirst(t *testing.T) {
	s := document{{name: "a", versions: []docVersion{{name: "v1", read: true, resources: []Resource{
		{Name: "deer", Singular: "stag", Kind: "Deer"}, {Name: "antlers", Singular: "deer", Kind: "Antlers"},
	}}}}}.snapshot()
	found, _, err := s.ResourceFor(schema.GroupVersionResource{Group: "a", Version: "v1", Resource: "deer"})
	if err != nil || found.Resource != "deer" {
		t.Errorf("%v, %v", found, err)
	}
}
