// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// checkDiff compares the changes from a to b with what lookups find in both.
func checkDiff(a, b *Snapshot) error {
	was, is := a.kindSet(), b.kindSet()
	var want, got []string
	for _, gvk := range a.kindOrder() {
		if _, stays := is[gvk]; !stays {
			want = append(want, fmt.Sprint(ChangeRemoved, gvk, was[gvk].Resource))
		}
	}
	for _, gvk := range b.kindOrder() {
		before, existed := was[gvk]
		now := is[gvk]
		before.best = before.best && now.best // that a kind loses this place is not listed
		switch {
		case !existed:
			want = append(want, fmt.Sprint(ChangeAdded, gvk, now.Resource))
		case before != now:
			want = append(want, fmt.Sprint(ChangeChanged, gvk, now.Resource))
		}
	}
	for _, c := range Diff(a, b) {
		is := Resource{
			Name: c.Mapping.Resource.Resource, Kind: c.Mapping.GroupVersionKind.Kind,
			Namespaced: c.Mapping.Scope == meta.RESTScopeNamespace, Verbs: c.Verbs,
		}
		got = append(got, fmt.Sprint(c.Type, c.Mapping.GroupVersionKind, is))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("changes (-want +got):\n%s", diff)
	}
	return nil
}

func (s *Snapshot) kindSet() map[schema.GroupVersionKind]kindState {
	kinds := map[schema.GroupVersionKind]kindState{}
	for _, gvk := range s.kindOrder() {
		m, _, _ := s.RESTMapping(gvk.GroupKind(), []string{gvk.Version})
		served := s.Group(gvk.Group).Version(gvk.Version).Table.ofKind(gvk.Kind)
		is := Resource{
			Name: m.Resource.Resource, Kind: gvk.Kind, Namespaced: m.Scope == meta.RESTScopeNamespace, Verbs: served.Verbs,
		}
		kinds[gvk] = kindState{is, s.isPreferred(gvk)}
	}
	return kinds
}

func (s *Snapshot) isPreferred(gvk schema.GroupVersionKind) bool {
	m, _, err := s.RESTMapping(gvk.GroupKind(), nil)
	return err == nil && m.GroupVersionKind == gvk
}

// kindOrder lists the kinds of s as the server does; of one listed twice, the last counts.
func (s *Snapshot) kindOrder() []schema.GroupVersionKind {
	var all []schema.GroupVersionKind
	for _, g := range s.groups {
		for _, v := range g.versions {
			if v.Table == nil {
				continue
			}
			for i, r := range v.Table.rows {
				if !slices.ContainsFunc(v.Table.rows[i+1:], func(later Resource) bool { return later.Kind == r.Kind }) {
					all = append(all, schema.GroupVersionKind{Group: g.name, Version: v.Name, Kind: r.Kind})
				}
			}
		}
	}
	return all
}

// Nobody is told of another singular name alone.
func TestSingularAloneIsNoChange(t *testing.T) {
	serving := func(singular string) *Snapshot {
		v1 := docVersion{name: "v1", read: true, resources: []Resource{{Name: "foos", Singular: singular, Kind: "Foo"}}}
		return document{{name: "a", versions: []docVersion{v1}}}.snapshot()
	}
	if changes := Diff(serving("foo"), serving("phoo")); len(changes) > 0 {
		t.Errorf("told of %+v, want nothing", changes)
	}
}

// Two tables give the same answers if every form leads to the same.
func TestTablesWithTheSameAnswers(t *testing.T) {
	table := NewTable([]Resource{{Name: "foos", Singular: "foo", Kind: "Foo"}, {Name: "bars", Singular: "bar", Kind: "Foo"}, {Name: "bazs", Singular: "baz", Kind: "Baz"}})
	for name, test := range map[string]struct {
		other []Resource
		want  bool
	}{
		"the same":                     {[]Resource{{Name: "foos", Singular: "foo", Kind: "Foo"}, {Name: "bars", Singular: "bar", Kind: "Foo"}}, true},
		"another row wins":             {[]Resource{{Name: "bars", Singular: "bar", Kind: "Foo"}, {Name: "foos", Singular: "foo", Kind: "Foo"}}, false},
		"singular forms change places": {[]Resource{{Name: "foos", Singular: "bar", Kind: "Foo"}, {Name: "bars", Singular: "foo", Kind: "Foo"}}, false},
		"one name is of another kind":  {[]Resource{{Name: "foos", Singular: "foo", Kind: "Baz"}, {Name: "bars", Singular: "bar", Kind: "Foo"}}, false},
		"other verbs":                  {[]Resource{{Name: "foos", Singular: "foo", Kind: "Foo"}, {Name: "bars", Singular: "bar", Kind: "Foo", Verbs: Verbs(0).With("get")}}, false},
		"kinds in another order":       {[]Resource{{Name: "bazs", Singular: "baz", Kind: "Baz"}, {Name: "foos", Singular: "foo", Kind: "Foo"}, {Name: "bars", Singular: "bar", Kind: "Foo"}}, true},
		"the other scope":              {[]Resource{{Name: "foos", Singular: "foo", Kind: "Foo"}, {Name: "bars", Singular: "bar", Kind: "Foo", Namespaced: true}}, false},
	} {
		if len(test.other) == 2 {
			test.other = append(test.other, Resource{Name: "bazs", Singular: "baz", Kind: "Baz"})
		}
		if got := table.sameAnswers(NewTable(test.other)); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
