// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"maps"
	"testing"
)

// TestReset: after a reset, what may be answered without a read.
func TestReset(t *testing.T) {
	const known = "a/v1:Foo a/v2:Foo b/v1:Bar"
	early := func(h *history) Tick { return h.now - 1 } // of a read that began before the reset
	tests := map[string]struct {
		then          func(*history)
		a, aInV1, inB bool // whether Foo of a, Foo of a in v1, and Bar of b are settled
	}{
		"nothing happened":                {func(*history) {}, true, true, true},
		"reset":                           {func(h *history) { h.resetAll() }, false, false, false},
		"document":                        {func(h *history) { h.resetAll(); h.document(known) }, true, true, true},
		"a document that began before":    {func(h *history) { h.tick(); h.resetAll(); h.documentAt(known, early(h)) }, false, false, false},
		"a version, live":                 {func(h *history) { h.resetAll(); h.live("a/v1:Foo") }, false, true, false},
		"a live read that began before":   {func(h *history) { h.tick(); h.resetAll(); h.liveAt("a/v1:Foo", early(h)) }, false, false, false},
		"twice, and a read between":       {func(h *history) { h.resetAll(); h.document(known); h.resetAll() }, false, false, false},
		"a failure":                       {func(h *history) { h.resetAll(); h.fails("a/v1") }, false, false, false},
		"what was live is live again":     {func(h *history) { h.live("a/v1:Foo,Bar"); h.resetAll(); h.document(known) }, false, false, true},
		"and read so":                     {func(h *history) { h.live("a/v1:Foo,Bar"); h.resetAll(); h.document(known); h.live("a/v1:Foo") }, true, true, true},
		"what was gone is asked for":      {func(h *history) { h.live("a/v2"); h.resetAll(); h.document(known) }, false, true, true},
		"group":                           {func(h *history) { h.resetGroup("a") }, false, false, true},
		"group, document":                 {func(h *history) { h.resetGroup("a"); h.document(known) }, false, false, true},
		"group, changed document":         {func(h *history) { h.resetGroup("a"); h.document("a/v1:Foo,Baz b/v1:Bar") }, false, false, true},
		"group, one version":              {func(h *history) { h.resetGroup("a"); h.live("a/v1:Foo") }, false, true, true},
		"group, its list":                 {func(h *history) { h.resetGroup("a"); h.group("a", "v1", "v2") }, false, false, true},
		"group, its list and v1":          {func(h *history) { h.resetGroup("a"); h.group("a", "v1", "v2"); h.live("a/v1:Foo") }, true, true, true},
		"group, all live":                 {func(h *history) { h.resetGroup("a"); h.wholeGroup("a/v1:Foo a/v2:Foo") }, true, true, true},
		"group, all live, document":       {func(h *history) { h.resetGroup("a"); h.wholeGroup("a/v1:Foo a/v2:Foo"); h.document(known) }, true, true, true},
		"group, live before":              {func(h *history) { h.wholeGroup("a/v1:Foo a/v2:Foo"); h.resetGroup("a") }, false, false, true},
		"group, a read that began before": {func(h *history) { h.tick(); h.resetGroup("a"); h.liveAt("a/v1:Foo", early(h)) }, false, false, true},
		"group twice":                     {func(h *history) { h.resetGroup("a"); h.wholeGroup("a/v1:Foo a/v2:Foo"); h.resetGroup("a") }, false, false, true},
		"group, then all":                 {func(h *history) { h.resetGroup("a"); h.resetAll(); h.document(known) }, false, false, true},
		"all, then group":                 {func(h *history) { h.resetAll(); h.resetGroup("a"); h.document(known) }, false, false, true},
		"group, all live, then all":       {func(h *history) { h.resetGroup("a"); h.wholeGroup("a/v1:Foo a/v2:Foo"); h.resetAll() }, false, false, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHistory(false, known)
			test.then(h)
			if got := h.settles("a", "Foo"); got != test.a {
				t.Errorf("Foo of a is settled: %v", got)
			}
			if got := h.settles("a", "Foo", "v1"); got != test.aInV1 {
				t.Errorf("Foo of a in v1 is settled: %v", got)
			}
			if got := h.settles("b", "Bar"); got != test.inB {
				t.Errorf("Bar of b is settled: %v", got)
			}
			if err := checkInvariants(h.Snapshot); err != nil {
				t.Error(err)
			}
			if err := checkTicks(h.Snapshot, h.now); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLegacyReset: a list settles nothing that it only lists.
func TestLegacyReset(t *testing.T) {
	const known = "a/v1:Foo b/v1:Bar"
	h := newHistory(true, known)
	h.live("a/v1:Foo b/v1:Bar")
	if !h.settles("a", "Foo") || !h.settles("b", "Bar") {
		t.Error("not settled, though all was read")
	}
	h.resetAll()
	h.document(known)
	if h.settles("a", "Foo") || h.settles("a", "Foo", "v1") {
		t.Error("settled by a list")
	}
	h.live("a/v1:Foo")
	if !h.settles("a", "Foo") || h.settles("b", "Bar") {
		t.Error("a live read does not settle its version, or settles another")
	}
	h.resetGroup("a")
	h.live("a/v1:Foo")
	if h.settles("a", "Foo") || !h.settles("a", "Foo", "v1") {
		t.Error("a version without the group's list settles its order, or not itself")
	}
	h.wholeGroup("a/v1:Foo")
	if !h.settles("a", "Foo") || len(h.groupResets) > 0 {
		t.Error("not settled by a live read of all of the group")
	}
}

// TestResetTicks checks LastReset and LastResetOfAny.
func TestResetTicks(t *testing.T) {
	h := newHistory(false, "a/v1:Foo")
	h.resetAll()
	h.resetGroup("a")
	if h.LastReset() != 2 || h.LastResetOfAny() != 3 {
		t.Errorf("reset at %d and %d", h.LastReset(), h.LastResetOfAny())
	}
	if s := h.Reset(1).ResetGroup("a", 1); s.LastReset() != 2 || s.LastResetOfAny() != 3 || s.groupResets["a"] != 3 {
		t.Error("an older reset takes the place of a newer one")
	}
}

// TestResetOfAbsentGroup: a live read of its list that finds nothing settles it. That one
// version is gone does not.
func TestResetOfAbsentGroup(t *testing.T) {
	for name, settles := range map[string]bool{"list": true, "version": false} {
		h := newHistory(false, "b/v1:Foo")
		began := h.tick()
		h.resetGroup("a")
		h.Snapshot = h.WithList("a", nil, "", began).WithVersion("a", "v1", nil, began)
		if !h.awaits("a") {
			t.Errorf("%s: a read from before the reset settles it", name)
		}
		if h.WithList("a", nil, "", began) != h.Snapshot {
			t.Errorf("%s: another snapshot, though nothing has changed", name)
		}
		if name == "list" {
			h.group("a")
		} else {
			h.live("a/v1")
		}
		if h.awaits("a") == settles {
			t.Errorf("%s: settled: %v", name, !settles)
		}
	}
}

// TestResetOfGroupThatGoes: that its list is gone settles it, though it was known.
func TestResetOfGroupThatGoes(t *testing.T) {
	h := newHistory(false, "b/v1:Foo")
	h.live("a/v1:Foo")
	h.resetGroup("a")
	if h.live("a/v1"); h.Group("a") != nil || !h.awaits("a") {
		t.Errorf("the group is there: %v; its reset: %v", h.Group("a") != nil, h.groupResets)
	}
	h.group("a", "v1")
	if h.group("a"); h.Group("a") != nil || h.awaits("a") {
		t.Errorf("after its list: the group is there: %v; its reset: %v", h.Group("a") != nil, h.groupResets)
	}
}

// TestResetOutlivesTheGroup: a read from before the reset takes a group away, and does
// not settle the reset.
func TestResetOutlivesTheGroup(t *testing.T) {
	h := newHistory(false, "b/v1:Foo")
	h.live("a/v1:Foo")
	began := h.tick()
	h.resetGroup("a")
	h.Snapshot = h.WithVersion("a", "v1", nil, began)
	if h.Group("a") != nil || !h.awaits("a") {
		t.Errorf("the group is there: %v; its reset: %v", h.Group("a") != nil, h.groupResets)
	}
}

// TestSince: a lookup heeds the resets from before it began, as far as they are not
// settled since, and no later one.
func TestSince(t *testing.T) {
	h := newHistory(false, "a/v1:Foo b/v1:Foo c/v1:Foo")
	h.resetGroup("a")
	h.resetGroup("c")
	began := h.Snapshot
	if h.Since(began) != began {
		t.Error("another snapshot, though nothing was reset")
	}
	h.group("c", "v1")
	h.live("c/v1:Foo")
	h.resetGroup("a")
	h.resetGroup("b")
	h.resetAll()
	s := h.Since(began)
	if s.LastReset() != 0 || s.LastResetOfAny() != began.LastResetOfAny() {
		t.Errorf("reset at %d and %d", s.LastReset(), s.LastResetOfAny())
	}
	if want := map[string]Tick{"a": 2}; !maps.Equal(s.groupResets, want) {
		t.Errorf("resets of groups %v, want %v", s.groupResets, want)
	}
}

// TestResetOfUnknownGroups: an unknown group that was reset may have come, until a
// document is read that does not have it. If a later document has the group, it is read
// live all the same.
func TestResetOfUnknownGroups(t *testing.T) {
	h := newHistory(false, "b/v1:Foo")
	h.resetGroup("a")
	h.resetGroup("")
	h.halfDocument("b/v1:Foo", PartNamed)
	if h.awaits("a") {
		t.Error("a is still waited for")
	}
	if !h.awaits("") {
		t.Error("the half without the core group has settled it")
	}
	h.document("a/v1:Foo b/v1:Foo")
	if !h.awaits("a") || h.settles("a", "Foo") {
		t.Error("a group that the document has after its reset is not read live")
	}
	for i := range 2 * mostGroupResets {
		h.resetGroup(fmt.Sprint("unknown", i))
	}
	if n := len(h.groupResets); n > mostGroupResets {
		t.Errorf("%d resets are remembered", n)
	}
}
