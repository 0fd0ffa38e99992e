// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"strings"
	"sync/atomic"
	"unicode/utf8"
)

// nameIndex says which groups may know a resource name, so that lookups that name
// no group need not go through all of them. It belongs to certain groups in a
// certain order; snapshots that have the same share it.
//
// It is made by the lookups that need it, and only then: it is large, and most
// mappers are never asked without a group. What is in it follows from the groups
// alone, so that an answer does not depend on whether it is there.
type nameIndex struct {
	walks  atomic.Int64                        // how many lookups went through all groups
	byStem atomic.Pointer[map[string][]*Group] // nil until made
}

// walksBeforeIndex is how many lookups go through all groups before one of them
// makes the index, which takes about as long as they did together. So a snapshot
// that is soon replaced, as happens while versions are read one by one, costs at
// most twice what it must; and of many lookups at a time only one makes the index.
const walksBeforeIndex = 16

// among returns, in their order, those of groups that may know name as a
// resource. It may return some that do not, but leaves none out that does.
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

// fill makes the index. Most names are in one group, for which a piece of groups
// will do instead of a slice of its own.
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

// eachStem calls visit for the stem of every name that the table knows but list
// and lists, which every table does. Beside the plural and the singular of a row
// these are the names guessed for its list, whose stem is the kind in lower case.
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

// stem is what most names of one resource have in common: foo of foo, foos,
// foolist and foolists. It is empty for list and lists.
func stem(name string) string {
	return strings.TrimSuffix(strings.TrimSuffix(name, "s"), "list")
}
