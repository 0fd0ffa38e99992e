// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Only so many groups are kept that have more than the document names: what exceeds that is
// forgotten, and what the document names stays.
func TestGroupsWithMoreAreBounded(t *testing.T) {
	named := func(version string, n int) string {
		all := []string{"a/v1:Foo"}
		for i := range n {
			all = append(all, fmt.Sprintf("g%05d/%s:Foo", i, version))
		}
		return strings.Join(all, " ")
	}
	for _, test := range []struct {
		groups int
		then   string
		want   int // groups
		more   int // of them with a version that the document does not name
	}{
		{mostLeft, "a/v1:Foo", mostLeft + 1, mostLeft}, {mostLeft + 1, "a/v1:Foo", 1, 0},
		{mostLeft, named("v2", mostLeft), mostLeft + 1, mostLeft}, {mostLeft + 1, named("v2", mostLeft+1), mostLeft + 2, 0},
	} {
		h := newHistory(false, named("v1", test.groups))
		h.document(test.then)
		more := 0
		for _, g := range h.groups {
			if g.name != "a" && g.Version("v1") != nil {
				more++
			}
		}
		if len(h.groups) != test.want || h.Group("a") == nil || more != test.more {
			t.Errorf("%d groups, %d of them with a version that the document does not name; want %d, %d", len(h.groups), more, test.want, test.more)
		}
	}
}

// So are those of which lookups have found more than the document names, and groups that it lacks.
func TestGroupsWithMoreAreBoundedAfterLiveReads(t *testing.T) {
	for name, version := range map[string]string{"of known groups": "g%05d/v2:Foo", "of others": "h%05d/v1:Foo"} {
		h := newHistory(false, "")
		var known []string
		for n := range mostLeft + 1 {
			known = append(known, fmt.Sprintf("g%05d/v1:Foo", n))
		}
		h.document(strings.Join(known, " "))
		var sizes []int
		for n := range mostLeft + 1 {
			h.live(fmt.Sprintf(version, n))
			sizes = append(sizes, len(h.open()))
		}
		if got, want := sizes[mostLeft-1:], []int{mostLeft, 0}; !slices.Equal(got, want) || len(h.groups) != mostLeft+1 {
			t.Errorf("%s: %d groups, and %v with more after the last reads; want %v", name, len(h.groups), got, want)
		}
	}
}

// Only so many versions of a group are kept that the document does not have.
func TestVersionsAreBounded(t *testing.T) {
	h := newHistory(false, "a/v1:Foo")
	for n := range mostUnnamed {
		h.live(fmt.Sprintf("a/v1beta%d:Foo", n+1))
	}
	if n := len(h.Group("a").versions); n != mostUnnamed+1 {
		t.Errorf("%d versions, want %d", n, mostUnnamed+1)
	}
	h.live("a/v2:Foo")
	if g := h.Group("a"); len(g.versions) != 1 || g.Version("v1") == nil {
		t.Errorf("%d versions, want that of the document", len(g.versions))
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
