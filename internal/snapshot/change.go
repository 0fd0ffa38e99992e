// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"maps"
	"slices"
)

// The functions of this file return the snapshot that follows from s and one
// event. Groups that the event does not touch keep their pointers; so does s
// itself where nothing follows.

// Clock numbers the resets. A read takes it along when it begins and hands it to
// the function that records what it found.
func (s *Snapshot) Clock() uint64 { return s.clock }

// Reset asks for a bulk read that starts after it before anything else is settled.
func (s *Snapshot) Reset() *Snapshot {
	next := *s
	next.clock++
	next.resets = next.clock
	return &next
}

// ResetGroup asks for a read of one group that starts after it.
func (s *Snapshot) ResetGroup(group string) *Snapshot {
	next := *s
	next.groupsResets = maps.Clone(s.groupsResets)
	if next.groupsResets == nil {
		next.groupsResets = map[string]uint64{}
	}
	next.clock++
	next.groupsResets[group] = next.clock
	return &next
}

// WithBulk records a bulk read that began at clock and found list. What is not in
// it is gone. A version without a table, because the read only lists it or says
// that it is stale, keeps the table it had.
func (s *Snapshot) WithBulk(list *List, clock uint64) *Snapshot {
	if s.holds(list) {
		next := *s
		next.readAt, next.groupsResets = max(clock, s.readAt), s.resetsAfter(clock)
		return &next
	}
	next := &Snapshot{
		read: true, ordered: true, aggregated: list.aggregated,
		clock: s.clock, resets: s.resets, readAt: max(clock, s.readAt), generation: s.generation,
	}
	next.groups, next.order = s.carryOverAll(list.groups), list.order
	next.names = s.namesAfter(next.groups, list)
	next.groupsResets = s.resetsAfter(clock)
	next.settle(s)
	return next
}

// namesAfter returns the index of names that belongs to groups, which were made of list.
func (s *Snapshot) namesAfter(groups []*Group, list *List) *nameIndex {
	switch {
	case slices.Equal(groups, s.groups):
		return s.names
	case slices.Equal(groups, list.groups):
		return list.names
	default:
		return new(nameIndex)
	}
}

// holds says that s is what a bulk read has made of list, and nothing has
// happened since.
func (s *Snapshot) holds(list *List) bool {
	return s.read && s.ordered && s.aggregated == list.aggregated && len(s.groups) == len(list.groups) &&
		(len(s.groups) == 0 || &s.groups[0] == &list.groups[0])
}

// carryOverAll is carryOver for each group; it returns its argument if nothing is carried over.
func (s *Snapshot) carryOverAll(groups []*Group) []*Group {
	result := groups
	for i, g := range groups {
		merged := s.carryOver(g)
		if merged == g {
			continue
		}
		if &result[0] == &groups[0] {
			result = slices.Clone(groups)
		}
		result[i] = merged
	}
	return result
}

// resetsAfter returns the resets of groups that a read of everything, begun at clock, leaves open.
func (s *Snapshot) resetsAfter(clock uint64) map[string]uint64 {
	if len(s.groupsResets) == 0 {
		return nil
	}
	open := maps.Clone(s.groupsResets)
	maps.DeleteFunc(open, func(_ string, n uint64) bool { return n <= clock })
	return open
}

// carryOver gives those versions of a group just read that come without a table the one they had.
func (s *Snapshot) carryOver(g *Group) *Group {
	if g.complete {
		return g
	}
	old := s.Group(g.name)
	if old == nil {
		return g
	}
	versions := slices.Clone(g.versions)
	for i := range versions {
		v, before := &versions[i], old.Version(versions[i].Name)
		if v.Table != nil || before == nil {
			continue
		}
		v.Table = before.Table
		servable := s.servable(g.name)
		v.Outdated = before.Table != nil && (before.Outdated || !servable)
		if v.Err == nil && servable {
			v.Err = before.Err // a reset asks for another try
		}
	}
	merged := NewGroup(g.name, g.preferred, versions, g.listed)
	if old.equal(merged) {
		return old
	}
	return merged
}

// WithGroup records a live read of one group that began at clock. It replaces
// the group, but for versions that failed: they keep the table they had.
func (s *Snapshot) WithGroup(g *Group, clock uint64) *Snapshot {
	next := s.replace(g.name, s.carryOver(g))
	return next.groupRead(g.name, clock)
}

// WithoutGroup records that a read begun at clock found that the group is not served.
func (s *Snapshot) WithoutGroup(group string, clock uint64) *Snapshot {
	return s.replace(group, nil).groupRead(group, clock)
}

func (s *Snapshot) groupRead(group string, clock uint64) *Snapshot {
	if n, waiting := s.groupsResets[group]; !waiting || n > clock {
		return s
	}
	next := *s
	next.groupsResets = maps.Clone(s.groupsResets)
	delete(next.groupsResets, group)
	return &next
}

// WithVersion records a live read of one version.
func (s *Snapshot) WithVersion(group string, v Version) *Snapshot {
	g := s.Group(group)
	if g == nil {
		return s.replace(group, NewGroup(group, "", []Version{v}, false))
	}
	if old := g.Version(v.Name); old != nil && old.Known() && old.Err == nil && old.Table.equal(v.Table) {
		return s
	}
	return s.replace(group, g.withVersion(v))
}

// WithoutVersion records that a live read found that the version is not served.
func (s *Snapshot) WithoutVersion(group, version string) *Snapshot {
	g := s.Group(group)
	if g == nil || g.Version(version) == nil {
		return s
	}
	return s.replace(group, g.withoutVersion(version))
}

// WithFailedVersion records that a live read of a version failed. What was known
// of it stays; of a version never heard of nothing is kept.
func (s *Snapshot) WithFailedVersion(group, version string, err error) *Snapshot {
	g := s.Group(group)
	if g == nil || g.Version(version) == nil {
		return s
	}
	v := *g.Version(version)
	v.Err = err
	return s.replace(group, g.withVersion(v))
}

// replace returns s with g in the place of the group of that name; nil removes
// it. A group that is new goes to the end, where the server may not have it.
func (s *Snapshot) replace(name string, g *Group) *Snapshot {
	old := s.Group(name)
	if old == g || g != nil && old.equal(g) {
		return s
	}
	next := *s
	switch {
	case old == nil:
		next.groups = append(slices.Clip(s.groups), g)
		next.ordered = false
	case g == nil:
		next.groups = slices.DeleteFunc(slices.Clone(s.groups), func(other *Group) bool { return other == old })
	default:
		next.groups = slices.Clone(s.groups)
		next.groups[s.order.position[name]] = g
	}
	next.index(s)
	return &next
}

// index fills in the order of next.groups, taking it over from s where it still
// holds, and leaves it to lookups to index their names.
func (next *Snapshot) index(s *Snapshot) {
	next.names = new(nameIndex)
	if s.order != nil && sameNames(next.groups, s.groups) {
		next.order = s.order
	} else {
		next.order = newOrder(next.groups)
	}
	next.settle(s)
}

// settle fills in what follows from next.groups and from the snapshot before.
func (next *Snapshot) settle(s *Snapshot) {
	next.incomplete = 0
	for _, g := range next.groups {
		if !g.tried {
			next.incomplete++
		}
	}
	if !s.read && next.read || servedDifferently(s, next) {
		next.generation = s.generation + 1
	}
}
