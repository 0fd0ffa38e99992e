// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"strings"
	"testing"
)

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

// So are those of which lookups have found more than the document names.
func TestMarkedGroupsAreBoundedAfterLiveReads(t *testing.T) {
	const groups = mostMarked + 10
	h := newHistory(false, "")
	var known []string
	for n := range groups {
		known = append(known, fmt.Sprintf("g%05d/v1:Foo", n))
	}
	h.document(strings.Join(known, " "))
	for n := range groups {
		h.live(fmt.Sprintf("g%05d/v2:Foo", n))
	}
	for n, g := range h.groups {
		if kept := g.Version("v2") != nil; kept != (n >= groups-mostMarked) {
			t.Fatalf("%s, of %d groups: its version is kept: %v; want those of the %d that were read last", g.name, groups, kept, mostMarked)
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
