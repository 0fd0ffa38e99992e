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

func TestDiffListsWhatComesGoesAndChanges(t *testing.T) {
	type change struct {
		Type     ChangeType
		Kind     string
		Resource string
	}
	tests := map[string]struct {
		from, to *Snapshot
		want     []change
	}{
		"nothing": {from: after(group("a", read("v1", foos))), to: after(group("a", read("v1", foos)))},
		"from nothing": {
			from: new(Snapshot), to: after(group("b", read("v1", bars, foos)), group("a", read("v1", foos))),
			want: []change{{ChangeAdded, "b/v1, Kind=Bar", "bars"}, {ChangeAdded, "b/v1, Kind=Foo", "foos"}, {ChangeAdded, "a/v1, Kind=Foo", "foos"}},
		},
		"to nothing": {
			from: after(group("a", read("v1", foos), read("v2", bars))), to: after(),
			want: []change{{ChangeRemoved, "a/v1, Kind=Foo", "foos"}, {ChangeRemoved, "a/v2, Kind=Bar", "bars"}},
		},
		"removed before added, in the new order": {
			from: after(group("a", read("v1", foos)), group("b", read("v1", foos)), group("c", read("v1", foos))),
			to: after(group("c", read("v1", bars)), group("b", read("v1", foos)),
				group("a", read("v1", Resource{Name: "fooes", Kind: "Foo", Namespaced: true}))),
			want: []change{{ChangeRemoved, "c/v1, Kind=Foo", "foos"}, {ChangeAdded, "c/v1, Kind=Bar", "bars"}, {ChangeChanged, "a/v1, Kind=Foo", "fooes"}},
		},
		"removed as it was last, with its new neighbour": {
			from: after(group("a", read("v1", foos))), to: after(group("a", read("v1", Resource{Name: "foos", Kind: "Phoo"}))),
			want: []change{{ChangeRemoved, "a/v1, Kind=Foo", "foos"}, {ChangeAdded, "a/v1, Kind=Phoo", "foos"}},
		},
		"a kind whose name is that of another's list": {
			from: after(group("a", read("v1", foos, Resource{Name: "foolists", Kind: "FooList"}))), to: after(group("a", read("v1", foos))),
			want: []change{{ChangeRemoved, "a/v1, Kind=FooList", "foolists"}},
		},
		"scope": {
			from: after(group("a", read("v1", bars))), to: after(group("a", read("v1", Resource{Name: "bars", Kind: "Bar", Namespaced: true}))),
			want: []change{{ChangeChanged, "a/v1, Kind=Bar", "bars"}},
		},
		"verbs": {
			from: after(group("a", read("v1", bars))), to: after(group("a", read("v1", Resource{Name: "bars", Kind: "Bar", Verbs: Verbs(0).With("list")}))),
			want: []change{{ChangeChanged, "a/v1, Kind=Bar", "bars"}},
		},
		"became preferred": {
			from: after(NewGroup("a", "v1", []Version{read("v1", foos, bars), read("v2", foos)})),
			to:   after(NewGroup("a", "v2", []Version{read("v1", foos, bars), read("v2", foos)})),
			want: []change{{ChangeChanged, "a/v2, Kind=Foo", "foos"}},
		},
		"became preferred because the other went": {
			from: after(group("a", read("v1", foos), read("v2", foos))), to: after(group("a", read("v2", foos))),
			want: []change{{ChangeRemoved, "a/v1, Kind=Foo", "foos"}, {ChangeChanged, "a/v2, Kind=Foo", "foos"}},
		},
		"singular alone": {
			from: after(group("a", read("v1", foos))),
			to:   after(group("a", read("v1", Resource{Name: "foos", Singular: "phoo", Kind: "Foo", Namespaced: true}))),
		},
		"only listed": {from: after(group("a", listed("v1"))), to: after(group("a", listed("v1"), listed("v2")))},
		"listed twice": {
			from: after(group("a", read("v1", foos))), to: after(group("a", read("v1", foos, Resource{Name: "fooes", Kind: "Foo"}))),
			want: []change{{ChangeChanged, "a/v1, Kind=Foo", "fooes"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []change
			for _, c := range Diff(test.from, test.to) {
				got = append(got, change{c.Type, c.Mapping.GroupVersionKind.String(), c.Mapping.Resource.Resource})
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if err := checkDiff(test.from, test.to); err != nil {
				t.Error(err)
			}
		})
	}
}

// checkDiff compares the changes from a to b with what lookups find in both.
func checkDiff(a, b *Snapshot) error {
	was, is := a.kindSet(), b.kindSet()
	var want, got []string
	for _, gvk := range a.kindOrder() {
		if _, stays := is[gvk]; !stays {
			want = append(want, fmt.Sprint(ChangeRemoved, gvk, was[gvk].target))
		}
	}
	for _, gvk := range b.kindOrder() {
		before, existed := was[gvk]
		now := is[gvk]
		before.best = before.best && now.best // that a kind loses this place is not listed
		switch {
		case !existed:
			want = append(want, fmt.Sprint(ChangeAdded, gvk, now.target))
		case before != now:
			want = append(want, fmt.Sprint(ChangeChanged, gvk, now.target))
		}
	}
	for _, c := range Diff(a, b) {
		is := target{c.Mapping.Resource.Resource, c.Mapping.Scope == meta.RESTScopeNamespace, c.Verbs}
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
		served, _ := s.Group(gvk.Group).Version(gvk.Version).Table.target(gvk.Kind)
		is := target{m.Resource.Resource, m.Scope == meta.RESTScopeNamespace, served.verbs}
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

// Two tables serve alike if every form leads to the same.
func TestTablesThatServeAlikeAreEqual(t *testing.T) {
	table := NewTable([]Resource{{Name: "foos", Singular: "foo", Kind: "Foo"}, {Name: "bars", Singular: "bar", Kind: "Foo"}})
	for name, test := range map[string]struct {
		other []Resource
		want  bool
	}{
		"the same":                     {[]Resource{{Name: "foos", Singular: "foo", Kind: "Foo"}, {Name: "bars", Singular: "bar", Kind: "Foo"}}, true},
		"another row wins":             {[]Resource{{Name: "bars", Singular: "bar", Kind: "Foo"}, {Name: "foos", Singular: "foo", Kind: "Foo"}}, false},
		"singular forms change places": {[]Resource{{Name: "foos", Singular: "bar", Kind: "Foo"}, {Name: "bars", Singular: "foo", Kind: "Foo"}}, false},
		"one name is of another kind":  {[]Resource{{Name: "foos", Singular: "foo", Kind: "Baz"}, {Name: "bars", Singular: "bar", Kind: "Foo"}}, false},
		"other verbs":                  {[]Resource{{Name: "foos", Singular: "foo", Kind: "Foo"}, {Name: "bars", Singular: "bar", Kind: "Foo", Verbs: Verbs(0).With("get")}}, false},
		"other verbs of nothing":       {[]Resource{{Name: "foos", Singular: "foo", Kind: "Foo", Verbs: Verbs(0).With("get")}, {Name: "bars", Singular: "bar", Kind: "Foo"}}, true},
		"the other scope":              {[]Resource{{Name: "foos", Singular: "foo", Kind: "Foo"}, {Name: "bars", Singular: "bar", Kind: "Foo", Namespaced: true}}, false},
	} {
		if got := table.servesLike(NewTable(test.other)); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
