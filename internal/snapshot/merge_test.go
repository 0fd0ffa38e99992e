// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"strings"
	"testing"
)

// step is one event of a history, and what is known after it.
type step struct {
	do   func(*history)
	want string
}

// sentence is one sentence of a rule as a history.
type sentence struct {
	name   string
	legacy bool
	steps  []step
}

func checkSentences(t *testing.T, sentences []sentence) {
	t.Helper()
	for _, s := range sentences {
		t.Run(strings.ReplaceAll(s.name, " ", "_"), func(t *testing.T) {
			h := newHistory(s.legacy, "")
			for _, step := range s.steps {
				step.do(h)
				h.check(t, step.want)
			}
		})
	}
}

func doc(text string) func(*history) { return func(h *history) { h.document(text) } }

func live(text string) func(*history) { return func(h *history) { h.live(text) } }

func resetOf(g string) func(*history) { return func(h *history) { h.resetGroup(g) } }

func listOf(g string, v ...string) func(*history) { return func(h *history) { h.group(g, v...) } }

// R1: only the 404 of a version's own path removes it. Documents and lists add, update and
// sort.
func TestOnlyItsOwn404RemovesAVersion(t *testing.T) {
	checkSentences(t, []sentence{
		{name: "a document that drops a version", steps: []step{
			{doc("a/v1:Foo a/v2:Foo"), "a/v1:Foo a/v2:Foo"},
			{doc("a/v2:Foo"), "a/v1:Foo@1 a/v2:Foo"},
			{live("a/v1"), "a/v1-@3 a/v2:Foo"},
			{doc("a/v2:Foo"), "a/v2:Foo"},
		}},
		{name: "a document that drops a group", steps: []step{
			{doc("a/v1:Foo a/v2:Bar b/v1:Bar"), "a/v1:Foo a/v2:Bar b/v1:Bar"},
			{doc("b/v1:Bar"), "a/v1:Foo@1 a/v2:Bar@1 b/v1:Bar"},
			{live("a/v1"), "a/v1-@3 a/v2:Bar@1 b/v1:Bar"},
			{live("a/v2"), "a/v1-@3 a/v2-@4 b/v1:Bar"},
			{doc("b/v1:Bar"), "b/v1:Bar"},
		}},
		{name: "a 404 of one version says nothing of another", steps: []step{
			{doc("a/v1:Foo a/v2:Bar"), "a/v1:Foo a/v2:Bar"},
			{live("a/v2"), "a/v1:Foo a/v2-@2"},
		}},
		{name: "a list adds and sorts", steps: []step{
			{doc("a/v1:Foo a/v2:Bar"), "a/v1:Foo a/v2:Bar"},
			{listOf("a", "v3", "v2", "v1"), "a/v3 a/v2:Bar a/v1:Foo"},
		}},
		{name: "a list removes nothing", steps: []step{
			{doc("a/v1:Foo a/v2:Bar"), "a/v1:Foo a/v2:Bar"},
			{listOf("a", "v1"), "a/v1:Foo a/v2:Bar"},
			{listOf("a"), "a/v1:Foo a/v2:Bar"},
		}},
		{name: "a list that has a version again", steps: []step{
			{doc("a/v1:Foo a/v2:Bar"), "a/v1:Foo a/v2:Bar"},
			{live("a/v1"), "a/v1-@2 a/v2:Bar"},
			{listOf("a", "v1", "v2"), "a/v1-?@2 a/v2:Bar"},
		}},
		{name: "a version whose read fails is not gone any more (R6)", steps: []step{
			{doc("a/v1:Foo a/v2:Bar"), "a/v1:Foo a/v2:Bar"},
			{live("a/v1 a/v1!"), "a/v1! a/v2:Bar"},
			{live("a/v1"), "a/v1-@4 a/v2:Bar"},
			{listOf("a", "v1", "v2"), "a/v1-?@4 a/v2:Bar"},
			{live("a/v1!"), "a/v1! a/v2:Bar"},
		}},
		{name: "nothing is kept of a version that nobody has seen", steps: []step{
			{doc("a/v1:Foo"), "a/v1:Foo"},
			{live("a/v9 z/v1 a/v8! z/v2!"), "a/v1:Foo"},
			{listOf("z"), "a/v1:Foo"},
		}},
		{name: "a version that no list has stands in kube-aware order", steps: []step{
			{doc("a/v2:Foo a/v1:Foo"), "a/v2:Foo a/v1:Foo"},
			{live("a/v1beta1:Foo a/v3:Foo"), "a/v3:Foo@3 a/v2:Foo a/v1:Foo a/v1beta1:Foo@2"},
		}},
	})
}

// A dropped group keeps its place: lookups in many groups answer the same during a restart.
func TestDroppedGroupKeepsItsPlace(t *testing.T) {
	h := newHistory(false, "/v1:Pod a/v1:Foo b/v1:Foo c/v1:Foo")
	for _, text := range []string{"/v1:Pod", "/v1:Pod c/v1:Foo", "/v1:Pod", "/v1:Pod b/v1:Foo c/v1:Foo"} {
		h.document(text)
		if names := fmt.Sprint(groupsWith(h.Snapshot, "foos")); names != "[a/v1 b/v1 c/v1]" {
			t.Errorf("after %q: %s", text, names)
		}
	}
	h.document("/v1:Pod a/v1:Foo b/v1:Foo c/v1:Foo")
	if h.apart != 0 || fmt.Sprint(groupsWith(h.Snapshot, "foos")) != "[a/v1 b/v1 c/v1]" {
		t.Errorf("when it is back: %s", h.text())
	}
}

// Only so many groups are kept of which the document does not name everything. What it names
// of the others stays.
func TestMarkedGroupsAreBounded(t *testing.T) {
	named := func(version string) string {
		all := []string{"a/v1:Foo"}
		for n := range mostMarked + 100 {
			all = append(all, fmt.Sprintf("g%05d/%s:Foo", n, version))
		}
		return strings.Join(all, " ")
	}
	for _, test := range []struct {
		then string
		want int // groups
	}{{"a/v1:Foo", mostMarked + 1}, {named("v2"), mostMarked + 101}} {
		h := newHistory(false, named("v1"))
		h.document(test.then)
		marked := 0
		for _, g := range h.groups {
			if g.name != "a" && g.Version("v1") != nil {
				marked++
			}
		}
		if len(h.groups) != test.want || h.Group("a") == nil || marked != mostMarked {
			t.Errorf("%d groups, %d of them with a version that the document does not name", len(h.groups), marked)
		}
	}
}

// Only so many versions of a group are kept, and those that the document has before others.
func TestVersionsAreBounded(t *testing.T) {
	h := newHistory(false, "a/v1:Foo")
	const most = mostUnnamed + 10
	for n := range most { // those that are read first do not stand at an end
		h.live(fmt.Sprintf("a/v1beta%d:Foo", (n+most/2)%most+1))
	}
	if g := h.Group("a"); len(g.versions) != mostUnnamed+1 || g.Version("v1") == nil || g.Version(fmt.Sprintf("v1beta%d", most/2+1)) != nil {
		t.Errorf("%d versions", len(g.versions))
	}
}

// What was read live after a reset counts, though a document that began before it ends later.
func TestLateDocumentTakesNothingBack(t *testing.T) {
	h := newHistory(false, abc)
	began := h.tick()
	h.resetAll()
	h.live("a/v1:Foo")
	h.documentAt(abc, began)
	if version, current := h.finds("a", "Foo", "v1"); version != "v1" || !current {
		t.Errorf("%q, current: %v", version, current)
	}
}

// A live read that finds the same keeps the table: a lookup that reads many versions compares
// each with what it was, again and again.
func TestSameTableIsKept(t *testing.T) {
	h := newHistory(false, "a/v1:Foo")
	h.live("a/v2:Bar")
	table := h.Group("a").Version("v2").Table
	h.live("a/v2:Bar")
	if again := h.Group("a").Version("v2").Table; again != table || table == nil {
		t.Errorf("another table with the same rows")
	}
	h.live("a/v2:Baz")
	if other := h.Group("a").Version("v2").Table; other == table {
		t.Errorf("the table of what was there")
	}
}

// R2: of two reads the one that began later counts. A document that repeats what it said is
// no news.
func TestTheLaterReadWins(t *testing.T) {
	at := func(now Tick, what string) func(*history) {
		return func(h *history) { h.liveAt(what, now, h.Snapshot) }
	}
	docAt := func(now Tick, text string) func(*history) { return func(h *history) { h.documentAt(text, now) } }
	checkSentences(t, []sentence{
		{name: "a document that repeats itself is no news", steps: []step{
			{doc("a/v1:Foo"), "a/v1:Foo"},
			{live("a/v1:Bar"), "a/v1:Bar@2"},
			{doc("a/v1:Foo"), "a/v1:Bar@2"},
		}},
		{name: "nor of a version that is gone", steps: []step{
			{doc("a/v1:Foo a/v2:Bar"), "a/v1:Foo a/v2:Bar"},
			{live("a/v1"), "a/v1-@2 a/v2:Bar"},
			{doc("a/v1:Foo a/v2:Bar"), "a/v1-@2 a/v2:Bar"},
		}},
		{name: "news replaces what was read before", steps: []step{
			{doc("a/v1:Foo"), "a/v1:Foo"},
			{live("a/v1:Bar"), "a/v1:Bar@2"},
			{doc("a/v1:Foo,Baz"), "a/v1:Foo,Baz"},
		}},
		{name: "news of one version is news of the group", steps: []step{
			{doc("a/v1:Foo a/v2:Foo"), "a/v1:Foo a/v2:Foo"},
			{live("a/v1"), "a/v1-@2 a/v2:Foo"},
			{doc("a/v1:Foo a/v2:Bar"), "a/v1:Foo a/v2:Bar"},
		}},
		{name: "news that comes after a later 404", steps: []step{
			{doc("a/v1:Foo a/v2:Foo"), "a/v1:Foo a/v2:Foo"},
			{at(5, "a/v1"), "a/v1-@5 a/v2:Foo"},
			{docAt(4, "a/v1:Foo a/v2:Bar"), "a/v1-@5 a/v2:Bar"},
		}},
		{name: "a mark alone is news", steps: []step{
			{doc("a/v1:Foo"), "a/v1:Foo"},
			{doc("a/v1!:Foo"), "a/v1!:Foo"},
		}},
		{name: "news that comes after a later live read", steps: []step{
			{doc("a/v1:Foo"), "a/v1:Foo"},
			{at(5, "a/v1:Bar"), "a/v1:Bar@5"},
			{docAt(4, "a/v1:Foo,Baz"), "a/v1:Bar@5"},
		}},
		{name: "news that comes after a later live read that failed", steps: []step{
			{doc("a/v1:Foo"), "a/v1:Foo"},
			{at(5, "a/v1!"), "a/v1!:Foo"},
			{docAt(4, "a/v1:Foo,Baz"), "a/v1!:Foo,Baz"},
		}},
		{name: "news that comes after a later live read, and one that failed", steps: []step{
			{doc("a/v1:Foo"), "a/v1:Foo"},
			{at(9, "a/v1:Bar"), "a/v1:Bar@9"},
			{at(10, "a/v1!"), "a/v1!:Bar@9"},
			{docAt(8, "a/v1:Foo,Baz"), "a/v1!:Bar@9"},
		}},
		{name: "a live read that began before the news", steps: []step{
			{doc("a/v1:Foo"), "a/v1:Foo"},
			{func(h *history) {
				from := h.Snapshot
				h.documentAt("a/v1:Baz", 4)
				h.liveAt("a/v1:Bar", 3, from)
			}, "a/v1:Baz"},
		}},
		{name: "a live read that began before a document without news", steps: []step{
			{doc("a/v1:Foo"), "a/v1:Foo"},
			{func(h *history) {
				from := h.Snapshot
				h.documentAt("a/v1:Foo", 4)
				h.liveAt("a/v1:Bar", 3, from)
			}, "a/v1:Bar@3"},
		}},
		{name: "of two live reads the later one", steps: []step{
			{doc("a/v1:Foo"), "a/v1:Foo"},
			{at(5, "a/v1:Bar"), "a/v1:Bar@5"},
			{at(4, "a/v1"), "a/v1:Bar@5"},
			{at(6, "a/v1"), "a/v1-@6"},
		}},
		{name: "of two documents the later one", steps: []step{
			{docAt(5, "a/v1:Foo"), "a/v1:Foo"},
			{docAt(4, "a/v1:Bar"), "a/v1:Foo"},
		}},
		{name: "of two lists the later one", steps: []step{
			{doc("a/v1:Foo a/v2:Foo"), "a/v1:Foo a/v2:Foo"},
			{func(h *history) { h.groupAt(5, "a", "v2", "v1") }, "a/v2:Foo a/v1:Foo"},
			{func(h *history) { h.groupAt(4, "a", "v1", "v2") }, "a/v2:Foo a/v1:Foo"},
		}},
		{name: "a list that is later than the news", steps: []step{
			{doc("a/v1:Foo a/v2:Foo"), "a/v1:Foo a/v2:Foo"},
			{func(h *history) { h.groupAt(9, "a", "v2", "v1") }, "a/v2:Foo a/v1:Foo"},
			{docAt(8, "a/v1:Foo a/v2:Bar"), "a/v2:Bar a/v1:Foo"},
		}},
		{name: "a stale version keeps its table", steps: []step{
			{doc("a/v1:Foo a/v2:Foo"), "a/v1:Foo a/v2:Foo"},
			{doc("a/v1! a/v2:Foo"), "a/v1!:Foo@1 a/v2:Foo"},
			{doc("a/v1:Bar a/v2:Foo"), "a/v1:Bar a/v2:Foo"},
		}},
		{name: "a stale version that is read live", steps: []step{
			{doc("a/v1! a/v2:Foo"), "a/v1! a/v2:Foo"},
			{live("a/v1:Foo"), "a/v1:Foo@2 a/v2:Foo"},
			{doc("a/v1! a/v2:Bar"), "a/v1!:Foo@2 a/v2:Bar"},
			{live("a/v1"), "a/v1-@4 a/v2:Bar"},
		}},
		{name: "a version that is only named keeps its table", legacy: true, steps: []step{
			{doc("a/v1:Foo b/v1:Foo"), "a/v1 b/v1"},
			{live("a/v1:Foo"), "a/v1:Foo@2 b/v1"},
			{doc("a/v1:Foo b/v1:Foo"), "a/v1:Foo@2 b/v1"},
			{doc("a/v2:Foo a/v1:Foo"), "a/v2 a/v1:Foo@2 b/v1"},
		}},
		{name: "news that names a version that was gone", legacy: true, steps: []step{
			{doc("a/v1:Foo a/v2:Foo"), "a/v1 a/v2"},
			{live("a/v1"), "a/v1-@2 a/v2"},
			{doc("a/v1:Foo a/v2:Foo a/v3:Foo"), "a/v1-?@2 a/v2 a/v3"},
		}},
		{name: "a document with kinds in another order is no news", steps: []step{
			{doc("a/v1:Foo,Bar"), "a/v1:Foo,Bar"},
			{live("a/v1:Foo,Bar,New"), "a/v1:Foo,Bar,New@2"},
			{doc("a/v1:Bar,Foo"), "a/v1:Foo,Bar,New@2"},
		}},
		{name: "a 404 from before a list that names the version", steps: []step{
			{doc("a/v1:Foo a/v2:Bar"), "a/v1:Foo a/v2:Bar"},
			{func(h *history) { h.groupAt(5, "a", "v1", "v2", "v3") }, "a/v1:Foo a/v2:Bar a/v3"},
			{at(4, "a/v2"), "a/v1:Foo a/v2-?@4 a/v3"},
			{at(4, "a/v3"), "a/v1:Foo a/v2-?@4 a/v3-?@4"},
			{at(6, "a/v2"), "a/v1:Foo a/v2-@6 a/v3-?@4"},
		}},
		{name: "a 404 from before the news that names the version", legacy: true, steps: []step{
			{doc("a/v1:Foo a/v2:Foo"), "a/v1 a/v2"},
			{func(h *history) {
				from := h.Snapshot
				h.documentAt("a/v1:Foo a/v2:Foo a/v3:Foo", 5)
				h.liveAt("a/v2", 4, from)
				h.liveAt("a/v3", 4, from)
			}, "a/v1 a/v2 a/v3"},
		}},
		{name: "a 404 that began after the news and before its repetition", legacy: true, steps: []step{
			{doc("a/v1:Foo a/v2:Foo"), "a/v1 a/v2"},
			{func(h *history) {
				from := h.Snapshot
				h.documentAt("a/v1:Foo a/v2:Foo a/v3:Foo", 3)
				h.documentAt("a/v1:Foo a/v2:Foo a/v3:Foo", 5)
				h.liveAt("a/v2", 4, from)
			}, "a/v1 a/v2-@4 a/v3"},
		}},
		{name: "a failure keeps the table and the tick", steps: []step{
			{doc("a/v1:Foo"), "a/v1:Foo"},
			{live("a/v1!"), "a/v1!:Foo"},
			{live("a/v1:Bar"), "a/v1:Bar@3"},
			{live("a/v1!"), "a/v1!:Bar@3"},
		}},
		{name: "what is served again as the document says is the document's", steps: []step{
			{doc("a/v1:Foo"), "a/v1:Foo"},
			{live("a/v1:Bar"), "a/v1:Bar@2"},
			{live("a/v1:Foo"), "a/v1:Foo@3"},
			{doc("a/v1:Foo"), "a/v1:Foo"},
		}},
	})
}

// R4: what was read before a reset is not current. The first document after it is news of
// every group.
func TestFirstDocumentAfterAResetIsNews(t *testing.T) {
	checkSentences(t, []sentence{
		{name: "of what was read live", steps: []step{
			{doc("a/v1:Foo"), "a/v1:Foo"},
			{live("a/v1:Bar"), "a/v1:Bar@2"},
			{(*history).resetAll, "a/v1:Bar@2"},
			{doc("a/v1:Foo"), "a/v1:Foo"},
		}},
		{name: "of what was gone", steps: []step{
			{doc("a/v1:Foo a/v2:Foo"), "a/v1:Foo a/v2:Foo"},
			{live("a/v1"), "a/v1-@2 a/v2:Foo"},
			{(*history).resetAll, "a/v1-@2 a/v2:Foo"},
			{doc("a/v1:Foo a/v2:Foo"), "a/v1:Foo a/v2:Foo"},
		}},
		{name: "but not of what was read live after it", steps: []step{
			{doc("a/v1:Foo"), "a/v1:Foo"},
			{(*history).resetAll, "a/v1:Foo"},
			{func(h *history) { h.liveAt("a/v1:Bar", 9, h.Snapshot); h.documentAt("a/v1:Foo", 8) }, "a/v1:Bar@9"},
		}},
	})
	h := newHistory(false, "a/v1:Foo")
	h.resetAll()
	if version, current := h.finds("a", "Foo"); version != "v1" || current {
		t.Errorf("after the reset: %q, current %v", version, current)
	}
	h.document("a/v1:Foo")
	if version, current := h.finds("a", "Foo"); version != "v1" || !current {
		t.Errorf("after the document: %q, current %v", version, current)
	}
}

// A version that the document after a reset no longer has, and whose own path fails, is
// neither served nor absent.
func TestLostVersionIsNotServed(t *testing.T) {
	h := newHistory(false, "a/v1:Foo a/v2:Bar")
	h.resetAll()
	h.document("a/v2:Bar")
	h.live("a/v1!")
	if version, _ := h.finds("a", "Foo"); version != "" {
		t.Errorf("it is served in %s", version)
	}
	if !h.Serves("a", "v1") {
		t.Error("it counts as absent")
	}
	h.live("a/v1:Foo")
	if version, _ := h.finds("a", "Foo"); version != "v1" {
		t.Error("it answers, and is not served")
	}
}

// ResetGroup waits for live reads of the list and of each version, and is settled then.
func TestResetGroupSettles(t *testing.T) {
	for name, test := range map[string]struct {
		then    func(*history)
		pending bool
	}{
		"nothing was read":  {func(*history) {}, true},
		"the document":      {doc("a/v1:Foo a/v2:Foo"), true},
		"one version":       {live("a/v1:Foo"), true},
		"both":              {live("a/v1:Foo a/v2:Foo"), true},
		"all":               {func(h *history) { h.live("a/v1:Foo a/v2:Foo"); h.group("a", "v1", "v2") }, false},
		"one is gone":       {func(h *history) { h.live("a/v1 a/v2:Foo"); h.group("a", "v2") }, false},
		"one fails":         {func(h *history) { h.live("a/v1! a/v2:Foo"); h.group("a", "v1", "v2") }, true},
		"the list adds one": {func(h *history) { h.live("a/v1:Foo a/v2:Foo"); h.group("a", "v1", "v2", "v3") }, true},
	} {
		h := newHistory(false, "a/v1:Foo a/v2:Foo b/v1:Bar")
		h.resetGroup("a")
		if test.then(h); (h.Group("a").reset > 0) != test.pending {
			t.Errorf("%s: pending %v", name, !test.pending)
		}
		if version, current := h.finds("b", "Bar"); version != "v1" || !current {
			t.Errorf("%s: another group is not current", name)
		}
		if err := checkInvariants(h.Snapshot); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	h := newHistory(false, "b/v1:Bar")
	if h.resetGroup("z"); h.Group("z") == nil {
		t.Error("an unknown group does not wait for its reset")
	}
	if h.group("z"); h.Group("z") != nil {
		t.Error("a group that is not there is kept")
	}
}

// A read that began before a reset of the group may land when that is settled. A version
// that nobody knew until then is not current.
func TestReadFromBeforeASettledReset(t *testing.T) {
	h := newHistory(false, "a/v1:Foo")
	began, from := h.tick(), h.Snapshot
	h.resetGroup("a")
	h.live("a/v1:Foo")
	h.group("a", "v1")
	h.liveAt("a/v2:Bar", began, from)
	if version, current := h.finds("a", "Bar"); version != "v2" || current {
		t.Errorf("found in %q, current %v; want it to be read again", version, current)
	}
	h.live("a/v2:Bar")
	if _, current := h.finds("a", "Bar"); !current || h.Group("a").reset > 0 {
		t.Error("it is pending after a later read")
	}
}
