// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func kind(group, name string, versions ...string) Query {
	return KindQuery(schema.GroupKind{Group: group, Kind: name}, versions)
}

func allOf(q Query) Query {
	q.All = true
	return q
}

func resource(group, name string, versions ...string) Query {
	return ResourceQuery(schema.GroupVersionResource{Group: group, Version: strings.Join(versions, ""), Resource: name})
}

// row is one lookup. A row that says nothing of a kind of server does not try it.
type row struct {
	name string
	// known is what the document said when it was read last, and every version live after
	// it where it only lists them. Empty: nothing is known.
	known  string
	then   func(*history) // happened since; may be nil
	server server         // what the lookup finds; what is known, if empty
	query  Query
	// The reads, and what they end in; see history.prove.
	aggregated, legacy, both string
}

func checkRows(t *testing.T, rows []row) {
	t.Helper()
	for _, r := range rows {
		for mode, want := range map[string]string{"aggregated": r.aggregated + r.both, "legacy": r.legacy + r.both} {
			if want == "" {
				continue
			}
			t.Run(strings.ReplaceAll(r.name, " ", "_")+"/"+mode, func(t *testing.T) {
				h := newHistory(mode == "legacy", r.known)
				if h.legacy {
					h.live(r.known)
				}
				if r.then != nil {
					r.then(h)
				}
				on := r.server
				if on.document == "" {
					on.document = r.known
				}
				if got := h.prove(on, r.query); got != want {
					t.Errorf("\n got %s\nwant %s\nknown %s", got, want, h.text())
				}
				if err := checkInvariants(h.Snapshot); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

const abc = "/v1:Pod a/v1:Foo a/v2:Foo b/v1:Bar"

// Nothing was ever read: the document. The very first lookup believes that of an
// aggregated server.
func TestFirstLookupReadsTheDocument(t *testing.T) {
	on := server{document: abc}
	checkRows(t, []row{
		{name: "found", server: on, query: kind("a", "Foo"), aggregated: "document → a/v1", legacy: "document, a/v1, a/v2 → a/v1"},
		{name: "in the core group", server: on, query: kind("", "Pod"), aggregated: "document → /v1", legacy: "document, /v1 → /v1"},
		{name: "in a version", server: on, query: kind("a", "Foo", "v2"), aggregated: "document → a/v2", legacy: "document, a/v2 → a/v2"},
		{name: "no such kind", server: on, query: kind("a", "Baz"), aggregated: "document → no match", legacy: "document, a/v1, a/v2 → no match"},
		{name: "not in the version", server: on, query: kind("a", "Baz", "v1"), aggregated: "document → no match", legacy: "document, a/v1 → no match"},
		{name: "no such version", server: on, query: kind("a", "Foo", "v9"), aggregated: "document → no match", legacy: "document, a/v9 → no match"},
		{name: "no such group", server: on, query: kind("z", "Foo"), both: "document → no match"},
		{name: "no such group, with a version", server: on, query: kind("z", "Foo", "v1"), aggregated: "document → no match", legacy: "document, z/v1 → no match"},
		{name: "any group", server: on, query: resource("", "bars"), aggregated: "document → b/v1", legacy: "document, /v1, a/v1, a/v2, b/v1 → b/v1"},
		{name: "any group, none has it", server: on, query: resource("", "bazs"), aggregated: "document → no match", legacy: "document, /v1, a/v1, a/v2, b/v1 → no match"},
		{name: "a stale version that answers", server: server{document: "a/v1! a/v2:Bar", live: "a/v1:Foo a/v2:Bar"}, query: kind("a", "Foo"), aggregated: "document → failed", legacy: "document, a/v1, a/v2 → a/v1"},
		{name: "a stale version that does not", server: server{document: "a/v1! a/v2:Bar"}, query: kind("a", "Foo", "v1"), aggregated: "document → failed", legacy: "document, a/v1 → failed"},
		{name: "the server does not answer", server: server{document: "!", live: abc}, query: kind("a", "Foo"), both: "document → failed"},
		{name: "the same, with a version", server: server{document: "!", live: abc}, query: kind("a", "Foo", "v1"), both: "document, a/v1 → a/v1"},
		{name: "not the first, which could read a version only", then: live("a/v1:Foo"), server: on, query: kind("a", "Baz", "v1"), both: "document, a/v1 → no match"},
		{name: "after a reset it is not believed", then: (*history).resetAll, server: on, query: kind("a", "Baz", "v1"), both: "document, a/v1 → no match"},
	})
}

// While the first lookup waits in vain for the document, another one's comes that was asked for
// earlier: that proves nothing.
func TestFirstLookupBelievesNoEarlierDocument(t *testing.T) {
	p := Progress{Began: 5, Start: new(Snapshot), Done: map[Read]Outcome{{}: {Tick: 6, Times: 1, Err: errUnread}}}
	for _, q := range []Query{kind("a", "Baz", "v1"), kind("z", "Foo", "v1")} {
		h := newHistory(false, "")
		h.documentAt(abc, 3)
		want := [][]Read{{{Part: PartVersion, Group: q.Group, Version: "v1"}}}
		if diff := cmp.Diff(want, h.Missing(q, p)); diff != "" {
			t.Errorf("reads of %v (-want +got):\n%s", q, diff)
		}
	}
}

// A hit reads nothing.
func TestHitReadsNothing(t *testing.T) {
	checkRows(t, []row{
		{name: "kind", known: abc, query: kind("a", "Foo"), both: "nothing → a/v1"},
		{name: "version", known: abc, query: kind("a", "Foo", "v2"), both: "nothing → a/v2"},
		{name: "resource", known: abc, query: resource("b", "bars"), both: "nothing → b/v1"},
		{name: "any group", known: abc, query: resource("", "bars"), both: "nothing → b/v1"},
		{name: "beside a failure", known: abc, then: func(h *history) { h.live("a/v2!") }, query: kind("a", "Foo"), both: "nothing → a/v1"},
		{name: "beside a version that is gone", known: abc, then: func(h *history) { h.live("a/v1") }, query: kind("a", "Foo"), both: "nothing → a/v2"},
		{name: "other group reset", known: abc, then: func(h *history) { h.resetGroup("b") }, query: kind("a", "Foo"), both: "nothing → a/v1"},
	})
}

// Versions are named: each of these, and nothing else.
func TestNamedVersionsAreRead(t *testing.T) {
	checkRows(t, []row{
		{name: "one", known: abc, query: kind("a", "Baz", "v1"), both: "a/v1 → no match"},
		{name: "two", known: abc, query: kind("a", "Baz", "v2", "v1"), both: "a/v2, a/v1 → no match"},
		{name: "one twice", known: abc, query: kind("a", "Baz", "v1", "v1"), both: "a/v1 → no match"},
		{name: "unknown version", known: abc, query: kind("a", "Foo", "v9"), both: "a/v9 → no match"},
		{name: "unknown group", known: abc, query: kind("z", "Foo", "v1"), both: "z/v1 → no match"},
		{name: "resource", known: abc, query: resource("a", "bazs", "v1"), both: "a/v1 → no match"},
		{name: "has come", known: abc, server: server{live: "a/v1:Foo,Baz"}, query: kind("a", "Baz", "v1"), both: "a/v1 → a/v1"},
		{name: "new version", known: abc, server: server{live: "a/v9:Foo"}, query: kind("a", "Foo", "v9"), both: "a/v9 → a/v9"},
		{name: "new group", known: abc, server: server{live: "z/v1:Foo"}, query: kind("z", "Foo", "v1"), both: "z/v1 → z/v1"},
		{name: "fails", known: abc, server: server{live: "a/v1!"}, query: kind("a", "Baz", "v1"), both: "a/v1 → failed"},
		{name: "another fails", known: abc, then: func(h *history) { h.live("a/v2!") }, query: kind("a", "Baz", "v1"), both: "a/v1 → no match"},
		{name: "gone, and comes back", known: abc, then: func(h *history) { h.live("a/v1") }, query: kind("a", "Foo", "v1"), both: "a/v1 → a/v1"},
	})
}

// No version, a group that is known: every known version; then, unless one of them was
// gone, the list, and the versions that only the list has.
func TestKnownGroupIsReadLive(t *testing.T) {
	checkRows(t, []row{
		{name: "absent", known: abc, query: kind("a", "Baz"), both: "a/v1, a/v2, a/ → no match"},
		{name: "in the core group", known: abc, query: kind("", "Baz"), both: "/v1, / → no match"},
		{name: "has come", known: abc, server: server{live: "a/v1:Foo a/v2:Foo,Baz"}, query: kind("a", "Baz"), both: "a/v1, a/v2 → a/v2"},
		{name: "in a version that only the list has", known: abc, server: server{live: "a/v1:Foo a/v2:Foo a/v3:Baz"}, query: kind("a", "Baz"), both: "a/v1, a/v2, a/, a/v3 → a/v3"},
		{name: "not in that version either", known: abc, server: server{live: "a/v1:Foo a/v2:Foo a/v3:Foo"}, query: kind("a", "Baz"), both: "a/v1, a/v2, a/, a/v3 → no match"},
		{name: "a version is gone", known: abc, server: server{live: "a/v2:Foo"}, query: kind("a", "Baz"), both: "a/v1, a/v2 → no match yet"},
		{name: "the group is gone", known: abc, server: server{live: "b/v1:Bar"}, query: kind("a", "Baz"), both: "a/v1, a/v2 → no match yet"},
		{name: "a version fails", known: abc, server: server{live: "a/v1! a/v2:Foo"}, query: kind("a", "Baz"), both: "a/v1, a/v2, a/ → failed"},
		{name: "a version fails, another has it", known: abc, server: server{live: "a/v1! a/v2:Baz"}, query: kind("a", "Baz"), both: "a/v1, a/v2 → a/v2"},
		{name: "the list fails", known: abc, server: server{live: abc, noLists: true}, query: kind("a", "Baz"), both: "a/v1, a/v2, a/ → failed"},
		{name: "the list no longer has the group", known: abc, then: func(h *history) { h.group("a") }, query: kind("a", "Baz"), both: "a/v1, a/v2, a/ → no match"},
		{name: "one was found gone before", known: abc, then: func(h *history) { h.live("a/v1") }, query: kind("a", "Baz"), both: "a/v2, a/, a/v1 → no match"},
	})
}

// If something that the group still serves changed while a lookup read it, the reads are
// made once more, at most three times: a kind that moves between versions is found.
func TestKindThatMovesIsFound(t *testing.T) {
	const known = "a/v1:Baz a/v2:Foo"
	moves := map[string]string{"a/v1": "a/v1:Qux,New a/v2:"}
	checkRows(t, []row{
		{name: "moved to one that was read", known: known, server: server{live: "a/v1:Baz a/v2:New", then: moves}, query: kind("a", "New"), both: "a/v1, a/v2, a/v1 → a/v1"},
		{name: "the same, named", known: known, server: server{live: "a/v1:Baz a/v2:New", then: moves}, query: kind("a", "New", "v1", "v2"), both: "a/v1, a/v2, a/v1 → a/v1"},
		{name: "the only version changed", known: "a/v1:Foo", server: server{live: "a/v1:Qux"}, query: kind("a", "New"), both: "a/v1, a/v1, a/ → no match"},
		{name: "the only version is named", known: "a/v1:Foo", server: server{live: "a/v1:Qux"}, query: kind("a", "New", "v1"), both: "a/v1 → no match"},
		{name: "only changed", known: known, server: server{live: "a/v1:Baz a/v2:Qux"}, query: kind("a", "New"), both: "a/v1, a/v2, a/v1, a/v2, a/ → no match"},
	})
}

// A group that changes with every read is read three times, and no more.
func TestGroupThatKeepsChangingIsReadThreeTimes(t *testing.T) {
	h := newHistory(false, "a/v1:Foo0 a/v2:Foo0")
	p := server{live: "a/v1:Foo0 a/v2:Foo0"}
	for _, q := range []Query{kind("a", "Baz"), kind("a", "Baz", "v1", "v2")} {
		next := 0
		p.changes = func() string { next++; return fmt.Sprintf("a/v1:Foo%d a/v2:Foo%d", next, next) }
		if got := strings.Count(h.prove(p, q), "a/v1"); got != mostTimes {
			t.Errorf("%q: %d reads of v1", q.Versions, got)
		}
	}
}

// R3: a list that the first document after a reset has overtaken is read again, three times at
// most. That document may lack a version that the list had.
func TestListThatADocumentOvertookIsReadAgain(t *testing.T) {
	h := newHistory(false, "a/v1:Foo")
	list := Read{Part: PartList, Group: "a"}
	p := Progress{Began: h.now, Start: h.Snapshot, Done: map[Read]Outcome{}}
	for times := 1; times <= mostTimes; times++ {
		from, began := h.Snapshot, h.tick()
		h.resetAll()
		h.document("a/v1:Foo")
		h.Snapshot = h.WithList("a", []string{"v2", "v1"}, "v2", nil, began, from)
		p.Note(list, Outcome{Tick: began, Times: times, From: from})
		reads := h.AsOf(p.Began).Missing(kind("a", "New"), p)
		if again := slices.Contains(slices.Concat(reads...), list); again != (times < mostTimes) {
			t.Errorf("read %d times, and again: %v; all of %v", times, again, reads)
		}
	}
}

// R3: a version that news has overtaken since it was read is read again, also if the document
// says by now what it said then.
func TestVersionThatNewsOvertookIsReadAgain(t *testing.T) {
	h := newHistory(false, "a/v1:Foo a/v2:Foo")
	read := Read{Part: PartVersion, Group: "a", Version: "v1"}
	p := Progress{Began: h.now, Start: h.Snapshot}
	from, began := h.Snapshot, h.tick()
	h.liveAt("a/v1:Foo,New", began, from)
	p.Done = map[Read]Outcome{read: {Tick: began, Times: 1, From: from}}
	h.document("a/v1:Foo,New a/v2:Foo")
	h.document("a/v1:Foo a/v2:Foo")
	if reads := h.AsOf(p.Began).Missing(kind("a", "New"), p); !slices.Contains(slices.Concat(reads...), read) {
		t.Errorf("left to read: %v", reads)
	}
}

// No version, and a group that is not known: the document; if the group is there now, its
// versions and list.
func TestUnknownGroupIsLookedForInTheDocument(t *testing.T) {
	has := func(word string) server { return server{document: abc + " " + word} }
	checkRows(t, []row{
		{name: "absent", known: abc, query: kind("z", "Foo"), both: "document → no match"},
		{name: "has come", known: abc, server: has("z/v1:Foo"), query: kind("z", "Foo"), aggregated: "document → z/v1", legacy: "document, z/v1 → z/v1"},
		{name: "has come without the kind", known: abc, server: has("z/v1:Bar"), query: kind("z", "Foo"), both: "document, z/v1, z/ → no match"},
		{name: "fails", known: abc, server: server{document: "!", live: abc}, query: kind("z", "Foo"), both: "document → failed"},
	})
}

// Many groups: the document; then those groups that differ from it. On a legacy server all.
func TestManyGroupsAreReadWhereTheyDiffer(t *testing.T) {
	all := "document, /v1, a/v1, a/v2, b/v1"
	differs := func(h *history) { h.live("a/v1:Foo,Qux") }
	checkRows(t, []row{
		{name: "absent", known: abc, query: resource("", "bazs"), aggregated: "document → no match", legacy: all + " → no match"},
		{name: "has come", known: abc, server: server{document: abc + ",Baz"}, query: resource("", "bazs"), aggregated: "document → b/v1", legacy: all + " → b/v1"},
		{name: "a group differs", known: abc, then: differs, server: server{document: abc, live: "/v1:Pod a/v1:Foo,Qux a/v2:Foo b/v1:Bar"}, query: resource("", "bazs"), aggregated: "document, a/v1, a/v2, a/ → no match"},
		{name: "a group differs and has it", known: abc, then: differs, server: server{document: abc, live: "/v1:Pod a/v1:Foo,Qux a/v2:Baz b/v1:Bar"}, query: resource("", "bazs"), aggregated: "document, a/v1, a/v2 → a/v2"},
		{name: "a dropped group", known: abc, server: server{document: "/v1:Pod a/v1:Foo a/v2:Foo", live: abc}, query: resource("", "bazs"), aggregated: "document, b/v1, b/ → no match"},
		{name: "a stale version", known: abc, server: server{document: "/v1:Pod a/v1:Foo a/v2! b/v1:Bar"}, query: resource("", "bazs"), aggregated: "document, a/v1, a/v2, a/ → failed"},
		{name: "named version", known: abc, query: resource("", "bazs", "v1"), aggregated: "document → no match", legacy: "document, /v1, a/v1, b/v1 → no match"},
		{name: "the beginning of names", known: "a/v1:Foo a.b/v1:Foo b/v1:Bar", query: resource("a", "bars"), aggregated: "document, a/v1, a/ → no match", legacy: "document, a/v1, a/, a.b/v1 → no match"},
		{name: "only the beginning", known: "a.b/v1:Foo b/v1:Bar", query: resource("a", "bars"), aggregated: "document → no match", legacy: "document, a.b/v1 → no match"},
		{name: "the server does not answer", known: abc, server: server{document: "!", live: abc}, query: resource("", "bazs"), both: "document → failed"},
	})
}

// Found, but a version of the group was never tried, on a legacy server.
func TestFoundBesideUntriedVersions(t *testing.T) {
	then := func(words string) func(h *history) { return func(h *history) { h.document(abc); h.live(words) } }
	checkRows(t, []row{
		{name: "a better version was never tried", then: then("a/v2:Foo"), server: server{document: abc}, query: kind("a", "Foo"), legacy: "a/v1 → a/v1"},
		{name: "a worse version was never tried", then: then("a/v1:Foo"), server: server{document: abc}, query: kind("a", "Foo"), legacy: "a/v2 → a/v1"},
		{name: "it fails", then: then("a/v1:Foo"), server: server{document: abc, live: "a/v1:Foo a/v2!"}, query: kind("a", "Foo"), legacy: "a/v2 → a/v1"},
		{name: "it was tried in vain", then: then("a/v1:Foo a/v2!"), server: server{document: abc}, query: kind("a", "Foo"), legacy: "nothing → a/v1"},
		{name: "another is named", then: then("a/v1:Foo"), server: server{document: abc}, query: kind("a", "Foo", "v1"), legacy: "nothing → a/v1"},
		{name: "both are named", then: then("a/v1:Foo"), server: server{document: abc}, query: kind("a", "Foo", "v1", "v2"), legacy: "a/v2 → a/v1"},
		{name: "an earlier one is named, too", then: then("a/v1:Foo"), server: server{document: abc}, query: kind("a", "Foo", "v2", "v1"), legacy: "a/v2 → a/v2"},
		{name: "the list was never read", then: func(h *history) { h.live("a/v1:Foo"); h.document("b/v1:Bar") }, server: server{document: "b/v1:Bar", live: "a/v1:Foo"}, query: kind("a", "Foo"), aggregated: "a/ → a/v1"},
	})
}

// A reset: the document first, because the facts come from it. No lookup is weaker.
func TestLookupAfterReset(t *testing.T) {
	reset := (*history).resetAll
	dead := server{document: "!", live: "a/v1! a/v2! b/v1!"}
	checkRows(t, []row{
		{name: "found", known: abc, then: reset, query: kind("a", "Foo"), aggregated: "document → a/v1", legacy: "document, a/v1 → a/v1"},
		{name: "found in a version", known: abc, then: reset, query: kind("a", "Foo", "v2"), aggregated: "document → a/v2", legacy: "document, a/v2 → a/v2"},
		{name: "found in any group", known: abc, then: reset, query: resource("", "bars"), aggregated: "document → b/v1", legacy: "document, /v1, a/v1, a/v2, b/v1 → b/v1"},
		{name: "beside a stale version", known: "a/v1:Foo a/v2!", then: reset, query: allOf(kind("a", "Foo")), aggregated: "document → a/v1"},
		{name: "miss with a version", known: abc, then: reset, query: kind("a", "Baz", "v1"), both: "document, a/v1 → no match"},
		{name: "miss in a known group", known: abc, then: reset, query: kind("a", "Baz"), both: "document, a/v1, a/v2, a/ → no match"},
		{name: "miss in an unknown group", known: abc, then: reset, query: kind("z", "Baz"), both: "document → no match"},
		{name: "gone from the document and live", known: abc, then: reset, server: server{document: "/v1:Pod a/v2:Foo b/v1:Bar"}, query: kind("a", "Foo", "v1"), both: "document, a/v1 → no match"},
		{name: "gone from the document, served live", known: abc, then: reset, server: server{document: "/v1:Pod a/v2:Bar b/v1:Bar", live: abc}, query: kind("a", "Foo", "v1"), both: "document, a/v1 → a/v1"},
		{name: "gone from the document, live fails", known: abc, then: reset, server: server{document: "/v1:Pod a/v2:Bar b/v1:Bar", live: "a/v1! a/v2:Bar"}, query: kind("a", "Foo", "v1"), both: "document, a/v1 → failed"},
		{name: "the same in a group that went", known: abc, then: reset, server: server{document: "b/v1:Bar", live: "a/v1! a/v2! b/v1:Bar"}, query: kind("a", "Foo", "v1"), both: "document, a/v1 → failed"},
		{name: "read live, then reset", known: abc, then: func(h *history) { h.live("a/v1:Foo,New"); h.resetAll() }, query: kind("a", "New", "v1"), both: "document, a/v1 → no match"},
		{name: "the server does not answer", known: abc, then: reset, server: dead, query: kind("a", "Foo"), both: "document → a/v1"},
		{name: "the server does not answer, with a version", known: abc, then: reset, server: dead, query: kind("a", "Foo", "v1"), both: "document, a/v1 → a/v1"},
		{name: "only the version answers", known: abc, then: reset, server: server{document: "!", live: "a/v1:Foo"}, query: kind("a", "Baz", "v1"), both: "document, a/v1 → no match"},
		{name: "a version failed since", known: abc, then: func(h *history) {
			h.resetAll()
			h.document(abc)
			h.live("a/v1! a/v2:Foo")
		}, server: server{document: abc, live: "a/v1! a/v2:Foo"}, query: allOf(kind("a", "Foo")), legacy: "a/v1 → a/v1", aggregated: "nothing → a/v1"},
		{name: "a version that never had it failed since", known: "a/v1:Foo a/v2:Bar", then: func(h *history) {
			h.resetAll()
			h.document("a/v1:Foo a/v2:Bar")
			h.live("a/v1:Foo a/v2!")
		}, server: server{document: "a/v1:Foo a/v2:Bar"}, query: allOf(kind("a", "Foo")), legacy: "nothing → a/v1"},
		{name: "a version failed before", then: func(h *history) {
			h.document(abc)
			h.live("a/v1:Foo a/v2!")
			h.resetAll()
			h.document(abc)
		}, server: server{document: abc}, query: allOf(kind("a", "Foo")), legacy: "a/v1, a/v2 → a/v1"},
		{name: "best of two groups", known: "/v1:Pod a/v1:Foo b/v1:Foo", then: reset, query: resource("", "foos"), legacy: "document, /v1, a/v1 → a/v1"},
		{name: "best in many groups", known: abc, then: reset, query: resource("", "foos"), aggregated: "document → a/v1", legacy: "document, /v1, a/v1, a/v2 → a/v1"},
		{name: "each known group was read since", known: "b/v1:Bar", then: func(h *history) {
			h.resetAll()
			h.live("b/v1:Bar")
			h.group("b", "v1")
		}, server: server{document: "a/v1:Bar b/v1:Bar"}, query: resource("", "bars"), aggregated: "document → a/v1", legacy: "document, a/v1 → a/v1"},
		{name: "of all, then of a group", known: abc, then: func(h *history) { h.resetAll(); h.resetGroup("a") }, query: kind("a", "Foo", "v1"), both: "document, a/v1 → a/v1"},
	})
}

// ResetGroup: live reads of the group, and nothing of the others.
func TestLookupAfterResetGroup(t *testing.T) {
	reset := func(group string) func(*history) { return func(h *history) { h.resetGroup(group) } }
	down := server{document: abc, live: "a/v1! a/v2! b/v1:Bar", noLists: true}
	checkRows(t, []row{
		{name: "found in a version", known: abc, then: reset("a"), query: kind("a", "Foo", "v1"), both: "a/v1 → a/v1"},
		{name: "found", known: abc, then: reset("a"), query: kind("a", "Foo"), both: "a/v1, a/ → a/v1"},
		{name: "moved to a new version", known: abc, then: reset("a"), server: server{document: abc, live: "a/v1: a/v2: a/v3:Foo"}, query: kind("a", "Foo"), both: "a/v1, a/v2, a/v1, a/v2, a/, a/v3 → a/v3"},
		{name: "miss", known: abc, then: reset("a"), query: kind("a", "Baz"), both: "a/v1, a/v2, a/ → no match"},
		{name: "miss with a version", known: abc, then: reset("a"), query: kind("a", "Baz", "v1"), both: "a/v1 → no match"},
		{name: "an earlier version is named that was not known", known: abc, then: func(h *history) { h.resetGroup("a"); h.live("a/v1:Foo") }, server: server{live: abc + " a/v9:Foo"}, query: kind("a", "Foo", "v9", "v1"), both: "a/, a/v9 → a/v9"},
		{name: "the group is down", known: abc, then: reset("a"), server: down, query: kind("a", "Foo"), both: "a/v1, a/v2, a/ → a/v1"},
		{name: "unknown group", known: abc, then: reset("z"), query: kind("z", "Foo"), both: "z/, document → no match"},
		{name: "unknown group that has come", known: abc, then: reset("z"), server: server{document: abc, live: abc + " z/v1:Foo"}, query: kind("z", "Foo"), both: "z/, z/v1 → z/v1"},
		{name: "any group", known: abc, then: reset("b"), query: resource("", "bars"), aggregated: "b/v1, b/ → b/v1"},
		{name: "any group, tried in vain", known: abc, then: func(h *history) {
			h.resetGroup("b")
			h.live("b/v1!")
			h.Snapshot = h.WithList("b", nil, "", errUnread, h.tick(), h.Snapshot)
		}, query: resource("", "foos"), both: "nothing → a/v1"},
		{name: "miss in any group, an unknown one tried in vain", known: abc, then: func(h *history) {
			h.resetGroup("z")
			h.Snapshot = h.WithList("z", nil, "", errUnread, h.tick(), h.Snapshot)
		}, query: resource("", "bazs"), aggregated: "document → no match", legacy: "document, /v1, a/v1, a/v2, b/v1 → no match"},
		{name: "any group, another that is down", known: abc, then: func(h *history) {
			h.resetGroup("b")
			h.live("b/v1!")
			h.Snapshot = h.WithList("b", nil, "", errUnread, h.tick(), h.Snapshot)
		}, query: resource("", "pods"), both: "nothing → /v1"},
	})
}

// A reset that comes after a lookup began does not take its own reads away from it.
func TestLaterResetsLeaveALookupItsReads(t *testing.T) {
	h := newHistory(false, abc)
	began := h.now
	h.document(abc)
	h.live("a/v1:Foo,New a/v2:Foo")
	h.group("a", "v1", "v2")
	h.resetAll()
	h.resetGroup("a")
	if version, current := h.AsOf(began).finds("a", "New"); version != "v1" || !current {
		t.Errorf("as of the beginning: %q, current %v", version, current)
	}
	if version, current := h.AsOf(h.now).finds("a", "New"); version != "v1" || current {
		t.Errorf("as of now: %q, current %v", version, current)
	}
}
