// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"testing"
)

// TestFacts shows which of two reads counts: the document's or a live one. Of
// what is known, @7 is a live read's at tick 7, ~7 the document's then, which says
// so no more; all else is what the document says now. The first read is at tick 1.
func TestFacts(t *testing.T) {
	tests := map[string]struct {
		document string
		then     func(*history)
		want     string
	}{
		// Only the document was read.
		"what the document drops of a group is gone": {"a/v1:Foo a/v2:Foo", func(h *history) { h.document("a/v2:Bar") }, "a/v2:Bar"},
		"a stale version keeps its last good table": {"a/v1:Foo a/v2:Bar", func(h *history) { h.document("a/v1! a/v2:Foo") },
			"a/v1!:Foo~1 a/v2:Foo"},
		"and keeps it for as long as it is stale": {"a/v1:Foo a/v2:Bar", func(h *history) { h.document("a/v1! a/v2:Foo"); h.document("a/v1! a/v2:Bar") },
			"a/v1!:Foo~1 a/v2:Bar"},
		"until the document has one again": {"a/v1:Foo a/v2:Bar", func(h *history) { h.document("a/v1! a/v2:Foo"); h.document("a/v1: a/v2:Bar") },
			"a/v1: a/v2:Bar"},
		"a stale version that was never read has none": {"a/v1! a/v2:Bar", func(*history) {}, "a/v1! a/v2:Bar"},
		"a dropped group stays as it was":              {"a/v1:Foo b/v1:Bar", func(h *history) { h.document("a/v1:Foo") }, "a/v1:Foo b/v1:Bar~1"},
		"with the tick of its last document": {"a/v1:Foo b/v1:Bar", func(h *history) { h.document("a/v1: b/v1:Bar"); h.document("a/v1:Foo") },
			"a/v1:Foo b/v1:Bar~2"},
		"a dropped group comes back": {"a/v1:Foo b/v1:Bar", func(h *history) { h.document("a/v1:Foo"); h.document("b/v1:Foo a/v1:Foo") },
			"b/v1:Foo a/v1:Foo"},

		// A live read beside it.
		"live counts for more":               {"a/v1:Foo", func(h *history) { h.live("a/v1:Bar") }, "a/v1:Bar@2"},
		"the later live read counts":         {"a/v1:Foo", func(h *history) { h.live("a/v1:Bar"); h.live("a/v1:Foo,Bar") }, "a/v1:Foo,Bar@3"},
		"that started later, not ended":      {"a/v1:Foo", func(h *history) { h.liveAt("a/v1:Bar", 9); h.liveAt("a/v1:Foo,Bar", 8) }, "a/v1:Bar@9"},
		"a version found gone is gone":       {"a/v1:Foo a/v2:Foo", func(h *history) { h.live("a/v2") }, "a/v1:Foo"},
		"and is back when it is found":       {"a/v1:Foo a/v2:Foo", func(h *history) { h.live("a/v2 a/v2:Foo") }, "a/v1:Foo a/v2:Foo@3"},
		"a new version":                      {"a/v1:Foo", func(h *history) { h.live("a/v2:Bar") }, "a/v2:Bar@2 a/v1:Foo"},
		"a new version that goes":            {"a/v1:Foo", func(h *history) { h.live("a/v2:Bar a/v2") }, "a/v1:Foo"},
		"a new group":                        {"a/v1:Foo", func(h *history) { h.live("b/v1:Bar") }, "a/v1:Foo b/v1:Bar@2"},
		"a new group that goes":              {"a/v1:Foo", func(h *history) { h.live("b/v1:Bar b/v1") }, "a/v1:Foo"},
		"an unknown version is not there":    {"a/v1:Foo", func(h *history) { h.live("a/v2 b/v1") }, "a/v1:Foo"},
		"a failure keeps what was known":     {"a/v1:Foo", func(h *history) { h.fails("a/v1") }, "a/v1!:Foo"},
		"a success ends a failure":           {"a/v1:Foo", func(h *history) { h.fails("a/v1"); h.live("a/v1:Foo") }, "a/v1:Foo@3"},
		"but not one that came after it":     {"a/v1:Foo", func(h *history) { h.fails("a/v1"); h.liveAt("a/v1:Foo", 1) }, "a/v1!:Foo@1"},
		"a failure before a success":         {"a/v1:Foo", func(h *history) { h.liveAt("a/v1:Bar", 9); h.fails("a/v1") }, "a/v1:Bar@9"},
		"of what is unknown nothing is kept": {"a/v1:Foo", func(h *history) { h.fails("a/v2"); h.fails("b/v1") }, "a/v1:Foo"},

		// The document is read again, and says what it said before: no news.
		"no news of a group: live stays":  {"a/v1:Foo", func(h *history) { h.live("a/v1:Bar"); h.document("a/v1:Foo") }, "a/v1:Bar@2"},
		"nor of one beside a change":      {"a/v1:Foo b/v1:Foo", func(h *history) { h.live("a/v1:Bar"); h.document("a/v1:Foo b/v1:Bar") }, "a/v1:Bar@2 b/v1:Bar"},
		"a new version stays":             {"a/v1:Foo", func(h *history) { h.live("a/v2:Bar"); h.document("a/v1:Foo") }, "a/v2:Bar@2 a/v1:Foo"},
		"a version that is gone stays so": {"a/v1:Foo a/v2:Foo", func(h *history) { h.live("a/v2"); h.document("a/v1:Foo a/v2:Foo") }, "a/v1:Foo"},
		"a new group stays":               {"a/v1:Foo", func(h *history) { h.live("b/v1:Bar"); h.document("a/v1:Foo") }, "a/v1:Foo b/v1:Bar@2"},
		"a stale mark is no news either":  {"a/v1! a/v2:Foo", func(h *history) { h.live("a/v1:Bar"); h.document("a/v1! a/v2:Foo") }, "a/v1:Bar@2 a/v2:Foo"},

		"what a list has stays listed": {"a/v1:Foo", func(h *history) { h.group("a", "v2", "v1"); h.document("a/v1:Foo") }, "a/v2 a/v1:Foo"},

		// It says something new, and is behind perhaps: live stays, in dispute.
		"something else than live":       {"a/v1:Foo", func(h *history) { h.live("a/v1:Bar"); h.document("a/v1:Foo,Bar") }, "a/v1:Bar@2"},
		"the same as live":               {"a/v1:Foo", func(h *history) { h.live("a/v1:Bar"); h.document("a/v1:Bar") }, "a/v1:Bar"},
		"news of another version":        {"a/v1:Foo a/v2:Foo", func(h *history) { h.live("a/v1:Bar"); h.document("a/v1:Foo a/v2:Bar") }, "a/v1:Bar@2 a/v2:Bar"},
		"a live version that is dropped": {"a/v1:Foo a/v2:Foo", func(h *history) { h.live("a/v1:Bar"); h.document("a/v2:Bar") }, "a/v2:Bar a/v1:Bar@2"},
		"one that is gone is dropped":    {"a/v1:Foo a/v2:Foo", func(h *history) { h.live("a/v2"); h.document("a/v1:Foo") }, "a/v1:Foo"},
		"one that is gone is not":        {"a/v1:Foo a/v2:Foo", func(h *history) { h.live("a/v2"); h.document("a/v1:Foo a/v2:Bar") }, "a/v1:Foo"},
		"a live group that is dropped":   {"a/v1:Foo b/v1:Foo", func(h *history) { h.live("b/v1:Bar"); h.document("a/v1:Foo") }, "a/v1:Foo b/v1:Bar@2"},
		"a live version is stale now":    {"a/v1:Foo", func(h *history) { h.live("a/v1:Bar"); h.document("a/v1!") }, "a/v1!:Bar@2"},
		"and is found again":             {"a/v1:Foo", func(h *history) { h.live("a/v1:Bar"); h.document("a/v1!"); h.live("a/v1:Bar") }, "a/v1:Bar@4"},
		"a failure is forgotten":         {"a/v1:Foo", func(h *history) { h.fails("a/v1"); h.document("a/v1:Bar") }, "a/v1:Bar"},

		"a failure that the document has outlived": {"a/v1:Foo b/v1:Foo", func(h *history) {
			began := h.tick()
			h.document("a/v1:Bar b/v1:Foo")
			h.Snapshot = h.WithFailedVersion("b", "v1", errUnread, began)
			h.document("a/v1:Foo")
		}, "a/v1:Foo b/v1:Foo~3"},

		// A live read confirms what the document has dropped.
		"the group has gone":                      {"a/v1:Foo b/v1:Foo", func(h *history) { h.document("a/v1:Foo"); h.live("b/v1") }, "a/v1:Foo"},
		"with all its versions":                   {"a/v1:Foo b/v1:Foo b/v2:Foo", func(h *history) { h.document("a/v1:Foo"); h.live("b/v1") }, "a/v1:Foo"},
		"the group is there":                      {"a/v1:Foo b/v1:Foo b/v2:Foo", func(h *history) { h.document("a/v1:Foo"); h.live("b/v1:Foo") }, "a/v1:Foo b/v1:Foo@3 b/v2:Foo~1"},
		"of an unknown version that says nothing": {"a/v1:Foo b/v1:Foo", func(h *history) { h.document("a/v1:Foo"); h.live("b/v9") }, "a/v1:Foo b/v1:Foo~1"},
		"it does not answer":                      {"a/v1:Foo b/v1:Foo", func(h *history) { h.document("a/v1:Foo"); h.fails("b/v1") }, "a/v1:Foo b/v1!:Foo~1"},
		"others have gone":                        {"a/v1:Foo b/v1:Foo c/v1:Foo", func(h *history) { h.document("a/v1:Foo"); h.Snapshot = h.WithoutDropped() }, "a/v1:Foo"},
		"but live ones have not":                  {"a/v1:Foo b/v1:Foo c/v1:Foo", func(h *history) { h.live("b/v1:Foo"); h.document("a/v1:Foo"); h.Snapshot = h.WithoutDropped() }, "a/v1:Foo b/v1:Foo@2"},

		// The group's own list, read live.
		"a list that says the same":      {"a/v1:Foo a/v2:Foo", func(h *history) { h.group("a", "v1", "v2") }, "a/v1:Foo a/v2:Foo"},
		"another order":                  {"a/v1:Foo a/v2:Foo", func(h *history) { h.group("a", "v2", "v1") }, "a/v2:Foo a/v1:Foo"},
		"a version more":                 {"a/v1:Foo", func(h *history) { h.group("a", "v2", "v1") }, "a/v2 a/v1:Foo"},
		"a version less is behind":       {"a/v1:Foo a/v2:Foo", func(h *history) { h.group("a", "v2") }, "a/v1:Foo a/v2:Foo"},
		"unless it is gone":              {"a/v1:Foo a/v2:Foo", func(h *history) { h.live("a/v1"); h.group("a", "v2") }, "a/v2:Foo"},
		"a group that is not there":      {"a/v1:Foo", func(h *history) { h.group("b") }, "a/v1:Foo"},
		"a group that only it knows":     {"a/v1:Foo", func(h *history) { h.group("b", "v1") }, "a/v1:Foo b/v1"},
		"and that goes":                  {"a/v1:Foo", func(h *history) { h.group("b", "v1"); h.group("b") }, "a/v1:Foo"},
		"the document has come to agree": {"a/v1:Foo", func(h *history) { h.wholeGroup("a/v2:Bar a/v1:Foo"); h.document("a/v2:Bar a/v1:Foo") }, "a/v2:Bar a/v1:Foo"},
		"a dropped group has gone":       {"a/v1:Foo b/v1:Foo", func(h *history) { h.document("a/v1:Foo"); h.wholeGroup("b/v9:"); h.live("b/v9"); h.group("b") }, "a/v1:Foo"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHistory(false, test.document)
			test.then(h)
			h.check(t, test.want)
		})
	}
}

// TestLegacyFacts is TestFacts for a server whose document only lists versions.
func TestLegacyFacts(t *testing.T) {
	const document = "a/v1:Foo a/v2:Foo b/v1:Foo"
	tests := map[string]struct {
		then func(*history)
		want string
	}{
		"only listed":                    {func(*history) {}, "a/v1 a/v2 b/v1"},
		"read live":                      {func(h *history) { h.live("a/v1:Foo") }, "a/v1:Foo@2 a/v2 b/v1"},
		"and listed again":               {func(h *history) { h.live("a/v1:Foo"); h.document(document) }, "a/v1:Foo@2 a/v2 b/v1"},
		"in another order":               {func(h *history) { h.live("a/v1:Foo"); h.document("a/v2: b/v1: a/v1:") }, "a/v2 a/v1:Foo@2 b/v1"},
		"listed no more is in dispute":   {func(h *history) { h.live("a/v1:Foo"); h.document("a/v2: b/v1:") }, "a/v2 a/v1:Foo@2 b/v1"},
		"unread, listed no more is gone": {func(h *history) { h.live("a/v1:Foo"); h.document("a/v1: b/v1:") }, "a/v1:Foo@2 b/v1"},
		"a group listed no more is not":  {func(h *history) { h.live("a/v1:Foo"); h.document("b/v1:") }, "b/v1 a/v1:Foo@2"},
		"nothing was read of it":         {func(h *history) { h.document("b/v1:") }, "b/v1"},
		"a failure stays":                {func(h *history) { h.fails("a/v1"); h.document(document) }, "a/v1! a/v2 b/v1"},
		"a version that is not served":   {func(h *history) { h.live("a/v1"); h.document(document) }, "a/v2 b/v1"},
		"a new version":                  {func(h *history) { h.live("a/v3:Bar"); h.document(document) }, "a/v3:Bar@2 a/v1 a/v2 b/v1"},
		"and its place":                  {func(h *history) { h.live("a/v3:Bar"); h.document("a/v1: a/v3: a/v2:") }, "a/v1 a/v3:Bar@2 a/v2"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHistory(true, document)
			test.then(h)
			h.check(t, test.want)
		})
	}
}

// TestUnsettled: which groups a refresh has to read live.
func TestUnsettled(t *testing.T) {
	const document = "a/v1:Foo a/v2:Foo b/v1:Foo c/v1:Foo"
	tests := map[string]struct {
		then              func(*history)
		disputed, dropped string
	}{
		"nothing":                 {func(*history) {}, "", ""},
		"live says the same":      {func(h *history) { h.live("a/v1:Foo") }, "", ""},
		"live says another thing": {func(h *history) { h.live("a/v1:Bar") }, "a", ""},
		"a version is gone":       {func(h *history) { h.live("a/v1") }, "a", ""},
		"a version is new":        {func(h *history) { h.live("a/v3:Foo") }, "a", ""},
		"a group is new":          {func(h *history) { h.live("d/v1:Foo") }, "d", ""},
		"another list":            {func(h *history) { h.group("a", "v2", "v1") }, "a", ""},
		"the same list":           {func(h *history) { h.group("a", "v1", "v2") }, "", ""},
		"a list that is behind":   {func(h *history) { h.group("a", "v2") }, "", ""},
		"a failure":               {func(h *history) { h.fails("a/v1") }, "", ""},
		"stale":                   {func(h *history) { h.document("a/v1! a/v2:Foo b/v1:Foo c/v1:Foo") }, "", ""},
		"dropped":                 {func(h *history) { h.document("a/v1:Foo") }, "", "b c"},
		"dropped, and seen since": {func(h *history) { h.document("a/v1:Foo"); h.live("b/v1:Foo") }, "b", "c"},
		"dropped, and back":       {func(h *history) { h.document("a/v1:Foo"); h.document(document) }, "", ""},
		"dropped after a read":    {func(h *history) { h.live("c/v1:Foo"); h.document("a/v1:Foo") }, "c", "b"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHistory(false, document)
			test.then(h)
			disputed, dropped := h.Unsettled()
			if got := names(disputed); got != test.disputed {
				t.Errorf("disputed are %q, not %q", got, test.disputed)
			}
			if got := names(dropped); got != test.dropped {
				t.Errorf("dropped are %q, not %q", got, test.dropped)
			}
		})
	}
}

func names(groups []*Group) string {
	var all string
	for i, g := range groups {
		if i > 0 {
			all += " "
		}
		all += g.name
	}
	return all
}

// TestOvertaken: a live read that began at tick 2 ends after a read of the document
// that began later. If that has brought something new about the group, what the
// live read has found does not count, and nor does what was read live before it.
func TestOvertaken(t *testing.T) {
	tests := map[string]struct {
		before, meanwhile func(*history)
		read              Read
		want              string // with what the live read has found: Bar in v1
	}{
		"nothing happened":         {nil, func(*history) {}, versionOf("a", "v1"), "a/v1:Bar@3 a/v2:Foo b/v1:Foo"},
		"no news":                  {nil, func(h *history) { h.document("a/v1:Foo a/v2:Foo b/v1:Foo") }, versionOf("a", "v1"), "a/v1:Bar@3 a/v2:Foo b/v1:Foo"},
		"news of the group":        {nil, func(h *history) { h.document("a/v1:Baz a/v2:Foo b/v1:Foo") }, versionOf("a", "v1"), "a/v1:Baz a/v2:Foo b/v1:Foo"},
		"news of another":          {nil, func(h *history) { h.document("a/v1:Foo a/v2:Foo b/v1:Bar") }, versionOf("a", "v1"), "a/v1:Bar@3 a/v2:Foo b/v1:Bar"},
		"an older live read":       {func(h *history) { h.live("a/v1:Old") }, func(h *history) { h.document("a/v1:Baz a/v2:Foo b/v1:Foo") }, versionOf("a", "v1"), "a/v1:Baz a/v2:Foo b/v1:Foo"},
		"an older one of another":  {func(h *history) { h.live("a/v2:Old") }, func(h *history) { h.document("a/v1:Baz a/v2:Foo b/v1:Foo") }, versionOf("a", "v1"), "a/v1:Baz a/v2:Old@2 b/v1:Foo"},
		"the group was dropped":    {nil, func(h *history) { h.document("b/v1:Foo") }, versionOf("a", "v1"), "b/v1:Foo a/v1:Bar@3 a/v2:Foo~1"},
		"it is stale now":          {nil, func(h *history) { h.document("a/v1! a/v2:Foo b/v1:Foo") }, versionOf("a", "v1"), "a/v1!:Bar@3 a/v2:Foo b/v1:Foo"},
		"the list of a group":      {func(h *history) { h.group("a", "v2", "v1") }, func(h *history) { h.document("a/v1:Baz a/v2:Foo b/v1:Foo") }, listOf("a"), "a/v1:Baz a/v2:Foo b/v1:Foo"},
		"the document began early": {nil, func(h *history) { h.documentAt("a/v1:Baz a/v2:Foo b/v1:Foo", 2) }, versionOf("a", "v1"), "a/v1:Bar@3 a/v2:Foo b/v1:Foo"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHistory(false, "a/v1:Foo a/v2:Foo b/v1:Foo")
			if h.tick(); test.before != nil {
				h.now--
				test.before(h)
			}
			from, began := h.Snapshot, h.tick()
			test.meanwhile(h)
			next, overtaken := h.Overtaken(from, test.read, began)
			if h.Snapshot = next; !overtaken {
				h.liveAt("a/v1:Bar", began)
			}
			h.check(t, test.want)
		})
	}
}

// What a live list lacked is not listed because the document drops the group: the
// list was the last to be asked, and it is read again.
func TestLiveListOutlivesTheDocument(t *testing.T) {
	h := newHistory(false, "a/v1:Foo b/v1:Bar b/v2:Bar")
	h.live("b/v1:Bar")
	h.group("b")
	h.document("a/v1:Foo")
	if h.settles("b", "Bar", "v1") {
		t.Error("what the group's own list did not have any more settles a lookup")
	}
	h.live("b/v1:Bar")
	if !h.settles("b", "Bar", "v1") {
		t.Error("and is not settled by a live read of it")
	}
}
