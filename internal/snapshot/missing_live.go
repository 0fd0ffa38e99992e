// SPDX-License-Identifier: Apache-2.0

package snapshot

import "slices"

// lost asks live for the versions that the document no longer had when the lookup read
// it.
func (l *lookup) lost() []Read {
	var reads []Read
	for _, name := range l.ownLoss() {
		reads = l.unless(reads, versionOf(l.q.Group, name))
	}
	return reads
}

func (l *lookup) ownLoss() []string {
	lost := l.s.lost[l.q.Group]
	if own := l.p.document(l.half()); own.Times > 0 && lost.at == own.Tick && l.known() != nil {
		return lost.versions
	}
	return nil
}

// list asks for the groups' own lists, unless the lookup has found that the group has
// shrunk. It also asks for the lists of unknown groups that were reset, because the
// document may be behind.
func (l *lookup) list() []Read {
	var reads []Read
	for _, group := range l.s.awaitedUnknown(l.q) {
		reads = l.unless(reads, listOf(group))
	}
	for _, g := range l.suspects() {
		if l.q.anyVersion() && (g != l.known() || !l.shrunk()) {
			reads = l.unless(reads, listOf(g.name))
		}
	}
	return reads
}

// shrunk reports whether the lookup itself has found that a version of the group went.
// Then the group's list, which is made from APIServices, is most likely behind, and
// upstream's test allows only two requests. So the lookup does not read the list. If a
// document has lost versions and still lists one, it is right if live reads find the lost
// ones gone.
func (l *lookup) shrunk() bool {
	if l.s.waits(l.q.Group) {
		return false // a reset demands a read of the list
	}
	if l.s.aggregated {
		lost := l.ownLoss()
		return len(lost) > 0 && len(l.known().everyName()) == 1 && !slices.ContainsFunc(lost, func(name string) bool {
			return !l.p.Done[versionOf(l.q.Group, name)].Absent
		})
	}
	for r, o := range l.p.Done {
		if r.Part == PartVersion && r.Group == l.q.Group && o.Absent && o.Known {
			return true
		}
	}
	return false
}

// everyVersion asks live for every version that the lookup has not read itself: in the
// suspects, or, if the document only lists versions, in all groups of the lookup. That
// includes versions that were found gone but that a list still has.
func (l *lookup) everyVersion() []Read {
	var reads []Read
	groups := l.groups
	if l.s.aggregated {
		groups = l.suspects()
	}
	for _, g := range groups {
		if l.s.aggregated && g == l.known() && l.shrunk() {
			continue // upstream's test allows no third request
		}
		for _, name := range append(g.everyName(), l.unseen(g)...) {
			if l.q.wants(name) {
				reads = l.unless(reads, versionOf(g.name, name))
			}
		}
	}
	return reads
}

// contradictory asks for the half of the document that the group is in, if the document
// had what the live versions do not have when it was last read.
func (l *lookup) contradictory() []Read {
	if g := l.known(); g == nil || len(l.hintsOf(g)) == 0 {
		return nil
	}
	return l.ownHalf()
}

// mostPasses is how often a lookup reads the versions of a group if the document has what
// the live versions do not have. Either the document is behind, or the kind is moving
// from one version to another and each read has missed it.
const mostPasses = 3

// contradiction asks for another pass over all versions in that case, and for the group's
// list, which may have a new version.
func (l *lookup) contradiction() []Read {
	again := func(r Read) bool { return l.p.Done[r].Err == nil && l.p.Done[r].Times < mostPasses }
	var reads []Read
	for _, g := range l.groups {
		if len(l.hintsOf(g)) == 0 {
			continue
		}
		var pass []Read
		for _, name := range g.everyName() {
			if r := versionOf(g.name, name); l.q.wants(name) && again(r) {
				pass = append(pass, r)
			}
		}
		if list := listOf(g.name); len(pass) > 0 && l.q.anyVersion() && again(list) {
			pass = slices.Insert(pass, 0, list)
		}
		reads = append(reads, pass...)
	}
	return reads
}
