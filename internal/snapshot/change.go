// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"slices"
)

// The functions of this file return the snapshot after one event. Groups that the event
// does not touch keep their pointers. If the event changes nothing, the functions return s
// itself.

// WithDocument records that a read of the document found list. core and named are the
// ticks of the reads of its halves. 0 stands for a half that was not read: for that half
// list has the old groups.
func (s *Snapshot) WithDocument(list *List, core, named Tick) *Snapshot {
	next := *s
	next.core, next.named = max(core, s.core), max(named, s.named)
	next.aggregated, next.ordered, next.doc = list.aggregated, true, list
	if list == s.doc && s.private == 0 && s.ordered {
		return &next
	}
	next.lost = s.lossesIn(&next)
	next.groups = s.restated(&next)
	switch {
	case slices.Equal(next.groups, s.groups): // in the same order, with the same names
	case slices.Equal(next.groups, list.groups):
		next.order, next.names = list.order, list.names
	default:
		next.index(s)
	}
	next.settle(s)
	return &next
}

// lossesIn returns the versions that s knew and that the document of next has lost, by
// group.
func (s *Snapshot) lossesIn(next *Snapshot) map[string]loss {
	if next.doc == s.doc || !s.Read() {
		return s.lost
	}
	var losses map[string]loss
	for i, g := range next.doc.groups {
		if s.holds(i, g) {
			continue
		}
		old := s.groupAt(i, g.name)
		if old == nil || old == g {
			continue
		}
		gone := slices.DeleteFunc(old.names(), func(name string) bool { return g.Version(name) != nil })
		if len(gone) == 0 {
			continue
		}
		if losses == nil {
			losses = map[string]loss{}
		}
		losses[g.name] = loss{at: next.half(g.name), versions: gone}
	}
	return losses
}

// restated returns the groups of next's document, with the facts of s that remain. After
// them come the groups of s that the document does not list.
func (s *Snapshot) restated(next *Snapshot) []*Group {
	groups := next.doc.groups
	change := func(i int, g *Group) {
		if len(groups) == len(next.doc.groups) && &groups[0] == &next.doc.groups[0] {
			groups = slices.Clone(groups)
		}
		groups[i] = g
	}
	for i, doc := range next.doc.groups {
		if s.holds(i, doc) {
			continue
		}
		if old := s.groupAt(i, doc.name); old != nil && old != doc {
			if g := s.restate(next, old, doc); g != doc {
				change(i, g)
			}
		}
	}
	if s.order == next.doc.order {
		return groups // they have the same names
	}
	for _, old := range s.groups {
		if _, listed := next.doc.order.position[old.name]; !listed {
			if g := s.restate(next, old, nil); g != nil {
				groups = append(slices.Clip(groups), g)
			}
		}
	}
	return groups
}

// restate returns what becomes of the group old if next's document has it as doc; doc is
// nil if the document does not list it.
func (s *Snapshot) restate(next *Snapshot, old, doc *Group) *Group {
	if old.own == nil && doc != nil && doc.complete {
		return doc
	}
	f := factsOf(old)
	if doc != nil && !next.aggregated && sameVersions(f.doc, doc) {
		doc = f.doc // each read of lists alone makes new groups
	}
	if doc == f.doc && next.half(old.name) == s.half(old.name) {
		return old // its half was not read
	}
	restated := f.restate(doc, s.half(old.name), next.half(old.name))
	if doc == f.doc && restated.list == f.list && slices.Equal(restated.versions, f.versions) {
		return old
	}
	return restated.group(old.name)
}

// sameVersions reports whether two groups that only list their versions are the same.
func sameVersions(a, b *Group) bool {
	return a != nil && a.preferred == b.preferred && slices.EqualFunc(a.versions, b.versions, func(a, b Version) bool {
		return a.Name == b.Name && a.Table == nil && b.Table == nil
	})
}

// WithoutDropped records that the document is right about the groups that it has dropped,
// because live reads found some of them gone. Groups that were read live since then stay,
// and so do those whose names are given.
func (s *Snapshot) WithoutDropped(except ...string) *Snapshot {
	next := *s
	next.groups = slices.DeleteFunc(slices.Clone(s.groups), func(g *Group) bool {
		return g.own != nil && g.own.dropped() && !slices.Contains(except, g.name)
	})
	if len(next.groups) == len(s.groups) {
		return s
	}
	next.index(s)
	return &next
}

// Overtaken returns the snapshot after a live read that began at now, if s has a document
// that began later and has news of the group: then that read, and earlier live reads of
// the same part, no longer count. from is the snapshot when the live read began. ok
// reports whether the read was overtaken.
func (s *Snapshot) Overtaken(from *Snapshot, r Read, now Tick) (next *Snapshot, ok bool) {
	if !s.aggregated || s.half(r.Group) <= now || !from.Read() || s.doc.group(r.Group) == from.doc.group(r.Group) {
		return s, false
	}
	f := factsOf(s.Group(r.Group))
	if said := f.doc.find(r.Version); f.doc == nil || said != nil && said.Table == nil {
		return s, false // the document has dropped the group, or lacks the version's resources
	}
	if r.Part == PartList && f.list < now {
		f.list, f.listed, f.favorite, f.lacked = 0, nil, "", nil
	}
	f.versions = slices.DeleteFunc(slices.Clone(f.versions), func(v fact) bool { return v.name == r.Version && v.read < now })
	return s.withFacts(r.Group, f, 0), true
}

// WithList records a live read of the list of a group's versions that began at now.
// versions is empty if there is no such group.
func (s *Snapshot) WithList(group string, versions []string, preferred string, now Tick) *Snapshot {
	f := factsOf(s.Group(group))
	switch {
	case len(versions) == 0 && s.Group(group) == nil:
		return s.absent(group, now)
	case now <= f.list:
		return s
	}
	f.lacked = f.lacking(versions, now)
	f.list, f.listed, f.favorite, f.passed = now, slices.Clip(versions), preferred, false
	return s.withFacts(group, f, now)
}

// WithVersion records a live read of a version that began at now. table is nil if the
// server answered that there is no such version.
func (s *Snapshot) WithVersion(group, version string, table *Table, now Tick) *Snapshot {
	g := s.Group(group)
	f := factsOf(g)
	known := f.get(version)
	switch {
	case table == nil && g == nil, now <= known.read:
		return s
	case table == nil:
		f = f.without(version, now)
	default:
		if now > f.list {
			f.lacked = slices.DeleteFunc(slices.Clone(f.lacked), func(name string) bool { return name == version })
		}
		v := fact{name: version, table: g.sharedTable(version, table), read: now, live: true}
		if known.tried > now {
			v.err, v.tried = known.err, known.tried
		}
		f = f.with(v)
	}
	return s.withFacts(group, f, now)
}

// absent records that a live read of the list of an unknown group did not find the group.
func (s *Snapshot) absent(group string, now Tick) *Snapshot {
	if reset, waiting := s.groupResets[group]; !waiting || now <= reset {
		return s
	}
	next := *s
	next.settleReset(group, nil, now)
	return &next
}

// sharedTable returns the table that the group has for the version, if that equals table,
// else table; g may be nil.
func (g *Group) sharedTable(version string, table *Table) *Table {
	if v := g.find(version); v != nil && v.Table.equal(table) {
		return v.Table
	}
	return table
}

// WithFailedVersion records that a live read of a version that began at now failed. What
// was known of the version stays. Nothing is kept of an unknown version.
func (s *Snapshot) WithFailedVersion(group, version string, err error, now Tick) *Snapshot {
	g := s.Group(group)
	f := factsOf(g)
	v := f.get(version)
	if g.find(version) == nil && !v.gone || now <= max(v.read, v.tried) {
		return s
	}
	v.err, v.tried = err, now
	return s.withFacts(group, f.with(v), now)
}

// withFacts replaces the group of that name with the one that f makes. now is the tick
// of the live read that brought the facts.
func (s *Snapshot) withFacts(name string, f facts, now Tick) *Snapshot {
	old, g := s.Group(name), f.group(name)
	next := *s
	switch {
	case old == g:
		return s
	case old == nil:
		next.groups = append(slices.Clip(s.groups), g)
		next.ordered = false
	case g == nil:
		next.groups = slices.DeleteFunc(slices.Clone(s.groups), func(other *Group) bool { return other == old })
	default:
		next.groups = slices.Clone(s.groups)
		next.groups[s.order.position[name]] = g
	}
	if g != nil || f.list == now { // that a version is gone proves nothing about others
		next.settleReset(name, g, now)
	}
	next.index(s)
	return &next
}
