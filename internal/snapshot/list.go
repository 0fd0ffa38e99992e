// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"maps"
	"slices"
	"strings"
)

// order holds the positions of the groups in a snapshot. It depends on their names alone,
// so snapshots share it while only the contents of groups change.
type order struct {
	position map[string]int
	names    []string // sorted
}

func newOrder(groups []*Group) *order {
	o := &order{position: make(map[string]int, len(groups))}
	for i, g := range groups {
		o.position[g.name] = i
	}
	o.names = slices.Sorted(maps.Keys(o.position))
	return o
}

// groupsNamed returns, in server order, the group of that name, or the groups whose names
// begin with it. The caller must not change the slice.
func (s *Snapshot) groupsNamed(name string, exactly bool) []*Group {
	if i, ok := s.position(name); exactly && ok {
		return s.groups[i : i+1]
	}
	if exactly || s.order == nil {
		return nil
	}
	from, _ := slices.BinarySearch(s.order.names, name)
	positions := make([]int, 0, 8) // on the stack, if they suffice
	for _, longer := range s.order.names[from:] {
		if !strings.HasPrefix(longer, name) {
			break
		}
		positions = append(positions, s.order.position[longer])
	}
	if len(positions) == 1 { // as for nearly every query
		return s.groups[positions[0]:][:1]
	}
	slices.Sort(positions)
	found := make([]*Group, len(positions))
	for i, position := range positions {
		found[i] = s.groups[position]
	}
	return found
}

// List is the groups of one server with their order. Snapshots of servers that
// serve the same may share one.
type List struct {
	groups     []*Group
	order      *order
	names      *nameIndex
	aggregated bool
}

// NewList makes a list of groups in server order; no two have the same name. It keeps
// groups. aggregated reports whether their document has the resources of every version.
// Then a resource that is not in it is not served.
func NewList(groups []*Group, aggregated bool) *List {
	return &List{groups: slices.Clip(groups), order: newOrder(groups), names: new(nameIndex), aggregated: aggregated}
}

// Next is NewList for the list that follows l, which may be nil. Groups of which it says the
// same stay the same ones. If only the contents of groups have changed, the lists share
// their order. Without resources, a list that says the same is l.
func (l *List) Next(groups []*Group, aggregated bool) *List {
	if l == nil {
		return NewList(groups, aggregated)
	}
	groups = slices.Clone(groups)
	for i, g := range groups {
		if old := l.group(g.name); old != nil && old.saysLike(g) {
			groups[i] = old
		}
	}
	switch {
	case !aggregated && !l.aggregated && slices.Equal(groups, l.groups):
		return l
	case sameNames(groups, l.groups):
		return &List{groups: groups, order: l.order, names: new(nameIndex), aggregated: aggregated}
	default:
		return NewList(groups, aggregated)
	}
}

// group returns the group of that name, or nil.
func (l *List) group(name string) *Group {
	if i, ok := l.order.position[name]; ok {
		return l.groups[i]
	}
	return nil
}

// Groups returns the groups in server order. The caller must not change them.
func (l *List) Groups() []*Group { return l.groups }

// Unique reports whether no two groups have the same name.
func (l *List) Unique() bool { return len(l.order.position) == len(l.groups) }

func sameNames(a, b []*Group) bool {
	return slices.EqualFunc(a, b, func(a, b *Group) bool { return a == b || a.name == b.name })
}
