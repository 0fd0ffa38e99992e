// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"slices"
)

// LiveReads lists the live reads of everything about a group: its known versions and its list.
// The best version comes first, and last those that have failed, the least recently tried of them
// first: who stops at one that hangs has read all others. A version that was found gone is among
// them if the document has it.
func (s *Snapshot) LiveReads(group string) (reads []Read) {
	if g := s.Group(group); g != nil {
		failed := func(i int32) (tried Tick) {
			if v := &g.versions[i]; v.Err != nil {
				tried = v.Tried
			}
			return tried
		}
		ranked := slices.Clone(g.ranked)
		slices.SortStableFunc(ranked, func(a, b int32) int { return cmp.Compare(failed(a), failed(b)) })
		for _, i := range ranked {
			if v := &g.versions[i]; !v.Gone || v.returned() || g.Said().Version(v.Name) != nil {
				reads = append(reads, Read{Part: PartVersion, Group: group, Version: v.Name})
			}
		}
	}
	return append(reads, Read{Part: PartList, Group: group})
}

// Due lists the live reads that a refresh makes after it has read the document: of each
// group that differs from the document. Without the aggregated document it lists the
// versions that were tried since the last reset, or have failed, or all.
//
// dropped are the reads of the groups that the document does not have, those first that
// were tried least recently. Make them in turn, and stop at the first version that is not
// gone: then the document is behind, as that of a server that starts.
func (s *Snapshot) Due(all bool) (differing [][]Read, dropped []Read) {
	if s.apart == 0 && (s.Aggregated() || !all) {
		return nil, nil
	}
	var left []*Group
	for _, g := range s.groups {
		reads := s.LiveReads(g.name)
		switch {
		case g.Said() == nil && g.reset == 0:
			left = append(left, g)
			continue
		case s.Aggregated() && g.agrees():
			continue
		case !s.Aggregated() && g.reset == 0 && g.like(g.Said(), func(v, _ *Version) bool { return !v.Gone }):
			reads = slices.DeleteFunc(reads, func(r Read) bool {
				v := g.Version(r.Version)
				return r.Part == PartList || !all && v.Err == nil && !s.tried(g, v)
			})
		}
		if len(reads) > 0 {
			differing = append(differing, reads)
		}
	}
	slices.SortStableFunc(left, func(a, b *Group) int { return cmp.Compare(a.lastTried(), b.lastTried()) })
	for _, g := range left {
		reads := s.LiveReads(g.name)
		dropped = append(dropped, reads[:len(reads)-1]...) // its versions alone decide
	}
	return differing, dropped
}

// lastTried returns when the list of g, or one of its versions, was last read live.
func (g *Group) lastTried() Tick {
	last := g.listTried
	for i := range g.versions {
		last = max(last, g.versions[i].Tried)
	}
	return last
}
