// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"testing"
)

// TestLostVersions: where the lookup itself finds that a version went, the rest of
// the group is let be. Upstream's test of requests allows two for it.
func TestLostVersions(t *testing.T) {
	const known = "a/v1:Foo a/v2:Bar"
	checkRows(t, []row{
		{
			name: "one of two", known: known, server: server{document: "a/v1:Foo"}, query: kind("a", "Baz"),
			aggregated: "/apis; a/v2 → no match (2)", legacy: "a/v1 a/v2 → no match (2)",
		},
		{
			name: "one of three", known: known + " a/v3:Bar", server: server{document: known}, query: kind("a", "Baz"),
			aggregated: "/apis; a/v3; a/; a/v1 a/v2 → no match (5)", legacy: "a/v1 a/v2 a/v3 → no match (3)",
		},
		{
			name: "after a reset", known: known, then: func(h *history) { h.resetAll() }, server: server{document: "a/v1:Foo"}, query: kind("a", "Bar"),
			aggregated: "document; a/v2 → no match (3)", legacy: "document; a/v1 a/v2 → no match (4)",
		},
		{
			name: "the document is ahead of what is live", known: known, server: server{document: "a/v1:Foo", live: "a/v1:Foo a/v2:Bar,Baz"}, query: kind("a", "Baz"),
			aggregated: "/apis; a/v2 → a/v2 (2)", legacy: "a/v1 a/v2 → a/v2 (2)",
		},
		{
			name: "and another group is in dispute", known: known + " a.x/v1:Baz", then: func(h *history) { h.live("a.x/v1:Foo") },
			server: server{document: "a/v1:Foo a.x/v1:Baz", live: "a/v1:Foo a.x/v1:Foo"}, query: resource("a", "bazs"),
			aggregated: "/apis; a.x/v1; a/v2; a.x/; a.x/ a.x/v1; a.x/ a.x/v1 → no match (8)",
		},
		{
			name: "of another group", known: "a/v1:Foo a.x/v1:Foo a.x/v2:Foo", server: server{document: "a/v1:Foo a.x/v1:Foo a.x/v2:Foo", live: "a/v1:Foo a.x/v1:Foo"},
			query: resource("a", "bazs"), aggregated: "/apis; a/; a/v1 → no match (3)", legacy: "/apis; a/v1 a.x/v1 a.x/v2; a/ → no match (5)",
		},
		{
			name: "lost in an earlier read", known: known, then: func(h *history) { h.document("a/v1:Foo") }, server: server{document: "a/v1:Foo"}, query: kind("a", "Baz"),
			aggregated: "/apis; a/; a/v1 → no match (3)", legacy: "a/v1 a/v2 → no match (2)",
		},
	})
}

// TestDisputes: the document and what was read live disagree.
func TestDisputes(t *testing.T) {
	const known = "a/v1:Foo a/v2:Bar"
	checkRows(t, []row{
		{
			name: "a version that no list has: where does it belong", known: known, then: func(h *history) { h.live("a/v3:Baz") },
			query: kind("a", "Baz"), aggregated: "/apis → a/v3 (1)", legacy: "/apis → a/v3 (1)",
		},
		{
			name: "which is asked once", known: known, then: func(h *history) { h.live("a/v3:Baz"); h.document(known) },
			query: kind("a", "Baz"), aggregated: "nothing → a/v3 (0)", legacy: "nothing → a/v3 (0)",
		},
		{
			name: "and of no concern for one version", known: known, then: func(h *history) { h.live("a/v3:Baz") },
			query: kind("a", "Baz", "v3"), aggregated: "nothing → a/v3 (0)", legacy: "nothing → a/v3 (0)",
		},
		{
			name: "nor is a group that no list has, beside a version that fails", known: "a/v1! a/v2:Foo", then: func(h *history) { h.live("z/v1:Foo") },
			query: kind("a", "Foo"), aggregated: "a/v1 → a/v2 (1)",
		},
		{
			name: "a group that no list has: who comes first", known: known, then: func(h *history) { h.live("z/v1:Foo") },
			query: resource("", "foos"), aggregated: "document → a/v1 (2)", legacy: "document → a/v1 (2)",
		},
		{
			name: "with a version as well", known: known, then: func(h *history) { h.live("z/v1:Foo") },
			query: resource("", "foos", "v1"), aggregated: "document → a/v1 (2)", legacy: "document → a/v1 (2)",
		},
		{
			name: "the document has what was found gone, and it is back", known: known, then: func(h *history) { h.live("a/v2") },
			query: kind("a", "Bar"), aggregated: "/apis; a/v2 → a/v2 (2)", legacy: "a/v1 a/v2 → a/v2 (2)",
		},
		{
			name: "and it is not back: it may move just now", known: known, then: func(h *history) { h.live("a/v2") },
			server: server{document: known, live: "a/v1:Foo"}, query: kind("a", "Bar"),
			aggregated: "/apis; a/v2; a/; a/v1; a/ a/v1 a/v2; a/ a/v1 a/v2 → no match (10)", legacy: "a/v1 a/v2; a/ → no match (3)",
		},
		{
			name: "with a version there is nothing to move", known: known, then: func(h *history) { h.live("a/v2") },
			server: server{document: known, live: "a/v1:Foo"}, query: kind("a", "Bar", "v2"), aggregated: "a/v2 → no match (1)", legacy: "a/v2 → no match (1)",
		},
		{
			name: "nor is there where it does not answer", known: known, then: func(h *history) { h.live("a/v2") },
			server: server{document: known, live: "a/v1! a/v2!"}, query: kind("a", "Bar"),
			aggregated: "/apis; a/v2; a/; a/v1 → failed (4)", legacy: "a/v1 a/v2; a/ → failed (3)",
		},
		{
			name: "any group: the document has it", known: known, then: func(h *history) { h.live("a/v2") },
			query: resource("", "bars"), aggregated: "document; a/v2 → a/v2 (3)", legacy: "document; a/v1 a/v2 → a/v2 (4)",
		},
		{
			name: "in whatever case it is asked for", known: known, then: func(h *history) { h.live("a/v2") },
			query: resource("", "Bars"), aggregated: "document; a/v2 → a/v2 (3)", legacy: "document; a/v1 a/v2 → a/v2 (4)",
		},
	})
}

// TestDroppedGroups: a group that the document has dropped is asked itself.
func TestDroppedGroups(t *testing.T) {
	const known, without = "a/v1:Foo b/v1:Bar b/v2:Bar", "a/v1:Foo"
	drop := func(h *history) { h.document(without) }
	checkRows(t, []row{
		{
			name: "it is there", known: known, then: drop, server: server{document: without, live: "a/v1:Foo b/v1:Bar,Baz b/v2:Bar"}, query: kind("b", "Baz"),
			aggregated: "/apis; b/; b/v1 → b/v1 (3)", legacy: "b/v1 b/v2 → b/v1 (2)",
		},
		{
			name: "it has gone", known: known, then: drop, server: server{document: without}, query: kind("b", "Baz"),
			aggregated: "/apis; b/; b/v2 b/v1 → no match (4)", legacy: "b/v1 b/v2; document → no match (4)",
		},
		{
			name: "it does not answer", known: known, then: drop, server: server{document: without, live: "b/v1! b/v2!"}, query: kind("b", "Baz"),
			aggregated: "/apis; b/; b/v1 b/v2 → failed (4)", legacy: "b/v1 b/v2; b/ → failed (3)",
		},
		{
			name: "known of it, after a reset", known: known, then: func(h *history) { h.document(without); h.resetAll() },
			server: server{document: without, live: known}, query: kind("b", "Bar"),
			aggregated: "document; b/v1 → b/v1 (3)", legacy: "document; b/v1 b/v2 → b/v1 (4)",
		},
		{
			name: "gone, after a reset", known: known, then: func(h *history) { h.resetAll() },
			server: server{document: without}, query: kind("b", "Bar"),
			aggregated: "document; b/v1 b/v2 → no match (4)", legacy: "document; b/v1 b/v2 → no match (4)",
		},
	})
}
