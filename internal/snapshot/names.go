// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"slices"
	"strings"
	"sync/atomic"
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
	byStem := make(map[string][]*Group, 4*len(groups))
	for i, g := range groups {
		for j := range g.versions {
			t := g.versions[j].Table
			if t == nil || j > 0 && t == g.versions[j-1].Table {
				continue
			}
			for _, r := range t.rows {
				list := strings.ToLower(r.Kind) // the stem of the names that are guessed for its list
				for _, key := range slices.Compact([]string{stem(r.Name), stem(r.Singular), list}) {
					if known := byStem[key]; known == nil {
						byStem[key] = groups[i : i+1 : i+1]
					} else if known[len(known)-1] != g {
						byStem[key] = append(known, g)
					}
				}
			}
		}
	}
	x.byStem.Store(&byStem)
}

// stem returns what most names of one resource have in common: foo for foo, foos,
// foolist and foolists. It returns "" for list and lists.
func stem(name string) string {
	return strings.TrimSuffix(strings.TrimSuffix(name, "s"), "list")
}
