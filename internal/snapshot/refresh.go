// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"slices"
)

// LiveReads lists the live reads of everything about a group: its known versions, the best one
// first, and its list. A version that was found gone is among them if somebody has named it since,
// or the document has it.
func (s *Snapshot) LiveReads(group string) (reads []Read) {
	if g := s.Group(group); g != nil {
		for _, i := range g.ranked {
			if v := &g.versions[i]; !v.Removed || v.returned() || g.laid().document.Version(v.Name) != nil {
				reads = append(reads, ReadVersion(group, v.Name))
			}
		}
	}
	return append(reads, ReadGroup(group))
}

// RefreshReads lists the live reads that a refresh makes after it has read the document (R5): of each group
// that differs from the document. Without the aggregated document it lists the versions that were
// tried since the last reset, or have failed, without those of idle groups, or all.
//
// dropped are the versions that the document no longer has with their groups, the least recently
// asked first. Make these reads in turn, and stop at the first version that is not gone: then the
// document is behind, as that of a server that starts.
func (s *Snapshot) RefreshReads(all bool, idle map[string]bool) (differing [][]Read, dropped []Read) {
	asked := map[Read]Seq{}
	for _, g := range s.groups {
		same := g.sameAsDocument(g.laid().document)
		if same && s.Aggregated() {
			continue
		}
		reads, o := s.LiveReads(g.name), g.laid()
		versions := reads[:len(reads)-1]
		switch {
		case o.document == nil:
			for _, r := range versions {
				asked[r] = g.Version(r.Version).TriedSeq
			}
			dropped = append(dropped, versions...)
			continue
		case same && !all && idle[g.name]:
			continue
		case same && !all:
			reads = slices.DeleteFunc(versions, func(r Read) bool {
				v := g.Version(r.Version)
				return v.Err == nil && !s.asked(g, v)
			})
		case same:
			reads = versions
		}
		if len(reads) > 0 {
			differing = append(differing, reads)
		}
	}
	slices.SortStableFunc(dropped, func(a, b Read) int { return cmp.Compare(asked[a], asked[b]) })
	return differing, dropped
}
