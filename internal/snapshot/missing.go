// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"slices"
)

// mostTimes is how often a lookup makes one read if the group keeps changing meanwhile.
const mostTimes = 3

// Missing is the table of rule R3 in DESIGN.md: it lists the reads that a lookup still needs
// before it may be answered, by group, those of one in their order. Make one and call it again.
// If it lists none, the answer is proven: a mapping if there is one, else NoMatch if no read failed.
func (s *Snapshot) Missing(q Query, p Progress) (groups [][]Read) {
	document, tried := p.Done[Read{}]
	switch {
	case !tried && s.needsDocument(q, p):
		return [][]Read{{{}}}
	case document.Err != nil && (!s.PathsAnswer(q) || p.Found && p.Any(q.Group, func(o Outcome) bool { return o.Err != nil })):
		return nil // what is known stands, or the error
	case s.Group(q.Group) == nil && q.Live() && !(p.Began == 0 && s.Aggregated() && s.Read()):
		groups = [][]Read{s.missingVersions(q.Group, q.Versions, q, p)}
		return slices.DeleteFunc(groups, func(reads []Read) bool { return len(reads) == 0 })
	}
	for _, g := range s.GroupsOf(q) {
		unseen := g.Said() == nil && len(g.versions) == 0 && g.listTried > g.reset // its list was tried in vain
		named := g.name == q.Group && !q.anyGroup()
		if reads := s.missingIn(g, q, p); len(reads) > 0 && (named || !unseen) {
			groups = append(groups, reads)
		}
		if serves := func(v Version) bool { return q.Wants(v.Name) && q.restsOn(&v) }; !q.All && slices.ContainsFunc(g.versions, serves) {
			break // it does not matter what the groups after it serve
		}
	}
	return groups
}

// needsDocument reports whether a lookup needs the document first: nothing was ever read,
// or it was read before the last reset, or before a lookup that found nothing and may find
// it in a group that is not known.
func (s *Snapshot) needsDocument(q Query, p Progress) bool {
	return s.document <= s.reset || !p.Found && !s.PathsAnswer(q) && s.document <= p.Began
}

// PathsAnswer reports whether the paths of the group that a lookup names can answer it without
// the document: R1.
func (s *Snapshot) PathsAnswer(q Query) bool {
	return q.InOneGroup() && (q.Live() || s.Group(q.Group) != nil)
}

// missingIn lists what a lookup needs of one group. A lookup that has found something
// needs what was never tried, or not since the last reset. One that has found nothing
// needs a live read of each version that it searches, and of the list.
func (s *Snapshot) missingIn(g *Group, q Query, p Progress) []Read {
	believed := p.Began == 0 || q.anyGroup() || g.name != q.Group // the document, which the lookup has read
	if !p.Found && believed && s.Aggregated() && g.agrees() {
		return nil
	}
	list := Read{Part: PartList, Group: g.name}
	o, tried := p.Done[list]
	versions := q.Versions
	if q.anyVersion() {
		versions = g.rankedNames()
	}
	reads := s.missingVersions(g.name, versions, q, p)
	needed, known := q.anyVersion() || p.Found && (!q.InOneGroup() || len(versions) > 1), s.currentList(g)
	if !p.Found {
		named := believed && !s.Aggregated() && g.Said() != nil && len(g.served()) == len(g.versions) // by the document
		known = g.listed > p.Began || named || p.Any(g.name, func(o Outcome) bool { return o.Gone })
	}
	overtaken := tried && o.Times < mostTimes && o.Err == nil && s.news > o.Tick
	if needed && !known && (!tried || overtaken) {
		reads = append(reads, list)
	}
	return reads
}

// missingVersions lists the reads of those of the versions that the lookup still needs. If
// the best version that it rests on is current, worse ones need only be tried once.
func (s *Snapshot) missingVersions(group string, versions []string, q Query, p Progress) (reads []Read) {
	g := s.Group(group)
	answered, changed := false, g.changed(versions)
	for _, name := range versions {
		read := Read{Part: PartVersion, Group: group, Version: name}
		o, v := p.Done[read], g.Version(name)
		if v != nil {
			o.Tick = max(o.Tick, v.Tried)
		}
		enough := p.Found && (v == nil || s.current(g, v) || s.tried(g, v) && !q.restsOn(v) || answered && v.attempted())
		older := o.Tick <= p.Began // than the lookup
		news := o.Err == nil && (s.news > o.Tick || (len(versions) > 1 || q.anyVersion()) && changed > o.Tick)
		switch {
		case enough:
			answered = answered || !q.All && !q.ByResource && q.anyVersion() && q.restsOn(v)
		case o.Times < mostTimes && (older || news):
			reads = append(reads, read)
		}
	}
	// What is made again comes last: only then does it show what moved away from the others.
	slices.SortStableFunc(reads, func(a, b Read) int { return cmp.Compare(p.Done[a].Times, p.Done[b].Times) })
	return reads
}

// changed returns when one of the versions that still serve something was last found changed: a
// kind may have moved to one that was read before. g may be nil.
func (g *Group) changed(versions []string) (last Tick) {
	for _, name := range versions {
		if v := g.Version(name); v != nil && v.Table != nil {
			last = max(last, v.changed)
		}
	}
	return last
}
