// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The queries of the table.
func kind(group, name string, versions ...string) Query {
	return Query{Group: group, Versions: versions, Name: name}
}

func resource(group, name string, versions ...string) Query {
	return ResourceQuery(schema.GroupVersionResource{Group: group, Version: strings.Join(versions, ""), Resource: name})
}

// row is one lookup. A row that says nothing of a kind of server does not try it.
type row struct {
	name string
	// known is what the document said when it was read last, and every version live
	// after it where it only lists them. Empty: nothing is known.
	known string
	then  func(*history) // happened since; may be nil
	// server is what the lookup finds; what is known, if empty.
	server server
	query  Query
	// The reads, round by round, and what they end in. A round's reads are
	//
	//	document  /api and /apis
	//	/apis     that half of it
	//	a/        the list of a group's versions, /apis/a
	//	a/v1      what a version serves, /apis/a/v1
	//
	// The number is that of the requests.
	aggregated, legacy string
}

// check makes the lookup of a row on both kinds of server.
func (r row) check(t *testing.T) {
	for name, want := range map[string]string{"aggregated": r.aggregated, "legacy": r.legacy} {
		if want == "" {
			continue
		}
		h := newHistory(name == "legacy", r.known)
		if h.legacy {
			h.live(r.known)
		}
		if r.then != nil {
			r.then(h)
		}
		if r.server.document == "" {
			r.server.document = r.known
		}
		if got := h.prove(r.server, r.query); got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
		if err := checkInvariants(h.Snapshot); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func checkRows(t *testing.T, rows []row) {
	for _, r := range rows {
		t.Run(strings.ReplaceAll(r.name, " ", "_"), func(t *testing.T) { r.check(t) })
	}
}

// TestFirstLookup: the very first lookup believes the document. It reads versions that
// the document only lists.
func TestFirstLookup(t *testing.T) {
	on := server{document: "/v1:Pod a/v1:Foo a/v2:Foo b/v1:Bar"}
	checkRows(t, []row{
		{name: "found", server: on, query: kind("a", "Foo"), aggregated: "document → a/v1 (2)", legacy: "document; a/v1 a/v2 → a/v1 (4)"},
		{name: "in the core group", server: on, query: kind("", "Pod"), aggregated: "document → /v1 (2)", legacy: "document; /v1 → /v1 (3)"},
		{name: "in a version", server: on, query: kind("a", "Foo", "v2"), aggregated: "document → a/v2 (2)", legacy: "document; a/v2 → a/v2 (3)"},
		{name: "no such kind", server: on, query: kind("a", "Bar"), aggregated: "document → no match (2)", legacy: "document; a/v1 a/v2 → no match (4)"},
		{name: "not in the version", server: on, query: kind("a", "Bar", "v1"), aggregated: "document → no match (2)", legacy: "document; a/v1 → no match (3)"},
		{name: "no such version", server: on, query: kind("a", "Foo", "v9"), aggregated: "document → no match (2)", legacy: "document; a/v9 → no match (3)"},
		{name: "no such group", server: on, query: kind("z", "Foo"), aggregated: "document → no match (2)", legacy: "document → no match (2)"},
		{name: "no such group, with a version", server: on, query: kind("z", "Foo", "v1"), aggregated: "document → no match (2)", legacy: "document; z/v1 → no match (3)"},
		{name: "any group", server: on, query: resource("", "bars"), aggregated: "document → b/v1 (2)", legacy: "document; /v1 a/v1 a/v2 b/v1 → b/v1 (6)"},
		{name: "any group, no such resource", server: on, query: resource("", "bazs"), aggregated: "document → no match (2)", legacy: "document; /v1 a/v1 a/v2 b/v1 → no match (6)"},
		{
			name: "the document is behind", server: server{document: "a/v1:", live: "a/v1:Foo"}, query: kind("a", "Foo"),
			aggregated: "document → no match (2)", legacy: "document; a/v1 → a/v1 (3)",
		},
		{
			name: "a stale version that answers", server: server{document: "a/v1! a/v2:Bar", live: "a/v1:Foo a/v2:Bar"}, query: kind("a", "Foo"),
			aggregated: "document; a/v1 → a/v1 (3)", legacy: "document; a/v1 a/v2 → a/v1 (4)",
		},
		{
			name: "a stale version that does not", server: server{document: "a/v1! a/v2:Bar"}, query: kind("a", "Foo"),
			aggregated: "document; a/v1 → failed (3)", legacy: "document; a/v1 a/v2 → failed (4)",
		},
		{
			name: "a stale version of another group", server: server{document: "a/v1:Foo b/v1!"}, query: kind("a", "Foo"),
			aggregated: "document → a/v1 (2)", legacy: "document; a/v1 → a/v1 (3)",
		},
		{
			name: "a version was read live before, and has changed since", then: func(h *history) { h.live("a/v1:Bar") }, server: on, query: kind("a", "Foo", "v1"),
			aggregated: "document; a/v1 → a/v1 (3)", legacy: "document; a/v1 → a/v1 (3)",
		},
		{
			name: "the same, without a version", then: func(h *history) { h.live("a/v1:Bar") }, server: server{document: "a/v1:Foo"}, query: kind("a", "Foo"),
			aggregated: "document; a/v1 → a/v1 (3)", legacy: "document; a/v1 → a/v1 (3)",
		},
		{
			name: "after a reset it is not believed", then: func(h *history) { h.resetAll() }, server: on, query: kind("a", "Bar", "v1"),
			aggregated: "document; a/v1 → no match (3)", legacy: "document; a/v1 → no match (3)",
		},
	})
}

// TestHits cost nothing.
func TestHits(t *testing.T) {
	const known = "/v1:Pod a/v1:Foo a/v2:Foo,Bar b/v1:Bar"
	checkRows(t, []row{
		{name: "kind", known: known, query: kind("a", "Foo"), aggregated: "nothing → a/v1 (0)", legacy: "nothing → a/v1 (0)"},
		{name: "in a later version", known: known, query: kind("a", "Bar"), aggregated: "nothing → a/v2 (0)", legacy: "nothing → a/v2 (0)"},
		{name: "in a version", known: known, query: kind("a", "Foo", "v2"), aggregated: "nothing → a/v2 (0)", legacy: "nothing → a/v2 (0)"},
		{name: "any group", known: known, query: resource("", "bars"), aggregated: "nothing → a/v2 (0)", legacy: "nothing → a/v2 (0)"},
		{
			name: "a stale version keeps what it had", known: "a/v1:Foo", then: func(h *history) { h.document("a/v1!") },
			query: kind("a", "Foo"), aggregated: "nothing → a/v1 (0)", legacy: "nothing → a/v1 (0)",
		},
		{
			name: "a group that the document has dropped", known: known, then: func(h *history) { h.document("/v1:Pod a/v1:Foo a/v2:Foo,Bar") },
			query: kind("b", "Bar"), aggregated: "nothing → b/v1 (0)", legacy: "nothing → b/v1 (0)",
		},
		{
			name: "any group, another has failed", known: "a/v1:Foo b/v1:Bar", then: func(h *history) { h.document("a/v1:Foo b/v1!"); h.fails("b/v1") },
			query: resource("", "foos"), aggregated: "nothing → a/v1 (0)", legacy: "nothing → a/v1 (0)",
		},
	})
}

// TestMissWithVersion: it ends at the version itself, read live.
func TestMissWithVersion(t *testing.T) {
	const known = "a/v1:Foo a/v2:Foo"
	checkRows(t, []row{
		{name: "not there", known: known, query: kind("a", "Bar", "v1"), aggregated: "a/v1 → no match (1)", legacy: "a/v1 → no match (1)"},
		{name: "by resource", known: known, query: resource("a", "bars", "v1"), aggregated: "a/v1 → no match (1)", legacy: "a/v1 → no match (1)"},
		{name: "several", known: known, query: kind("a", "Bar", "v2", "v1"), aggregated: "a/v2 a/v1 → no match (2)", legacy: "a/v2 a/v1 → no match (2)"},
		{name: "no such version", known: known, query: kind("a", "Foo", "v9"), aggregated: "a/v9 → no match (1)", legacy: "a/v9 → no match (1)"},
		{name: "no such group", known: known, query: kind("z", "Foo", "v1"), aggregated: "z/v1 → no match (1)", legacy: "z/v1 → no match (1)"},
		{
			name: "a kind has come", known: known, server: server{document: known, live: "a/v1:Foo,Bar a/v2:Foo"}, query: kind("a", "Bar", "v1"),
			aggregated: "a/v1 → a/v1 (1)", legacy: "a/v1 → a/v1 (1)",
		},
		{
			name: "a version has come", known: known, server: server{document: known, live: known + " a/v3:Bar"}, query: kind("a", "Bar", "v3"),
			aggregated: "a/v3 → a/v3 (1)", legacy: "a/v3 → a/v3 (1)",
		},
		{
			name: "a group has come", known: known, server: server{document: known, live: known + " z/v1:Bar"}, query: kind("z", "Bar", "v1"),
			aggregated: "z/v1 → z/v1 (1)", legacy: "z/v1 → z/v1 (1)",
		},
		{
			name: "several, and the document has it: it may move just now", known: known, then: func(h *history) { h.live("a/v1: a/v2:") },
			server: server{document: known, live: "a/v1: a/v2:"}, query: kind("a", "Foo", "v1", "v2"),
			aggregated: "a/v1 a/v2; /apis; a/v1 a/v2; a/v1 a/v2 → no match (7)", legacy: "a/v1 a/v2 → no match (2)",
		},
		{
			name: "several, and the document had it", known: known, then: func(h *history) { h.live("a/v1: a/v2:") },
			server: server{document: "a/v1: a/v2:"}, query: kind("a", "Foo", "v1", "v2"),
			aggregated: "a/v1 a/v2; /apis → no match (3)", legacy: "a/v1 a/v2 → no match (2)",
		},
		{
			name: "it does not answer", known: known, server: server{document: known, live: "a/v1!"}, query: kind("a", "Bar", "v1"),
			aggregated: "a/v1 → failed (1)", legacy: "a/v1 → failed (1)",
		},
	})
}

// TestMissWithoutVersion: in a known group, only a live read proves that something is
// absent.
func TestMissWithoutVersion(t *testing.T) {
	const known = "/v1:Pod a/v1:Foo a/v2:Foo"
	checkRows(t, []row{
		{name: "group unknown", known: known, query: kind("z", "Foo"), aggregated: "document → no match (2)", legacy: "document → no match (2)"},
		{
			name: "a group has come", known: known, server: server{document: known + " z/v1:Foo"}, query: kind("z", "Foo"),
			aggregated: "document → z/v1 (2)", legacy: "document; z/v1 → z/v1 (3)",
		},
		{name: "group known", known: known, query: kind("a", "Bar"), aggregated: "/apis; a/; a/v1 a/v2 → no match (4)", legacy: "a/v1 a/v2; a/ → no match (3)"},
		{name: "core group", known: known, query: kind("", "Foo"), aggregated: "/api; /; /v1 → no match (3)", legacy: "/v1; / → no match (2)"},
		{
			name: "the document has it", known: known, server: server{document: "/v1:Pod a/v1:Foo a/v2:Foo,Bar"}, query: kind("a", "Bar"),
			aggregated: "/apis → a/v2 (1)", legacy: "a/v1 a/v2 → a/v2 (2)",
		},
		{
			name: "the document has a new version", known: known, server: server{document: known + " a/v3:Bar"}, query: kind("a", "Bar"),
			aggregated: "/apis → a/v3 (1)", legacy: "a/v1 a/v2; a/; a/v3 → a/v3 (4)",
		},
		{
			name: "the document is behind", known: known, server: server{document: known, live: "/v1:Pod a/v1:Foo a/v2:Foo,Bar"}, query: kind("a", "Bar"),
			aggregated: "/apis; a/; a/v1 a/v2 → a/v2 (4)", legacy: "a/v1 a/v2 → a/v2 (2)",
		},
		{
			name: "and the version is new", known: known, server: server{document: known, live: "/v1:Pod a/v1:Foo a/v2:Foo a/v3:Bar"}, query: kind("a", "Bar"),
			aggregated: "/apis; a/; a/v1 a/v2 a/v3 → a/v3 (5)", legacy: "a/v1 a/v2; a/; a/v3 → a/v3 (4)",
		},
		{
			name: "a version does not answer", known: known, server: server{document: known, live: "/v1:Pod a/v1:Foo a/v2!"}, query: kind("a", "Bar"),
			aggregated: "/apis; a/; a/v1 a/v2 → failed (4)", legacy: "a/v1 a/v2; a/ → failed (3)",
		},
		{
			name: "the list does not answer", known: known, server: server{document: known, noLists: true}, query: kind("a", "Bar"),
			aggregated: "/apis; a/; a/v1 a/v2 → failed (4)", legacy: "a/v1 a/v2; a/ → failed (3)",
		},
		{
			name: "a stale version keeps what it had", known: known, then: func(h *history) { h.document("/v1:Pod a/v1! a/v2:Foo") },
			server: server{document: "/v1:Pod a/v1! a/v2:Foo"}, query: kind("a", "Bar"),
			aggregated: "/apis; a/; a/v1 a/v2 → failed (4)", legacy: "a/v1 a/v2; a/ → failed (3)",
		},
	})
}

// TestMissInManyGroups: a lookup that names no group reads the document, and so all
// groups.
func TestMissInManyGroups(t *testing.T) {
	const known = "a/v1:Foo a.example/v1:Foo b/v1:Foo"
	checkRows(t, []row{
		{name: "any group", known: known, query: resource("", "bars"), aggregated: "document → no match (2)", legacy: "document; a/v1 a.example/v1 b/v1 → no match (5)"},
		{name: "any group, with a version", known: known, query: resource("", "bars", "v1"), aggregated: "document → no match (2)", legacy: "document; a/v1 a.example/v1 b/v1 → no match (5)"},
		{
			name: "a group has come", known: known, server: server{document: known + " z/v1:Bar"}, query: resource("", "bars"),
			aggregated: "document → z/v1 (2)", legacy: "document; a/v1 a.example/v1 b/v1 z/v1 → z/v1 (6)",
		},
		{
			name: "a version has failed for long", known: known, then: func(h *history) { h.document("a/v1:Foo a.example/v1:Foo b/v1!"); h.fails("b/v1") },
			server: server{document: "a/v1:Foo a.example/v1:Foo b/v1!"}, query: resource("", "bars"),
			aggregated: "document → failed (2)", legacy: "document; a/v1 a.example/v1 b/v1 → failed (5)",
		},
		{name: "beginning of a name, group known", known: known, query: resource("a", "bars"), aggregated: "/apis; a/; a/v1 → no match (3)", legacy: "/apis; a/v1 a.example/v1; a/ → no match (4)"},
		{name: "beginning of a name, group unknown", known: known, query: resource("a.ex", "bars"), aggregated: "document → no match (2)", legacy: "document; a.example/v1 → no match (3)"},
		{
			name: "a group that begins like a known one", known: known, server: server{document: known + " a.new/v1:Bar"}, query: resource("a", "bars"),
			aggregated: "/apis → a.new/v1 (1)", legacy: "/apis; a/v1 a.example/v1 a.new/v1 → a.new/v1 (4)",
		},
	})
}
