// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"strings"
	"testing"
)

// due writes down what a refresh reads.
func (h *history) due(all bool) string {
	lines := func(groups [][]Read) string {
		var text []string
		for _, reads := range groups {
			for _, r := range reads {
				text = append(text, r.Group+"/"+r.Version)
			}
		}
		return strings.Join(text, " ")
	}
	s := h.Snapshot
	if all {
		s = s.Whole(1, h.now)
	}
	differing, dropped := s.Due()
	return strings.TrimSpace(lines(differing) + " | " + lines([][]Read{dropped}))
}

// R5: a refresh reads live what differs from the document; without the aggregated document
// what was ever read. Of what the document dropped, the least recently tried come first.
func TestRefreshReadsWhatDiffers(t *testing.T) {
	const known = "a/v1:Foo,Bar a/v2:Foo b/v1:Bar"
	for name, test := range map[string]struct {
		then func(*history)
		want string
	}{
		"nothing":                {func(*history) {}, "|"},
		"a live answer":          {live("a/v1:Foo"), "a/v1 a/v2 a/ |"},
		"an equal live answer":   {live("a/v1:Foo,Bar"), "|"},
		"kinds in another order": {live("a/v1:Bar,Foo"), "|"},
		"the same, before a document with them": {func(h *history) {
			h.liveAt("a/v1:Baz,Foo", 9, h.Snapshot)
			h.documentAt("a/v1:Foo,Baz a/v2:Foo b/v1:Bar", 8)
		}, "|"},
		"a version that is gone":   {live("a/v1"), "a/v2 a/ |"},
		"a version that came":      {live("a/v3:Foo"), "a/v1 a/v3 a/v2 a/ |"},
		"a failure":                {live("a/v2!"), "a/v1 a/v2 a/ |"},
		"a failure that is over":   {live("a/v2! a/v2:Foo"), "|"},
		"a stale version":          {doc("a/v1:Foo,Bar a/v2! b/v1:Bar"), "a/v1 a/v2 a/ |"},
		"a list that differs":      {listOf("a", "v2", "v1"), "a/v2 a/v1 a/ |"},
		"a list of equal versions": {func(h *history) { h.document("a/v1:Foo a/v2:Foo"); h.group("a", "v2", "v1") }, "a/v2 a/v1 a/ | b/v1"},
		"a list in another order": {func(h *history) {
			h.document("a/v1:Foo a/v2:Foo")
			h.Snapshot = h.WithList("a", []string{"v2", "v1"}, "v1", nil, h.tick(), h.Snapshot)
		}, "a/v1 a/v2 a/ | b/v1"},
		"an equal list":             {listOf("a", "v1", "v2"), "|"},
		"a version dropped":         {doc("a/v1:Foo,Bar b/v1:Bar"), "a/v1 a/v2 a/ |"},
		"a reset of a group":        {resetOf("b"), "b/v1 b/ |"},
		"a reset of an unknown one": {resetOf("z"), "z/ |"},
		"a reset":                   {(*history).resetAll, "|"},
		"groups dropped":            {doc("c/v1:Foo"), "| a/v1 a/v2 b/v1"},
		"one of them tried":         {func(h *history) { h.document("c/v1:Foo"); h.live("a/v1!") }, "| b/v1 a/v1 a/v2"},
		"dropped and reset":         {func(h *history) { h.document("a/v1:Foo,Bar a/v2:Foo"); h.resetGroup("b") }, "b/v1 b/ |"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(false, known)
			if test.then(h); h.due(false) != test.want {
				t.Errorf("got %q, want %q; known %s", h.due(false), test.want, h.text())
			}
		})
	}
}

// left reads all versions while there is a subscriber, who then leaves. It returns what was
// known before that.
func left(h *history) *Snapshot {
	h.Snapshot = h.Whole(1, h.tick())
	h.live("a/v1:Foo a/v2:Foo b/v1:Bar")
	subscribed := h.Snapshot
	h.Snapshot = h.Whole(-1, h.tick())
	return subscribed
}

func TestRefreshReadsWhatWasReadOnLegacy(t *testing.T) {
	const known = "a/v1:Foo a/v2:Foo b/v1:Bar"
	for name, test := range map[string]struct {
		then      func(*history)
		want, all string
	}{
		"nothing was read": {func(*history) {}, "|", "a/v1 a/v2 b/v1 |"},
		"one version":      {live("a/v1:Foo"), "a/v1 |", "a/v1 a/v2 b/v1 |"},
		"one that is gone": {live("a/v1"), "|", "a/v2 b/v1 |"},
		"another is preferred": {func(h *history) {
			h.Snapshot = h.WithList("a", []string{"v1", "v2"}, "v2", nil, h.tick(), h.Snapshot)
		}, "a/v2 a/v1 a/ |", "a/v2 a/v1 a/ b/v1 |"},
		"one that failed":         {live("a/v1!"), "a/v1 |", "a/v1 a/v2 b/v1 |"},
		"the list differs":        {listOf("a", "v2", "v1"), "a/v2 a/v1 a/ |", "a/v2 a/v1 a/ b/v1 |"},
		"none since a subscriber": {func(h *history) { left(h); h.live("a/v1:Foo") }, "a/v1 |", "a/v1 a/v2 b/v1 |"},
		"a reset of a group":      {resetOf("b"), "b/v1 b/ |", "a/v1 a/v2 b/v1 b/ |"},
		"dropped":                 {func(h *history) { h.live("b/v1:Bar"); h.document("a/v1 a/v2") }, "| b/v1", "a/v1 a/v2 | b/v1"},
		"dropped without read":    {doc("a/v1 a/v2"), "| b/v1", "a/v1 a/v2 | b/v1"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(true, known)
			test.then(h)
			if got, all := h.due(false), h.due(true); got != test.want || all != test.all {
				t.Errorf("got %q, all %q; want %q, all %q; known %s", got, all, test.want, test.all, h.text())
			}
		})
	}
}
