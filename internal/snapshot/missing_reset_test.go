// SPDX-License-Identifier: Apache-2.0

package snapshot

import "testing"

// TestAfterReset: nothing is answered from what was read before it, and no lookup
// is weaker for it.
func TestAfterReset(t *testing.T) {
	const known = "/v1:Pod a/v1:Foo a/v2:Foo b/v1:Bar"
	reset := func(h *history) { h.resetAll() }
	checkRows(t, []row{
		{name: "kind", known: known, then: reset, query: kind("a", "Foo"), aggregated: "document → a/v1 (2)", legacy: "document; a/v1 a/v2 → a/v1 (4)"},
		{name: "kind of a version", known: known, then: reset, query: kind("a", "Foo", "v2"), aggregated: "document → a/v2 (2)", legacy: "document; a/v2 → a/v2 (3)"},
		{name: "any group", known: known, then: reset, query: resource("", "bars"), aggregated: "document → b/v1 (2)", legacy: "document; /v1 a/v1 a/v2 b/v1 → b/v1 (6)"},
		{name: "miss, with a version", known: known, then: reset, query: kind("a", "Bar", "v1"), aggregated: "document; a/v1 → no match (3)", legacy: "document; a/v1 → no match (3)"},
		{name: "miss, group unknown", known: known, then: reset, query: kind("z", "Bar"), aggregated: "document → no match (2)", legacy: "document → no match (2)"},
		{name: "miss, group unknown, with a version", known: known, then: reset, query: kind("z", "Bar", "v1"), aggregated: "document; z/v1 → no match (3)", legacy: "document; z/v1 → no match (3)"},
		{name: "miss", known: known, then: reset, query: kind("a", "Bar"), aggregated: "document; a/; a/v1 a/v2 → no match (5)", legacy: "document; a/v1 a/v2; a/ → no match (5)"},
		{
			name: "any group, and half of the document was read since", known: known,
			then: func(h *history) { h.resetAll(); h.halfDocument(known, PartCore) }, query: resource("", "bars"),
			aggregated: "document → b/v1 (2)", legacy: "document; /v1 a/v1 a/v2 b/v1 → b/v1 (6)",
		},
		{
			name: "kind, and its half of the document was read since", known: known,
			then: func(h *history) { h.resetAll(); h.halfDocument(known, PartNamed) }, query: kind("a", "Foo"), aggregated: "nothing → a/v1 (0)",
		},
		{
			name: "kind, and the other half was", known: known,
			then: func(h *history) { h.resetAll(); h.halfDocument(known, PartCore) }, query: kind("a", "Foo"), aggregated: "document → a/v1 (2)",
		},
		{
			name: "a list that was read live, and leads", known: known, then: func(h *history) { h.group("a", "v2", "v1"); h.resetAll() },
			query: kind("a", "Foo"), aggregated: "document; a/ → a/v1 (3)",
		},
		{
			name: "the document is behind", known: known, then: reset, server: server{document: known, live: "a/v1:Foo,Bar a/v2:Foo"},
			query: kind("a", "Bar", "v1"), aggregated: "document; a/v1 → a/v1 (3)", legacy: "document; a/v1 → a/v1 (3)",
		},
		{
			name: "what was read live is read live again", known: known, then: func(h *history) { h.live("a/v2:Bar"); h.resetAll() },
			server: server{document: known, live: "a/v1:Foo a/v2:Bar"}, query: kind("a", "Bar", "v2"),
			aggregated: "document; a/v2 → a/v2 (3)", legacy: "document; a/v2 → a/v2 (3)",
		},
		{
			name: "what was found gone as well", known: known, then: func(h *history) { h.live("a/v2"); h.resetAll() },
			query: kind("a", "Foo"), aggregated: "document; a/v2 → a/v1 (3)", legacy: "document; a/v1 a/v2 → a/v1 (4)",
		},
		{
			name: "and by a lookup in any group, as it may be back", known: "a/v2:Bar b/v1:Bar", then: func(h *history) { h.live("a/v2"); h.resetAll() },
			query: resource("", "bars"), aggregated: "document; a/v2 → a/v2 (3)", legacy: "document; a/v2 b/v1 → a/v2 (4)",
		},
		{
			name: "which leaves it alone once it has failed", known: "a/v2:Bar b/v1:Bar",
			then:  func(h *history) { h.live("a/v2"); h.resetAll(); h.document("a/v2:Bar b/v1:Bar"); h.fails("a/v2") },
			query: resource("", "bars"), aggregated: "nothing → b/v1 (0)", legacy: "b/v1 → b/v1 (1)",
		},
		{
			name: "a stale version that does not answer", known: known, then: func(h *history) { h.document("a/v1!"); h.resetAll() },
			server: server{document: "a/v1!"}, query: kind("a", "Foo"), aggregated: "document; a/v1 → a/v1 (3)", legacy: "document; a/v1 a/v2 → a/v1 (4)",
		},
		{
			name: "any group, and one fails", known: known, then: func(h *history) { h.fails("b/v1"); h.resetAll() },
			server: server{document: known, live: "/v1:Pod a/v1:Foo a/v2:Foo b/v1!"}, query: resource("", "foos"),
			aggregated: "document → a/v1 (2)", legacy: "document; /v1 a/v1 a/v2 b/v1 → a/v1 (6)",
		},
	})
}

// TestAfterResetGroup: that group is read live, and others cost nothing.
func TestAfterResetGroup(t *testing.T) {
	const known = "a/v1:Foo a/v2:Foo,Baz b/v1:Bar"
	reset := func(h *history) { h.resetGroup("a") }
	checkRows(t, []row{
		{name: "kind", known: known, then: reset, query: kind("a", "Foo"), aggregated: "a/ a/v1 → a/v1 (2)", legacy: "a/ a/v1 a/v2 → a/v1 (3)"},
		{name: "kind of a later version", known: known, then: reset, query: kind("a", "Baz"), aggregated: "a/ a/v1 a/v2 → a/v2 (3)", legacy: "a/ a/v1 a/v2 → a/v2 (3)"},
		{name: "kind of a version", known: known, then: reset, query: kind("a", "Foo", "v2"), aggregated: "a/v2 → a/v2 (1)", legacy: "a/v2 → a/v2 (1)"},
		{name: "another group", known: known, then: reset, query: kind("b", "Bar"), aggregated: "nothing → b/v1 (0)", legacy: "nothing → b/v1 (0)"},
		{name: "any group", known: known, then: reset, query: resource("", "bars"), aggregated: "a/ a/v1 a/v2 → b/v1 (3)", legacy: "a/ a/v1 a/v2 → b/v1 (3)"},
		{name: "miss, with a version", known: known, then: reset, query: kind("a", "Bar", "v1"), aggregated: "a/v1 → no match (1)", legacy: "a/v1 → no match (1)"},
		{name: "miss", known: known, then: reset, query: kind("a", "Bar"), aggregated: "/apis; a/; a/v1 a/v2 → no match (4)", legacy: "a/v1 a/v2; a/ → no match (3)"},
		{
			name: "a version, and another was found gone", known: known, then: func(h *history) { h.live("a/v2"); h.resetGroup("a") },
			query: kind("a", "Foo", "v1"), aggregated: "a/v1 → a/v1 (1)", legacy: "a/v1 → a/v1 (1)",
		},
		{
			name: "a version that was found gone since", known: known, then: func(h *history) { h.resetGroup("a"); h.live("a/v2") },
			server: server{document: known, live: "a/v1:Foo"}, query: kind("a", "Foo"), aggregated: "a/ a/v1 → a/v1 (2)", legacy: "a/ a/v1 → a/v1 (2)",
		},
		{
			name: "a document does not do", known: known, then: func(h *history) { h.resetGroup("a"); h.document(known) },
			query: kind("a", "Foo"), aggregated: "a/ a/v1 → a/v1 (2)", legacy: "a/ a/v1 a/v2 → a/v1 (3)",
		},
		{
			name: "read live since", known: known, then: func(h *history) { h.resetGroup("a"); h.wholeGroup("a/v1:Foo a/v2:Foo,Baz") },
			query: kind("a", "Baz"), aggregated: "nothing → a/v2 (0)", legacy: "nothing → a/v2 (0)",
		},
		{
			name: "the group has gone", known: known, then: reset, server: server{document: known, live: "b/v1:Bar"},
			query: kind("a", "Foo", "v1"), aggregated: "a/v1 → no match (1)", legacy: "a/v1 → no match (1)",
		},
		{
			name: "a group that nobody knew has come", known: "b/v1:Foo", then: reset, server: server{document: "a/v1:Foo b/v1:Foo"},
			query: resource("", "foos"), aggregated: "document; a/ a/v1 → a/v1 (4)", legacy: "document; a/ a/v1 → a/v1 (4)",
		},
		{
			name: "a group that nobody knew, by the beginning of its name", known: "a/v1:Foo", then: func(h *history) { h.resetGroup("a.b") },
			query: resource("a", "foos"), aggregated: "/apis → a/v1 (1)", legacy: "/apis → a/v1 (1)",
		},
		{
			name: "which is asked once", known: "a/v1:Foo", then: func(h *history) { h.resetGroup("a.b"); h.halfDocument("a/v1:Foo", PartNamed) },
			query: resource("a", "foos"), aggregated: "nothing → a/v1 (0)", legacy: "nothing → a/v1 (0)",
		},
	})
}

// TestAfterResetGroupBehind: the document is behind, and does not count for the group.
func TestAfterResetGroupBehind(t *testing.T) {
	const known = "a/v1:Foo b/v1:Foo"
	reset := func(h *history) { h.resetGroup("a") }
	checkRows(t, []row{
		{
			name: "a version was found gone before, and is back", known: "a/v2:Foo a/v1:Foo", then: func(h *history) { h.live("a/v2"); h.resetGroup("a") },
			query: kind("a", "Foo"), aggregated: "a/ a/v1 a/v2 → a/v2 (3)", legacy: "a/ a/v1 a/v2 → a/v2 (3)",
		},
		{
			name: "a group that nobody knew has come", known: known, then: func(h *history) { h.resetGroup("z") },
			server: server{document: known, live: known + " z/v1:Foo"}, query: kind("z", "Foo"),
			aggregated: "document; z/; z/v1 → z/v1 (4)", legacy: "document; z/; z/v1 → z/v1 (4)",
		},
		{
			name: "nor does anybody serve it", known: known, then: func(h *history) { h.resetGroup("z") },
			query: kind("z", "Foo"), aggregated: "document; z/ → no match (3)", legacy: "document; z/ → no match (3)",
		},
		{
			name: "any group", known: known, then: reset, server: server{document: known, live: "a/v1:Foo,Bar b/v1:Foo"},
			query: resource("", "bars"), aggregated: "document; a/; a/v1 → a/v1 (4)", legacy: "document; a/v1 b/v1; a/ → a/v1 (5)",
		},
		{
			name: "any group, with a version that is new", known: known, then: reset, server: server{document: known, live: known + " a/v2:Bar"},
			query: resource("", "bars", "v2"), aggregated: "document; a/v2 → a/v2 (3)", legacy: "document; a/v2 → a/v2 (3)",
		},
		{
			name: "any group, and it has failed since, but may have recovered", known: known, then: func(h *history) { h.resetGroup("a"); h.fails("a/v1") },
			query: resource("", "bars"), aggregated: "document; a/; a/v1 → no match (4)",
		},
		{
			name: "any group, and the document says that it does not answer", known: known,
			then:   func(h *history) { h.resetGroup("a"); h.document("a/v1! b/v1:Foo"); h.fails("a/v1") },
			server: server{document: "a/v1! b/v1:Foo"}, query: resource("", "bars"), aggregated: "document → failed (2)",
		},
		{
			name: "beginning of a name", known: "a.x/v1:Foo", then: func(h *history) { h.resetGroup("a.x") }, server: server{document: "a.x/v1:Foo", live: "a.x/v1:Bar"},
			query: resource("a", "bars"), aggregated: "document; a.x/; a.x/v1 → a.x/v1 (4)", legacy: "document; a.x/v1; a.x/ → a.x/v1 (4)",
		},
		{
			name: "several versions, and the first is new", known: known, then: reset, server: server{document: known, live: known + " a/v2:Foo"},
			query: kind("a", "Foo", "v2", "v1"), aggregated: "a/v1 a/v2 → a/v2 (2)", legacy: "a/v1 a/v2 → a/v2 (2)",
		},
		{
			name: "the group has gone, and a document that is behind brings it back", known: "a/v1:Foo b/v1:Bar", then: reset,
			server: server{document: "a/v1:Foo a/v2:Foo b/v1:Bar", live: "b/v1:Bar"}, query: kind("a", "Foo"),
			aggregated: "a/ a/v1; /apis; a/v2; a/ a/v1 a/v2; a/ a/v1 a/v2 → no match (10)", legacy: "a/ a/v1 → no match (2)",
		},
		{
			name: "so has a version", known: "a/v1:Foo a/v2:Bar b/v1:Bar", then: reset,
			server: server{document: "a/v1:Foo a/v2:Bar a/v3:Foo b/v1:Bar", live: "a/v2:Bar b/v1:Bar"}, query: kind("a", "Foo"),
			aggregated: "a/ a/v1 a/v2; /apis; a/v3; a/ a/v2 a/v1 a/v3; a/ a/v2 a/v1 a/v3 → no match (13)", legacy: "a/ a/v1 a/v2 → no match (3)",
		},
		{
			name: "its version has gone, and another come that the document does not list", known: "a/v1:Foo b/v1:Bar", then: reset,
			server: server{document: "b/v1:Bar", live: "a/v2:Baz b/v1:Bar"}, query: kind("a", "Baz"),
			aggregated: "/apis; a/; a/v2 → a/v2 (3)", legacy: "a/v1; a/; a/v2 → a/v2 (3)",
		},
	})
}
