// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	foos = Resource{Name: "foos", Singular: "foo", Kind: "Foo", Namespaced: true}
	bars = Resource{Name: "bars", Singular: "bar", Kind: "Bar"}
)

// read is a version with resources, listed one without.
func read(name string, resources ...Resource) Version {
	return Version{Name: name, Table: NewTable(resources)}
}

func listed(name string) Version { return Version{Name: name} }

func failed(name string) Version { return Version{Name: name, Err: errUnread} }

// group is a group as the server lists it, its first version preferred.
func group(name string, versions ...Version) *Group {
	return NewGroup(name, versions[0].Name, versions, true)
}

// after is the snapshot of a mapper that has read groups.
func after(groups ...*Group) *Snapshot {
	return new(Snapshot).WithBulk(NewList(groups, true), 0)
}

// kindsOf lists what is known of a group, as version/kind.
func kindsOf(s *Snapshot, group string) []string {
	var kinds []string
	for _, gvk := range s.kindOrder() {
		if gvk.Group == group {
			kinds = append(kinds, gvk.Version+"/"+gvk.Kind)
		}
	}
	return kinds
}

func checkKinds(t *testing.T, s *Snapshot, group string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, kindsOf(s, group)); diff != "" {
		t.Errorf("kinds of %s (-want +got):\n%s", group, diff)
	}
	if err := checkInvariants(s); err != nil {
		t.Error(err)
	}
}

// settled says whether Foo of group a is found and settled.
func settled(s *Snapshot, versions ...string) bool {
	_, settled, err := s.RESTMapping(schema.GroupKind{Group: "a", Kind: "Foo"}, versions)
	return settled && err == nil
}

func TestUntouchedGroupsAreShared(t *testing.T) {
	s := after(group("a", read("v1", foos)), group("b", read("v1", foos), listed("v2")), group("c", read("v1", foos)))
	reset := s.ResetGroup("b")
	changes := map[string]*Snapshot{
		"WithVersion":            s.WithVersion("b", read("v1", bars)),
		"WithVersion, first":     s.WithVersion("b", read("v2", bars)),
		"WithVersion, new":       s.WithVersion("b", read("v3", bars)),
		"WithoutVersion":         s.WithoutVersion("b", "v2"),
		"WithFailedVersion":      s.WithFailedVersion("b", "v2", errUnread),
		"WithGroup":              s.WithGroup(group("b", read("v1", bars)), 0),
		"WithGroup, after reset": reset.WithGroup(group("b", read("v1", bars)), reset.Clock()),
		"Reset":                  s.Reset(),
		"ResetGroup":             s.ResetGroup("b"),
	}
	for name, next := range changes {
		if err := checkInvariants(next); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if next.Group("a") != s.Group("a") || next.Group("c") != s.Group("c") {
			t.Errorf("%s: made an untouched group anew", name)
		}
		if next.order != s.order {
			t.Errorf("%s: made the order anew", name)
		}
	}
}

func TestNothingFollows(t *testing.T) {
	s := after(group("a", read("v1", foos), listed("v2")))
	for name, next := range map[string]*Snapshot{
		"WithVersion, equal":          s.WithVersion("a", read("v1", foos)),
		"WithoutVersion, unknown":     s.WithoutVersion("a", "v9"),
		"WithoutVersion, no group":    s.WithoutVersion("z", "v1"),
		"WithFailedVersion, unknown":  s.WithFailedVersion("a", "v9", errUnread),
		"WithFailedVersion, no group": s.WithFailedVersion("z", "v1", errUnread),
		"WithoutGroup, no group":      s.WithoutGroup("z", 0),
		"WithGroup, the same":         s.WithGroup(s.Group("a"), 0),
	} {
		if next != s {
			t.Errorf("%s: a new snapshot", name)
		}
	}
}

func TestWithBulk(t *testing.T) {
	t.Run("keeps equal pointers", func(t *testing.T) {
		list := NewList([]*Group{group("a", read("v1", foos)), group("b", read("v1", bars))}, true)
		s := new(Snapshot).WithBulk(list, 0)
		next := s.WithBulk(list, 0)
		if !slices.Equal(s.groups, next.groups) || s.order != next.order || next.generation != s.generation {
			t.Error("the same list is not the same")
		}
	})
	t.Run("drops what is gone", func(t *testing.T) {
		s := after(group("a", read("v1", foos), read("v2", foos)), group("b", read("v1", foos)))
		next := s.WithBulk(NewList([]*Group{group("a", read("v2", foos))}, true), 0)
		checkKinds(t, next, "a", "v2/Foo")
		checkKinds(t, next, "b")
	})
	t.Run("stale version keeps its last good table", func(t *testing.T) {
		s := after(group("a", read("v1", foos), read("v2", foos)))
		next := s.WithBulk(NewList([]*Group{group("a", failed("v1"), read("v2", bars))}, true), 0)
		checkKinds(t, next, "a", "v1/Foo", "v2/Bar")
		if v := next.Group("a").Version("v1"); !v.Known() || !errors.Is(v.Err, errUnread) {
			t.Errorf("v1 is known: %v, error: %v", v.Known(), v.Err)
		}
		if !settled(next, "v1") {
			t.Error("what a stale version serves is not settled")
		}
	})
	t.Run("stale version that was never read has none", func(t *testing.T) {
		s := after(group("a", failed("v1"), read("v2", bars)))
		checkKinds(t, s, "a", "v2/Bar")
		if settled(s, "v1") {
			t.Error("absence in a stale version is settled")
		}
	})
	t.Run("relisting keeps tables", func(t *testing.T) {
		s := after(group("a", listed("v1"), listed("v2"))).WithVersion("a", read("v1", foos))
		next := s.WithBulk(NewList([]*Group{group("a", listed("v1"), listed("v2"))}, false), 0)
		if next.Group("a") != s.Group("a") || !settled(next, "v1") {
			t.Error("the group is not as it was")
		}
	})
	t.Run("relisting after a reset makes tables outdated", func(t *testing.T) {
		s := after(group("a", listed("v1"))).WithVersion("a", read("v1", foos)).Reset()
		next := s.WithBulk(NewList([]*Group{group("a", listed("v1"))}, false), s.Clock())
		checkKinds(t, next, "a", "v1/Foo")
		if next.Outdated() || !next.Group("a").Version("v1").Outdated || settled(next, "v1") || settled(next) {
			t.Error("v1 is served without having been read since the reset")
		}
		if next = next.WithVersion("a", read("v1", foos)); !settled(next, "v1") || !settled(next) {
			t.Error("v1 is not settled, read again")
		}
		if next.Generation() != s.Generation() {
			t.Error("the generation moved")
		}
	})
	t.Run("relisting after a reset forgets failures", func(t *testing.T) {
		pods := schema.GroupVersionResource{Resource: "foos"}
		s := after(group("a", listed("v1"), listed("v2"))).WithVersion("a", read("v1", foos)).WithFailedVersion("a", "v2", errUnread)
		if _, settled, err := s.KindsFor(pods); !settled || err != nil {
			t.Errorf("settled %v, error %v, although all versions were tried", settled, err)
		}
		s = s.Reset()
		s = s.WithBulk(NewList([]*Group{group("a", listed("v1"), listed("v2"))}, false), s.Clock()).WithVersion("a", read("v1", foos))
		if _, settled, err := s.KindsFor(pods); settled || err != nil {
			t.Errorf("settled %v, error %v, although v2 was not tried since the reset", settled, err)
		}
	})
	t.Run("puts groups in order", func(t *testing.T) {
		s := after(group("a", read("v1", foos)), group("c", read("v1", foos))).WithVersion("b", read("v1", foos))
		if got := s.Groups()[2].Name(); got != "b" {
			t.Errorf("the new group is not last, but %s", got)
		}
		next := s.WithBulk(NewList([]*Group{group("a", read("v1", foos)), group("b", read("v1", foos)), group("c", read("v1", foos))}, true), 0)
		if got := next.Groups()[1].Name(); got != "b" {
			t.Errorf("the second is %s", got)
		}
		if next.Generation() != s.Generation() {
			t.Error("the generation moved for the order of groups")
		}
	})
}

func TestWithGroup(t *testing.T) {
	t.Run("replaces", func(t *testing.T) {
		s := after(group("a", read("v1", foos), read("v2", foos)))
		checkKinds(t, s.WithGroup(group("a", read("v2", bars)), 0), "a", "v2/Bar")
	})
	t.Run("failed version keeps its last good table", func(t *testing.T) {
		s := after(group("a", read("v1", foos), read("v2", foos)))
		next := s.WithGroup(group("a", failed("v1"), read("v2", bars)), 0)
		checkKinds(t, next, "a", "v1/Foo", "v2/Bar")
		if !errors.Is(next.Group("a").Version("v1").Err, errUnread) {
			t.Error("the error is lost")
		}
	})
	t.Run("last version takes the group along", func(t *testing.T) {
		s := after(group("a", read("v1", foos)), group("b", read("v1", foos)))
		for name, next := range map[string]*Snapshot{"WithoutVersion": s.WithoutVersion("a", "v1"), "WithoutGroup": s.WithoutGroup("a", 0)} {
			if next.Group("a") != nil || len(next.Groups()) != 1 {
				t.Errorf("%s: the group is still there", name)
			}
			checkKinds(t, next, "b", "v1/Foo")
		}
	})
}

func TestNewVersionGoesWhereTheServerPutsIt(t *testing.T) {
	s := after(group("a", read("v2", foos), read("v1", foos), read("v1beta1", foos)))
	for _, version := range []string{"v1alpha1", "v1beta2", "v3"} {
		s = s.WithVersion("a", read(version, foos))
	}
	checkKinds(t, s, "a", "v3/Foo", "v2/Foo", "v1/Foo", "v1beta2/Foo", "v1beta1/Foo", "v1alpha1/Foo")
	if settled(s) || !settled(s, "v3") {
		t.Error("the order of versions that nobody has listed is settled, or a version is not")
	}
}

func TestResets(t *testing.T) {
	bulk := func(s *Snapshot, clock uint64) *Snapshot {
		return s.WithBulk(NewList([]*Group{group("a", read("v1", foos)), group("b", read("v1", foos))}, true), clock)
	}
	s := bulk(new(Snapshot), 0)

	t.Run("of everything", func(t *testing.T) {
		reset := s.Reset()
		if !reset.Outdated() || settled(reset) {
			t.Error("settled without a read")
		}
		checkKinds(t, reset, "a", "v1/Foo")
		if next := reset.WithGroup(group("a", read("v1", foos)), reset.Clock()); settled(next) {
			t.Error("settled by a read of one group")
		}
		if next := bulk(reset, s.Clock()); !next.Outdated() || settled(next) {
			t.Error("settled by a read that began before the reset")
		}
		if next := bulk(reset, reset.Clock()); next.Outdated() || !settled(next) {
			t.Error("not settled by a read that began after it")
		}
	})
	t.Run("of a group", func(t *testing.T) {
		reset := s.ResetGroup("a")
		if !reset.GroupOutdated("a") || settled(reset) || settled(reset, "v1") {
			t.Error("settled without a read")
		}
		if _, ok, err := reset.RESTMapping(schema.GroupKind{Group: "b", Kind: "Foo"}, nil); !ok || err != nil {
			t.Errorf("another group: settled %v, error %v", ok, err)
		}
		if _, ok, _ := reset.KindsFor(schema.GroupVersionResource{Resource: "foos"}); ok {
			t.Error("a search through all groups is settled without a read of this one")
		}
		for name, next := range map[string]*Snapshot{
			"group":    reset.WithGroup(group("a", read("v1", foos)), s.Clock()),
			"no group": reset.WithoutGroup("a", s.Clock()),
			"bulk":     bulk(reset, s.Clock()),
		} {
			if !next.GroupOutdated("a") {
				t.Errorf("%s: settled by a read that began before the reset", name)
			}
		}
		for name, next := range map[string]*Snapshot{
			"group":    reset.WithGroup(group("a", read("v1", foos)), reset.Clock()),
			"no group": reset.WithoutGroup("a", reset.Clock()),
			"bulk":     bulk(reset, reset.Clock()),
		} {
			if next.GroupOutdated("a") {
				t.Errorf("%s: not settled by a read that began after it", name)
			}
		}
	})
	t.Run("of a group that is not there", func(t *testing.T) {
		reset := s.ResetGroup("a.longer")
		if _, ok, err := reset.KindsFor(schema.GroupVersionResource{Group: "a", Resource: "foos"}); ok || err != nil {
			t.Errorf("settled %v, error %v, although the group may have come", ok, err)
		}
	})
	t.Run("of everything after one of a group was answered", func(t *testing.T) {
		answered := bulk(s.ResetGroup("a"), s.ResetGroup("a").Clock())
		if reset := answered.Reset(); !reset.Outdated() {
			t.Error("the reset is lost")
		}
	})
	t.Run("of a group while an older read is under way", func(t *testing.T) {
		first := s.ResetGroup("a")
		began := first.Clock() // a read of b begins
		second := first.WithGroup(group("a", read("v1", foos)), began).ResetGroup("b")
		if next := second.WithGroup(group("b", read("v1", foos)), began); !next.GroupOutdated("b") {
			t.Error("settled by a read that began before the reset")
		}
	})
	t.Run("twice", func(t *testing.T) {
		first := s.Reset()
		if next := bulk(first.Reset(), first.Clock()); !next.Outdated() {
			t.Error("settled by a read that began between the two")
		}
	})
}

func TestGeneration(t *testing.T) {
	base := func() *Snapshot {
		return after(group("a", read("v1", foos, bars), listed("v2")), group("b", read("v1", foos)))
	}
	bulk := func(groups ...*Group) func(*Snapshot) *Snapshot {
		return func(s *Snapshot) *Snapshot { return s.WithBulk(NewList(groups, true), s.Clock()) }
	}
	tests := map[string]struct {
		change func(*Snapshot) *Snapshot
		moves  bool
	}{
		"nothing":         {bulk(group("a", read("v1", foos, bars), listed("v2")), group("b", read("v1", foos))), false},
		"order of rows":   {func(s *Snapshot) *Snapshot { return s.WithVersion("a", read("v1", bars, foos)) }, false},
		"order of groups": {bulk(group("b", read("v1", foos)), group("a", read("v1", foos, bars), listed("v2"))), false},
		"subresource": {func(s *Snapshot) *Snapshot {
			return s.WithVersion("b", read("v1", foos, Resource{Name: "foos/status"}))
		}, false},
		"first read":        {func(s *Snapshot) *Snapshot { return s.WithVersion("a", read("v2", foos)) }, false},
		"failure":           {func(s *Snapshot) *Snapshot { return s.WithFailedVersion("a", "v1", errUnread) }, false},
		"reset":             {func(s *Snapshot) *Snapshot { return s.Reset().ResetGroup("a") }, false},
		"read after reset":  {func(s *Snapshot) *Snapshot { return bulk(s.Groups()...)(s.Reset()) }, false},
		"group added":       {func(s *Snapshot) *Snapshot { return s.WithVersion("c", read("v1", foos)) }, true},
		"group listed":      {func(s *Snapshot) *Snapshot { return s.WithGroup(group("c", listed("v1")), 0) }, true},
		"group removed":     {func(s *Snapshot) *Snapshot { return s.WithoutGroup("b", 0) }, true},
		"version added":     {func(s *Snapshot) *Snapshot { return s.WithVersion("b", read("v2", foos)) }, true},
		"version removed":   {func(s *Snapshot) *Snapshot { return s.WithoutVersion("a", "v2") }, true},
		"order of versions": {bulk(NewGroup("a", "v1", []Version{listed("v2"), read("v1", foos, bars)}, true), group("b", read("v1", foos))), true},
		"preferred version": {bulk(NewGroup("a", "v2", []Version{read("v1", foos, bars), listed("v2")}, true), group("b", read("v1", foos))), true},
		"kind added":        {func(s *Snapshot) *Snapshot { return s.WithVersion("b", read("v1", foos, bars)) }, true},
		"kind removed":      {func(s *Snapshot) *Snapshot { return s.WithVersion("a", read("v1", foos)) }, true},
		"scope": {func(s *Snapshot) *Snapshot {
			return s.WithVersion("b", read("v1", Resource{Name: "foos", Singular: "foo", Kind: "Foo"}))
		}, true},
		"resource name": {func(s *Snapshot) *Snapshot {
			return s.WithVersion("b", read("v1", Resource{Name: "fooes", Singular: "foo", Kind: "Foo", Namespaced: true}))
		}, true},
		"singular name": {func(s *Snapshot) *Snapshot {
			return s.WithVersion("b", read("v1", Resource{Name: "foos", Singular: "phoo", Kind: "Foo", Namespaced: true}))
		}, true},
		"group removed and added": {bulk(group("a", read("v1", foos, bars), listed("v2")), group("c", read("v1", foos))), true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := base()
			next := test.change(s)
			if moved := next.Generation() != s.Generation(); moved != test.moves {
				t.Errorf("from %d to %d", s.Generation(), next.Generation())
			}
			if err := checkInvariants(next); err != nil {
				t.Error(err)
			}
			if changes := Diff(s, next); len(changes) > 0 && !test.moves && name != "first read" {
				t.Errorf("no move, but %v", changes)
			}
		})
	}
	t.Run("first read of all", func(t *testing.T) {
		if s := new(Snapshot); s.Generation() != 0 || s.WithBulk(NewList(nil, true), 0).Generation() != 1 {
			t.Error("the first read does not count")
		}
	})
	t.Run("listing a group that came by a version", func(t *testing.T) {
		s := after(group("b", read("v1", foos))).WithVersion("a", read("v1", foos)).WithVersion("a", read("odd", foos))
		next := s.WithGroup(NewGroup("a", "v1", []Version{read("odd", foos), read("v1", foos)}, true), 0)
		if next.Generation() != s.Generation() {
			t.Errorf("from %d to %d, although the same was served all along", s.Generation(), next.Generation())
		}
	})
}

func TestDiff(t *testing.T) {
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
			want: []change{{Added, "b/v1, Kind=Bar", "bars"}, {Added, "b/v1, Kind=Foo", "foos"}, {Added, "a/v1, Kind=Foo", "foos"}},
		},
		"to nothing": {
			from: after(group("a", read("v1", foos), read("v2", bars))), to: after(),
			want: []change{{Removed, "a/v1, Kind=Foo", "foos"}, {Removed, "a/v2, Kind=Bar", "bars"}},
		},
		"removed before added, in the new order": {
			from: after(group("a", read("v1", foos)), group("b", read("v1", foos)), group("c", read("v1", foos))),
			to: after(group("c", read("v1", bars)), group("b", read("v1", foos)),
				group("a", read("v1", Resource{Name: "fooes", Kind: "Foo", Namespaced: true}))),
			want: []change{{Removed, "c/v1, Kind=Foo", "foos"}, {Added, "c/v1, Kind=Bar", "bars"}, {Changed, "a/v1, Kind=Foo", "fooes"}},
		},
		"removed as it was last, with its new neighbour": {
			from: after(group("a", read("v1", foos))), to: after(group("a", read("v1", Resource{Name: "foos", Kind: "Phoo"}))),
			want: []change{{Removed, "a/v1, Kind=Foo", "foos"}, {Added, "a/v1, Kind=Phoo", "foos"}},
		},
		"scope": {
			from: after(group("a", read("v1", bars))), to: after(group("a", read("v1", Resource{Name: "bars", Kind: "Bar", Namespaced: true}))),
			want: []change{{Changed, "a/v1, Kind=Bar", "bars"}},
		},
		"became preferred": {
			from: after(NewGroup("a", "v1", []Version{read("v1", foos, bars), read("v2", foos)}, true)),
			to:   after(NewGroup("a", "v2", []Version{read("v1", foos, bars), read("v2", foos)}, true)),
			want: []change{{Changed, "a/v2, Kind=Foo", "foos"}},
		},
		"became preferred because the other went": {
			from: after(group("a", read("v1", foos), read("v2", foos))), to: after(group("a", read("v2", foos))),
			want: []change{{Removed, "a/v1, Kind=Foo", "foos"}, {Changed, "a/v2, Kind=Foo", "foos"}},
		},
		"singular alone": {
			from: after(group("a", read("v1", foos))),
			to:   after(group("a", read("v1", Resource{Name: "foos", Singular: "phoo", Kind: "Foo", Namespaced: true}))),
		},
		"only listed": {from: after(group("a", listed("v1"))), to: after(group("a", listed("v1"), listed("v2")))},
		"listed twice": {
			from: after(group("a", read("v1", foos))), to: after(group("a", read("v1", foos, Resource{Name: "fooes", Kind: "Foo"}))),
			want: []change{{Changed, "a/v1, Kind=Foo", "fooes"}},
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

func TestKeep(t *testing.T) {
	g := group("a", listed("v2"), listed("v1"), listed("v1beta1"))
	all := func(versions ...Version) map[string]Version {
		served := map[string]Version{}
		for _, v := range versions {
			served[v.Name] = v
		}
		return served
	}
	tests := map[string]struct {
		served map[string]Version
		want   []string
		listed bool
	}{
		"all":             {all(read("v1", foos), read("v1beta1", foos), read("v2", foos)), []string{"v2", "v1", "v1beta1"}, true},
		"not all":         {all(read("v1beta1", foos), read("v2", foos)), []string{"v2", "v1beta1"}, true},
		"one that failed": {all(failed("v1"), read("v2", foos)), []string{"v2", "v1"}, true},
		"more":            {all(read("v1", foos), read("v2", foos), read("v1alpha1", foos), read("v3", foos)), []string{"v3", "v2", "v1", "v1alpha1"}, false},
		"others":          {all(read("v3", foos)), []string{"v3"}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			kept := g.Keep(test.served)
			var names []string
			for _, v := range kept.Versions() {
				names = append(names, v.Name)
			}
			if diff := cmp.Diff(test.want, names); diff != "" || kept.Listed() != test.listed {
				t.Errorf("listed %v, versions (-want +got):\n%s", kept.Listed(), diff)
			}
			if err := checkGroup(kept); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWhatIsKnown(t *testing.T) {
	zero := new(Snapshot)
	if zero.Read() || zero.Aggregated() || zero.Complete() || zero.Kinds() != 0 || zero.Group("a") != nil || len(zero.Groups()) != 0 {
		t.Error("the zero snapshot knows something")
	}
	lists := zero.WithBulk(NewList([]*Group{group("a", listed("v1"), listed("v2"))}, false), 0)
	if !lists.Read() || lists.Aggregated() || lists.Complete() || lists.Kinds() != 0 {
		t.Error("a list is more than a list")
	}
	tried := lists.WithVersion("a", read("v1", foos, bars)).WithFailedVersion("a", "v2", errUnread)
	if !tried.Complete() || tried.Kinds() != 2 || tried.Reset().Complete() || tried.ResetGroup("a").Complete() {
		t.Errorf("complete %v, %d kinds, after a reset %v", tried.Complete(), tried.Kinds(), tried.Reset().Complete())
	}
	if s := after(group("a", read("v1", foos))); !s.Aggregated() || !s.Complete() || s.Kinds() != 1 {
		t.Error("the aggregated document is not all there is")
	}
}
