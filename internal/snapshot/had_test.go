// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"slices"
	"testing"
)

// A version that had the kind when the lookup read it, and has it no more, is read
// again: the read that found it is no proof that it is not there.
func TestVersionThatHadItIsReadAgain(t *testing.T) {
	h := newHistory(false, "b/v1:Bar")
	q := kind("a", "Foo", "v1")
	p := h.lookup(server{document: "b/v1:Bar", live: "a/v1:Foo b/v1:Bar"}, q)
	if !slices.Equal(p.reads, []string{"a/v1"}) || p.answer() != "a/v1" {
		t.Fatal(p.reads, p.answer())
	}
	h.document("a/v1:Foo b/v1:Bar") // it agrees with the live read, and does not any more
	h.document("a/v2:Foo b/v1:Bar")
	if p.settled() {
		t.Fatal("found, in a version that has gone")
	}
	reads := h.Missing(q, p.progress)
	if want := []Read{versionOf("a", "v1")}; !slices.Equal(reads, want) {
		t.Fatalf("reads %v, want %v", reads, want)
	}
	p.server.live = "a/v2:Foo"
	p.round(reads)
	if reads := h.Missing(q, p.progress); len(reads) != 0 {
		t.Fatalf("reads %v, after it was found gone", reads)
	}
}

// However often a read finds the kind that is not there afterwards, a lookup ends.
func TestVersionThatHadItIsNotReadForEver(t *testing.T) {
	r := versionOf("a", "v1")
	p := Progress{Done: map[Read]Outcome{}}
	for times := range mostPasses + 1 {
		p.Done[r] = Outcome{Times: times, Had: true}
		if got, want := p.done(r), times == mostPasses; got != want {
			t.Errorf("after %d times: done %v, want %v", times, got, want)
		}
	}
}

func TestHas(t *testing.T) {
	h := newHistory(false, "a/v1:Foo a/v2")
	for r, want := range map[Read]bool{
		versionOf("a", "v1"): true, versionOf("a", "v2"): false, versionOf("a", "v3"): false, versionOf("b", "v1"): false,
		listOf("a"): false, {Part: PartDocument}: false,
	} {
		if got := h.Has(kind("a", "Foo"), r); got != want {
			t.Errorf("%v: %v", r, got)
		}
	}
	if h.Has(kind("a", "Bar"), versionOf("a", "v1")) {
		t.Error("it has another kind")
	}
}
