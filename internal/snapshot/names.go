// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"strings"
	"sync/atomic"
	"unicode/utf8"
)

// nameIndex maps resource names to the groups that may have them, so that lookups
// without a group need not go through all groups. Snapshots with the same groups in the
// same order share it.
//
// Lookups make the index when they need it: it is large, and most mappers get no lookup
// without a group. It follows from the groups alone, so no answer depends on whether it
// exists.
type nameIndex struct {
	walks  atomic.Int64                        // how many lookups went through all groups
	byStem atomic.Pointer[map[string][]*Group] // nil until made
}

// walksBeforeIndex is how many lookups go through all groups before one of them makes the
// index. To make it takes about as long as these lookups took together. So a snapshot
// that is soon replaced, as happens while versions are read one by one, costs at most
// twice the least possible. Of many concurrent lookups only one makes the index.
const walksBeforeIndex = 16

// among returns, in their order, the groups that may have a resource of that name. It may
// return too many groups, but never too few.
func (x *nameIndex) among(groups []*Group, name string) []*Group {
	key := stem(name)
	if x == nil || key == "" {
		return groups
	}
	if byStem := x.byStem.Load(); byStem != nil {
		return (*byStem)[key]
	}
	if x.walks.Add(1) == walksBeforeIndex {
		x.fill(groups)
	}
	return groups
}

// fill makes the index. Most names are in one group only. For these it uses a part of the
// slice groups instead of a new slice.
func (x *nameIndex) fill(groups []*Group) {
	byStem := make(map[string][]*Group, namesIn(groups))
	for i, g := range groups {
		for j := range g.versions {
			t := g.versions[j].Table
			if t == nil || j > 0 && t == g.versions[j-1].Table {
				continue
			}
			t.eachStem(func(key string) {
				known := byStem[key]
				switch {
				case known == nil:
					byStem[key] = groups[i : i+1 : i+1]
				case known[len(known)-1] != g:
					byStem[key] = append(known, g)
				}
			})
		}
	}
	x.byStem.Store(&byStem)
}

// namesIn estimates how many stems the names of groups have.
func namesIn(groups []*Group) int {
	n := 0
	for _, g := range groups {
		most := 0
		for i := range g.versions {
			if t := g.versions[i].Table; t != nil {
				most = max(most, len(t.rows))
			}
		}
		n += most
	}
	return n
}

// eachStem calls visit for the stem of every name in the table, except list and lists,
// which every table has. The names of a row are its plural, its singular, and the names
// that are guessed for its list, whose stem is the kind in lower case.
func (t *Table) eachStem(visit func(string)) {
	for i := range t.rows {
		r := &t.rows[i]
		plural, singular := stem(r.Name), stem(r.Singular)
		visit(plural)
		if singular != plural {
			visit(singular)
		}
		if !isLower(plural, r.Kind) && !isLower(singular, r.Kind) {
			visit(strings.ToLower(r.Kind))
		}
	}
}

// isLower reports whether name is kind in lower case, and both are ASCII. For nearly
// every kind this saves making the string.
func isLower(name, kind string) bool {
	if len(name) != len(kind) {
		return false
	}
	for i := range len(kind) {
		c := kind[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if name[i] != c || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// stem returns what most names of one resource have in common: foo for foo, foos,
// foolist and foolists. It returns "" for list and lists.
func stem(name string) string {
	return strings.TrimSuffix(strings.TrimSuffix(name, "s"), "list")
}
