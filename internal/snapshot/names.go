// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"strings"
	"sync/atomic"
)

// lookupCache is what lookups in many groups need, so that they need not go through all of them: the groups that may
// have a resource, by its name, and the groups that are not current. Snapshots with the same groups in the same order
// share it.
//
// Lookups make it when they need it: it is large, and most mappers get no lookup without a group.
// No answer depends on whether it exists.
type lookupCache struct {
	scans    atomic.Int64                        // how many lookups went through all groups
	byStem   atomic.Pointer[map[string][]*Group] // nil until made
	outdated atomic.Pointer[outdatedGroups]      // likewise
}

// scansBeforeIndex is how many lookups go through all groups before one of them makes the
// index of names. To make it takes about as long as these lookups took together. So a snapshot
// that is soon replaced, as happens while versions are read one by one, costs at most
// twice the least possible. Of many concurrent lookups only one makes the index.
const scansBeforeIndex = 16

// groupsWithName returns, in their order, the groups that may have a resource of that name. It may
// return too many groups, but never too few.
func (x *lookupCache) groupsWithName(groups []*Group, name string) []*Group {
	key := stem(name)
	if x == nil || key == "" {
		return groups
	}
	if byStem := x.byStem.Load(); byStem != nil {
		return (*byStem)[key]
	}
	if x.scans.Add(1) == scansBeforeIndex {
		x.buildIndex(groups)
	}
	return groups
}

// outdatedGroups are the positions of the groups that are not current, for snapshots with these sequence numbers.
type outdatedGroups struct {
	docSeq, resetSeq Seq // 0 if all groups are the document's: mappers with other numbers share it
	positions        []int
}

// buildIndex makes the index of names. Most names are in one group only. For these it uses a part of the
// slice groups instead of a new slice.
func (x *lookupCache) buildIndex(groups []*Group) {
	byStem := make(map[string][]*Group, 4*len(groups))
	for i, g := range groups {
		add := func(stem string) {
			known := byStem[stem]
			if known == nil {
				byStem[stem] = groups[i : i+1 : i+1]
			} else if known[len(known)-1] != g {
				byStem[stem] = append(known, g)
			}
		}
		var last *Table
		for _, v := range g.versions {
			if v.Table != last { // versions that serve the same share one
				v.Table.eachStem(add)
				last = v.Table
			}
		}
	}
	x.byStem.Store(&byStem)
}

// eachStem calls add with the stem of each name that a lookup may find in the table. t may be nil.
func (t *Table) eachStem(add func(stem string)) {
	for _, r := range t.allRows() {
		plural := stem(r.Name)
		add(plural)
		if singular := stem(r.Singular); singular != plural {
			add(singular)
		}
		if kind := strings.ToLower(r.Kind); kind != plural { // the names of its list
			add(kind)
		}
	}
}

// stem returns what most names of one resource have in common: foo for foo, foos,
// foolist and foolists. It returns "" for list and lists.
func stem(name string) string {
	return strings.TrimSuffix(strings.TrimSuffix(name, "s"), "list")
}
