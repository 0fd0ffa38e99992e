// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Which reads a lookup needs, the scripts in apiutil/testdata/requests show. These tests are about
// reads during which the server, or what is known of it, changes.

func kind(group, name string, versions ...string) Query {
	return KindQuery(schema.GroupKind{Group: group, Kind: name}, versions)
}

const abc = "/v1:Pod a/v1:Foo a/v2:Foo b/v1:Bar"

// R3: if something that a group still serves changed while a lookup read it, the reads are made
// once more, at most three times: a kind that moves between versions is found.
func TestVersionsThatChangeAreReadAgain(t *testing.T) {
	const known = "a/v1:Baz a/v2:Foo"
	for name, test := range map[string]struct {
		known    string
		versions []string // that the lookup of New names
		reads    string   // what it has read
		left     string   // what it still needs
	}{
		"nothing changed":           {known, nil, "a/v1:Baz a/v2:Foo", "a/"},
		"the second changed":        {known, nil, "a/v1:Baz a/v2:", "a/v1 a/v2 a/"},
		"both are named":            {known, []string{"v1", "v2"}, "a/v1:Baz a/v2:", "a/v1 a/v2"},
		"one is gone":               {known, nil, "a/v1:Baz a/v2", ""},
		"the only version":          {"a/v1:Foo", nil, "a/v1:Qux", "a/v1 a/"},
		"the only version, named":   {"a/v1:Foo", []string{"v1"}, "a/v1:Qux", ""},
		"again, at the same time":   {known, nil, "a/v1:A a/v2:A a/v1:B a/v2:B", "a/v1 a/v2 a/"},
		"not again":                 {known, nil, "a/v1:A a/v2:A a/v1:A a/v2:A", "a/"},
		"again and again":           {known, nil, "a/v1:A a/v2:A a/v1:B a/v2:B a/v1:C a/v2:C", "a/"},
		"again and again, if named": {known, []string{"v1", "v2"}, "a/v1:A a/v2:A a/v1:B a/v2:B a/v1:C a/v2:C", ""},
	} {
		h := newHistory(false, test.known)
		p := Progress{Began: h.now, Done: map[Read]Outcome{}}
		each(test.reads, func(word string) {
			group, v := parseVersion(word)
			read := Read{Part: PartVersion, Group: group, Version: v.Name}
			from, now := h.Snapshot, h.tick()
			h.liveAt(word, now, from)
			p.Note(read, Outcome{Tick: now, Times: p.Done[read].Times + 1, Gone: v.Table == nil})
		})
		reads := h.Missing(kind("a", "New", test.versions...), p)
		if got := textOf(slices.Concat(reads...)); got != test.left {
			t.Errorf("%s: still needs %q, want %q", name, got, test.left)
		}
	}
}

// Only the very first lookup believes the document: not one after another that could read no more
// than a version.
func TestSecondLookupProvesWhatIsAbsent(t *testing.T) {
	h := newHistory(false, "")
	h.live("a/v1:Foo")
	p := Progress{Began: h.now, Done: map[Read]Outcome{{}: {Tick: h.now + 1, Times: 1}}}
	h.document(abc)
	if reads := textOf(slices.Concat(h.Missing(kind("a", "Baz", "v1"), p)...)); reads != "a/v1" {
		t.Errorf("left to read: %q, want a/v1", reads)
	}
}

// R4: a document from before a reset may lack a group, even if all that it has was read since.
func TestDocumentFromBeforeAResetIsNotCurrent(t *testing.T) {
	h := newHistory(false, "b/v1:Bar")
	h.resetAll()
	h.live("b/v1:Bar")
	h.group("b", "v1")
	if kind, current, err := h.KindFor(schema.GroupVersionResource{Resource: "bars"}); err != nil || current {
		t.Errorf("%v is current: %v, %v; want it not to be", kind, current, err)
	}
}

// R3: a list that the first document after a reset has overtaken is read again, three times at
// most. That document may lack a version that the list had.
func TestListThatADocumentOvertookIsReadAgain(t *testing.T) {
	h := newHistory(false, "a/v1:Foo")
	list := Read{Part: PartList, Group: "a"}
	p := Progress{Began: h.now, Done: map[Read]Outcome{}}
	for times := 1; times <= mostTimes; times++ {
		from, began := h.Snapshot, h.tick()
		h.resetAll()
		h.document("a/v1:Foo")
		h.Snapshot = h.WithList("a", []string{"v2", "v1"}, "v2", nil, began, from)
		p.Note(list, Outcome{Tick: began, Times: times})
		reads := h.Missing(kind("a", "New"), p)
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
	p := Progress{Began: h.now}
	from, began := h.Snapshot, h.tick()
	h.liveAt("a/v1:Foo,New", began, from)
	p.Done = map[Read]Outcome{read: {Tick: began, Times: 1}}
	h.document("a/v1:Foo,New a/v2:Foo")
	h.document("a/v1:Foo a/v2:Foo")
	if reads := h.Missing(kind("a", "New"), p); !slices.Contains(slices.Concat(reads...), read) {
		t.Errorf("left to read: %v", reads)
	}
}

// A reset that comes after a lookup began does not make it read again what it has read.
func TestLaterResetsLeaveALookupItsReads(t *testing.T) {
	h := newHistory(false, abc)
	p := Progress{Began: h.now, Found: true, Done: map[Read]Outcome{}}
	h.live("a/v1:Foo,New a/v2:Foo")
	h.group("a", "v1", "v2")
	for _, r := range h.LiveReads("a") {
		p.Note(r, Outcome{Tick: h.now, Times: 1})
	}
	p.Note(Read{}, Outcome{Tick: h.now, Times: 1})
	h.resetAll()
	h.resetGroup("a")
	if reads := h.Missing(kind("a", "New"), p); len(reads) > 0 {
		t.Errorf("left to read: %v", reads)
	}
}
