// SPDX-License-Identifier: Apache-2.0

package snapshot

import "slices"

// outdated asks for what was read before a reset, and for versions that were listed and
// never read. It leaves out hopeless versions, because they may fail for days.
func (l *lookup) outdated() []Read {
	var reads []Read
	for _, g := range l.groups {
		if l.leftAlone(g) {
			continue
		}
		reset, waiting := l.s.groupResets[g.name]
		if waiting && l.q.anyVersion() && (g.own == nil || g.own.list <= reset) {
			reads = l.unless(reads, listOf(g.name))
		}
		for _, name := range l.outdatedIn(g) {
			reads = l.unless(reads, versionOf(g.name, name))
		}
	}
	return reads
}

// outdatedIn lists the versions of g that outdated asks for: those that were read before
// a reset or never, those that were found gone before a reset, and, after a reset of the
// group, those that the lookup names and nobody has seen.
func (l *lookup) outdatedIn(g *Group) []string {
	var names []string
	for _, i := range g.ranked {
		if v := &g.versions[i]; !l.s.settled(g, v) && !l.hopeless(g, v) {
			names = append(names, v.Name)
		}
	}
	for _, name := range l.s.outdatedAbsences(g) {
		if v := g.own.get(name); g == l.known() || v.err == nil || !l.s.fresh(g, v.tried, true) {
			names = append(names, name)
		}
	}
	names = append(names, l.unseen(g)...)
	return slices.DeleteFunc(names, func(name string) bool { return !l.q.wants(name) })
}

// unseen lists the versions that the lookup names and that are neither known nor listed,
// if the group waits for a live read. The document may be behind and lack them.
func (l *lookup) unseen(g *Group) []string {
	if !l.s.waits(g.name) {
		return nil
	}
	known := g.everyName()
	return slices.DeleteFunc(slices.Clone(l.q.Versions), func(name string) bool { return slices.Contains(known, name) })
}

// hopeless reports whether a version, of another group than the one that the lookup
// names, has failed since the last reset, and did not have what is looked for when it was
// last read.
func (l *lookup) hopeless(g *Group, v *Version) bool {
	return g != l.known() && l.s.gaveUp(g, v) && !v.Table.serves(l.q)
}

// leftAlone reports whether the group has versions and all of them are hopeless.
func (l *lookup) leftAlone(g *Group) bool {
	return len(g.versions) > 0 && !slices.ContainsFunc(g.versions, func(v Version) bool { return !l.hopeless(g, &v) })
}

// Returned reports whether an answer to q may rest only on a document that was read after
// a live read of the lookup itself: a read that found the version gone, or a read of the
// group's list. Such a document may be behind.
func (s *Snapshot) Returned(q Query, p Progress) bool {
	l := &lookup{s: s, q: q, p: p, groups: s.GroupsOf(q)}
	return len(l.returned()) > 0
}

// returned asks again for such versions, up to mostPasses times.
func (l *lookup) returned() []Read {
	var reads []Read
	for _, g := range l.groups {
		list := l.p.Done[listOf(g.name)]
		for _, i := range g.ranked {
			v := &g.versions[i]
			r := versionOf(g.name, v.Name)
			o := l.p.Done[r]
			overruled := o.Absent || o.Times == 0 && list.Times > 0 && l.s.half(g.name) > list.Tick
			if overruled && !v.Live && l.q.wants(v.Name) && v.Table.serves(l.q) && o.Times < mostPasses {
				reads = append(reads, r)
			}
		}
	}
	return reads
}
