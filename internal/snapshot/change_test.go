// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"slices"
	"testing"
)

// threeGroups is the past of what the tests of this file change.
func threeGroups() *history { return newHistory(false, "a/v1:Foo b/v1:Foo b/v2! c/v1:Foo") }

func TestUntouchedGroupsAreShared(t *testing.T) {
	for name, change := range map[string]func(*history){
		"document":        func(h *history) { h.document("a/v1:Foo b/v1:Bar c/v1:Foo") },
		"half a document": func(h *history) { h.halfDocument("a/v1:Foo b/v1:Bar c/v1:Foo", PartNamed) },
		"live":            func(h *history) { h.live("b/v1:Bar") },
		"live, first":     func(h *history) { h.live("b/v2:Bar") },
		"live, new":       func(h *history) { h.live("b/v3:Bar") },
		"live, gone":      func(h *history) { h.live("b/v1") },
		"failure":         func(h *history) { h.fails("b/v2") },
		"list":            func(h *history) { h.group("b", "v3", "v1") },
		"reset":           func(h *history) { h.resetAll() },
		"reset of b":      func(h *history) { h.resetGroup("b") },
		"read after it":   func(h *history) { h.resetGroup("b"); h.wholeGroup("b/v1:Bar b/v2:Bar") },
	} {
		h := threeGroups()
		before := h.Snapshot
		change(h)
		if err := checkInvariants(h.Snapshot); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if h.Group("a") != before.Group("a") || h.Group("c") != before.Group("c") {
			t.Errorf("%s: made an untouched group anew", name)
		}
		if h.order != before.order {
			t.Errorf("%s: made the order anew", name)
		}
	}
}

func TestNothingFollows(t *testing.T) {
	for name, change := range map[string]func(*history){
		"an unknown version is gone":   func(h *history) { h.live("b/v9") },
		"a version of no group":        func(h *history) { h.live("z/v1") },
		"an unknown version fails":     func(h *history) { h.fails("b/v9") },
		"a version of no group fails":  func(h *history) { h.fails("z/v1") },
		"no such group":                func(h *history) { h.group("z") },
		"nothing was dropped":          func(h *history) { h.Snapshot = h.WithoutDropped() },
		"a failure older than a read":  func(h *history) { h.Snapshot = h.WithFailedVersion("a", "v1", errUnread, 2) },
		"a read older than another":    func(h *history) { h.liveAt("a/v1:Old", 1) },
		"a list older than another":    func(h *history) { h.Snapshot = h.WithList("a", []string{"v7"}, "v7", 1) },
		"nothing overtakes a document": func(h *history) { h.Snapshot, _ = h.Overtaken(h.Snapshot, versionOf("a", "v1"), 1) },
	} {
		h := threeGroups()
		h.wholeGroup("a/v1:Foo")
		before := h.Snapshot
		if change(h); h.Snapshot != before {
			t.Errorf("%s: a new snapshot", name)
		}
	}
}

// TestSameDocument: a 304 costs no group, no order and no index.
func TestSameDocument(t *testing.T) {
	h := threeGroups()
	before := h.Snapshot
	h.document("a/v1:Foo b/v1:Foo b/v2! c/v1:Foo")
	if &h.groups[0] != &before.groups[0] || h.order != before.order || h.names != before.names || h.core != 2 || h.named != 2 {
		t.Error("the same document is not the same")
	}
	h.live("b/v1:Bar")
	before = h.Snapshot
	h.document("a/v1:Foo b/v1:Foo b/v2! c/v1:Foo")
	if !slices.Equal(h.groups, before.groups) || h.order != before.order || h.names != before.names {
		t.Error("the same document, beside what was read live, is not the same")
	}
}

// TestHalfADocument counts for that half.
func TestHalfADocument(t *testing.T) {
	h := newHistory(false, "/v1:Pod a/v1:Foo")
	h.halfDocument("/v1:Pod,Node a/v1:Foo", PartCore)
	h.halfDocument("/v1:Pod,Node a/v1:Bar", PartNamed)
	if h.core != 2 || h.named != 3 {
		t.Errorf("read at %d and %d", h.core, h.named)
	}
	h.check(t, "/v1:Pod,Node a/v1:Bar")
	h.resetAll()
	h.halfDocument("/v1:Pod,Node a/v1:Bar", PartCore)
	if !h.settles("", "Pod") || h.settles("a", "Bar") {
		t.Error("a half of the document settles what is not in it, or not what is")
	}
}

// TestPlaces shows the places of versions and groups that are in no list.
func TestPlaces(t *testing.T) {
	h := newHistory(false, "a/v2:Foo a/v1:Foo a/v1beta1:Foo c/v1:Foo")
	h.live("a/v1alpha1:Foo a/v1beta2:Foo a/v3:Foo b/v1:Foo")
	h.check(t, "a/v3:Foo@4 a/v2:Foo a/v1:Foo a/v1beta2:Foo@3 a/v1beta1:Foo a/v1alpha1:Foo@2 c/v1:Foo b/v1:Foo@5")
	if h.settles("a", "Foo") || !h.settles("a", "Foo", "v3") || h.ordered {
		t.Error("an order that nobody has listed is settled, or a version is not")
	}
	generation := h.Generation()
	h.document("a/v2:Foo a/v1:Foo a/v1beta1:Foo b/v1:Foo c/v1:Foo")
	if b := h.groups[1]; b.name != "b" || !h.ordered || h.Generation() != generation {
		t.Errorf("the second is %s, ordered %v, generation %d after %d", b.name, h.ordered, h.Generation(), generation)
	}
	if !h.settles("a", "Foo") {
		t.Error("not settled after the document was asked for the order")
	}
}

func TestGeneration(t *testing.T) {
	const known = "a/v1:Foo,Bar a/v2! b/v1:Foo"
	tests := map[string]struct {
		change func(*history)
		moves  bool
	}{
		"nothing":           {func(h *history) { h.document(known) }, false},
		"order of rows":     {func(h *history) { h.live("a/v1:Bar,Foo") }, false},
		"order of groups":   {func(h *history) { h.document("b/v1:Foo a/v1:Foo,Bar a/v2!") }, false},
		"first read":        {func(h *history) { h.live("a/v2:Foo") }, false},
		"failure":           {func(h *history) { h.fails("a/v1") }, false},
		"reset":             {func(h *history) { h.resetAll(); h.resetGroup("a") }, false},
		"read after reset":  {func(h *history) { h.resetAll(); h.document(known); h.live("b/v1:Foo") }, false},
		"dropped":           {func(h *history) { h.document("a/v1:Foo,Bar a/v2!") }, false},
		"dropped and gone":  {func(h *history) { h.document("a/v1:Foo,Bar a/v2!"); h.live("b/v1") }, true},
		"dropped with all":  {func(h *history) { h.document("a/v1:Foo,Bar a/v2!"); h.Snapshot = h.WithoutDropped() }, true},
		"group added":       {func(h *history) { h.live("c/v1:Foo") }, true},
		"group listed":      {func(h *history) { h.group("c", "v1") }, true},
		"version added":     {func(h *history) { h.live("b/v2:Foo") }, true},
		"version removed":   {func(h *history) { h.live("a/v2") }, true},
		"order of versions": {func(h *history) { h.group("a", "v2", "v1") }, true},
		"kind added":        {func(h *history) { h.live("b/v1:Foo,Bar") }, true},
		"kind removed":      {func(h *history) { h.live("a/v1:Foo") }, true},
		"preferred version": {func(h *history) { h.Snapshot = h.WithList("a", []string{"v1", "v2"}, "v2", h.tick()) }, true},
		"scope":             {func(h *history) { h.foo(Resource{Name: "foos", Singular: "foo", Kind: "Foo"}) }, true},
		"resource name":     {func(h *history) { h.foo(Resource{Name: "fooes", Singular: "foo", Kind: "Foo", Namespaced: true}) }, true},
		"singular name":     {func(h *history) { h.foo(Resource{Name: "foos", Singular: "phoo", Kind: "Foo", Namespaced: true}) }, true},
		"subresource":       {func(h *history) { h.foo(foos, Resource{Name: "foos/status"}) }, false},
		"gone, and a new one": {func(h *history) {
			h.document("a/v1:Foo,Bar a/v2! c/v1:Foo")
			h.live("b/v1")
		}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHistory(false, known)
			before := h.Snapshot
			test.change(h)
			if moved := h.Generation() != before.Generation(); moved != test.moves {
				t.Errorf("from %d to %d", before.Generation(), h.Generation())
			}
			if err := checkInvariants(h.Snapshot); err != nil {
				t.Error(err)
			}
			if changes := Diff(before, h.Snapshot); len(changes) > 0 && !test.moves && name != "first read" {
				t.Errorf("no move, but %v", changes)
			}
		})
	}
	t.Run("first read of all", func(t *testing.T) {
		if s := new(Snapshot); s.Generation() != 0 || s.WithDocument(NewList(nil, true), 1, 1).Generation() != 1 {
			t.Error("the first read does not count")
		}
	})
	t.Run("listing a group that came by its versions", func(t *testing.T) {
		h := newHistory(false, "b/v1:Foo")
		h.live("a/v1:Foo a/odd:Foo")
		before := h.Generation()
		h.document("b/v1:Foo a/odd:Foo a/v1:Foo")
		if h.Generation() != before {
			t.Errorf("from %d to %d, although the same was served all along", before, h.Generation())
		}
	})
}

// foo reads b/v1 live, which serves these resources.
func (h *history) foo(resources ...Resource) {
	h.Snapshot = h.WithVersion("b", "v1", NewTable(resources), h.tick())
}

func TestWhatIsKnown(t *testing.T) {
	zero := new(Snapshot)
	if zero.Read() || zero.Aggregated() || zero.Kinds() != 0 || zero.Group("a") != nil || len(zero.Groups()) != 0 || zero.Serves("a", "v1") {
		t.Error("the zero snapshot knows something")
	}
	lists := newHistory(true, "a/v1:Foo a/v2:Foo")
	if !lists.Read() || lists.Aggregated() || lists.Kinds() != 0 || !lists.Serves("a", "v2") {
		t.Error("a list is more than a list, or less")
	}
	if lists.live("a/v1:Foo,Bar"); lists.Kinds() != 2 {
		t.Errorf("%d kinds", lists.Kinds())
	}
	if h := newHistory(false, "a/v1:Foo"); !h.Aggregated() || h.Kinds() != 1 || h.Serves("a", "v2") {
		t.Error("the aggregated document is not all there is")
	}
	half := new(Snapshot).WithDocument(NewList(nil, true), 0, 1)
	if half.Read() {
		t.Error("half of the document is all of it")
	}
}

// TestLiveReads are all that is known of a group, tombstones included.
func TestLiveReads(t *testing.T) {
	h := newHistory(false, "a/v1:Foo a/v2:Foo b/v1:Foo")
	h.live("a/v2 a/v3:Foo")
	want := []Read{listOf("a"), versionOf("a", "v1"), versionOf("a", "v3"), versionOf("a", "v2")}
	if got := h.LiveReads("a"); !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
	if got := h.LiveReads("z"); !slices.Equal(got, []Read{listOf("z")}) {
		t.Errorf("of an unknown group: %v", got)
	}
	if h.resetGroup("a"); names(h.Awaited()) != "a" {
		t.Errorf("after a reset %q are awaited", names(h.Awaited()))
	}
}

// The order is worked out again only where groups come or go.
func TestOrderIsTakenOver(t *testing.T) {
	h := newHistory(false, "a/v1:Foo b/v1:Foo")
	h.live("z/v1:Foo") // so that it is not the document's
	before := h.order
	if h.live("z/v1:Bar"); h.order != before {
		t.Error("worked out again for a change in a group")
	}
	if h.live("y/v1:Bar"); h.order == before {
		t.Error("taken over though a group has come")
	}
}
