// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"slices"
)

// LiveReads lists the live reads of everything about a group: its known versions, the best one first, and group
// discovery. A version that was found removed is among them if it was listed since, or the document has it.
func (s *Snapshot) LiveReads(group string) []Read {
	return append(s.versionPaths(s.Group(group)), ReadGroup(group))
}

// versionPaths lists the live reads of the versions. g may be nil.
func (s *Snapshot) versionPaths(g *Group) (reads []Read) {
	if g == nil {
		return nil
	}
	documented := s.documented(g.name)
	for _, i := range g.ranked {
		name := g.versions[i].Name
		if g.overlayReads(int(i)).mayBeServed() || documented.indexOf(name) >= 0 {
			reads = append(reads, ReadVersion(g.name, name))
		}
	}
	return reads
}

// RefreshReads lists the live reads that a refresh makes after it has read the document (R5):
//
//	a group that the document does not have            its versions, among dropped
//	a group that differs from the document             its versions and group discovery
//	a group that is as the aggregated document says    none: the document has confirmed it
//	a group that is as a legacy document says, idle    none
//	a group that is as a legacy document says          its versions that were tried since the last reset or have failed
//
// A document is a legacy one if it has no resources. With all, each version of such groups is read.
//
// dropped has the least recently tried versions first. Make these reads in turn, and stop at the first version that
// is still served: then the document is behind, as that of a server that starts.
func (s *Snapshot) RefreshReads(all bool, idle map[string]bool) (differing [][]Read, dropped []Read) {
	tried := map[Read]Seq{}
	for _, g := range s.groups {
		documented := s.documented(g.name)
		var reads []Read
		switch {
		case documented == nil:
			for _, r := range s.versionPaths(g) {
				dropped = append(dropped, r)
				tried[r] = s.lastLiveRead(g, r.Version)
			}
		case !g.sameAsDocument(documented):
			reads = s.LiveReads(g.name)
		case s.Aggregated():
		case all:
			reads = s.versionPaths(g)
		case !idle[g.name]:
			reads = s.versionsInUse(g)
		}
		if len(reads) > 0 {
			differing = append(differing, reads)
		}
	}
	slices.SortStableFunc(dropped, func(a, b Read) int { return cmp.Compare(tried[a], tried[b]) })
	return differing, dropped
}

// versionsInUse lists the reads of those versions that were tried since the last reset, or have failed.
func (s *Snapshot) versionsInUse(g *Group) []Read {
	return slices.DeleteFunc(s.versionPaths(g), func(r Read) bool {
		i := g.indexOf(r.Version)
		return g.versions[i].Err == nil && s.readsOf(g, i).lastTried() <= s.resetSeq
	})
}
