// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"maps"
	"slices"
	"strings"
)

// groupIndex is groups in server order, with what follows from them. The zero value has none.
type groupIndex struct {
	groups []*Group
	order  *order     // follows from the groups' names alone
	names  *nameIndex // follows from the groups; lookups fill it in later
}

// order is where each group stands.
type order struct {
	position map[string]int
	names    []string // sorted
}

// index indexes groups. What has not changed since one of others, they share.
func index(groups []*Group, others ...groupIndex) groupIndex {
	next := groupIndex{groups: groups, names: new(nameIndex)}
	for _, other := range others {
		if slices.Equal(groups, other.groups) {
			return other
		}
		if slices.EqualFunc(groups, other.groups, func(a, b *Group) bool { return a.name == b.name }) {
			next.order = other.order
		}
	}
	if next.order != nil {
		return next
	}
	next.order = &order{position: make(map[string]int, len(groups))}
	for i, g := range groups {
		next.order.position[g.name] = i
	}
	next.order.names = slices.Sorted(maps.Keys(next.order.position))
	return next
}

// position returns where the group of that name stands.
func (x *groupIndex) position(group string) (i int, ok bool) {
	if x.order != nil {
		i, ok = x.order.position[group]
	}
	return i, ok
}

// Group returns the group of that name, or nil.
func (x *groupIndex) Group(name string) *Group {
	if i, ok := x.position(name); ok {
		return x.groups[i]
	}
	return nil
}

// groupsNamed returns, in server order, the group of that name, or the groups whose names
// begin with it. The caller must not change the slice.
func (x *groupIndex) groupsNamed(name string, exactly bool) []*Group {
	if i, ok := x.position(name); exactly && ok {
		return x.groups[i:][:1]
	}
	if exactly || x.order == nil {
		return nil
	}
	from, _ := slices.BinarySearch(x.order.names, name)
	positions := make([]int, 0, 8) // on the stack, if they suffice
	for _, longer := range x.order.names[from:] {
		if !strings.HasPrefix(longer, name) {
			break
		}
		positions = append(positions, x.order.position[longer])
	}
	if len(positions) == 1 { // as for nearly every query
		return x.groups[positions[0]:][:1]
	}
	slices.Sort(positions)
	found := make([]*Group, len(positions))
	for i, position := range positions {
		found[i] = x.groups[position]
	}
	return found
}

// List is what a document says. Snapshots of servers that serve the same may share one.
type List struct {
	groupIndex
	aggregated bool
}

// NewList makes a list of groups in server order; no two have the same name. It keeps
// groups. aggregated reports whether their document has the resources of every version.
// Then a resource that is not in it is not served.
func NewList(groups []*Group, aggregated bool) *List {
	return &List{index(slices.Clip(groups)), aggregated}
}

// Next is NewList for the list that follows l, which may be nil. Groups of which it says the
// same stay the same ones, and take their places in groups. Without resources, a list that says
// the same is l.
func (l *List) Next(groups []*Group, aggregated bool) *List {
	if l == nil {
		return NewList(groups, aggregated)
	}
	for i, g := range groups {
		if old := l.Group(g.name); old != nil && old.saysLike(g) {
			groups[i] = old
		}
	}
	if !aggregated && !l.aggregated && slices.Equal(groups, l.groups) {
		return l
	}
	return &List{index(groups, l.groupIndex), aggregated}
}

// Groups returns the groups in server order. The caller must not change them.
func (l *List) Groups() []*Group { return l.groups }
