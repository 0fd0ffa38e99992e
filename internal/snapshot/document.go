// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"maps"
	"slices"
	"strings"
)

// index is groups in server order, with what follows from them. The zero value has none.
type index struct {
	groups []*Group
	order  *order       // follows from the groups' names alone
	cache  *lookupCache // follows from the groups; lookups fill it in later
}

// order is where each group stands.
type order struct {
	position map[string]int
	names    []string // sorted
}

// indexed indexes groups. What has not changed since one of others, they share.
func newIndex(groups []*Group, others ...index) index {
	next := index{groups: groups, cache: new(lookupCache)}
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
func (x *index) position(group string) (i int, ok bool) {
	if x.order != nil {
		i, ok = x.order.position[group]
	}
	return i, ok
}

// Group returns the group of that name, or nil.
func (x *index) Group(name string) *Group {
	if i, ok := x.position(name); ok {
		return x.groups[i]
	}
	return nil
}

// groupsNamed returns, in server order, the group of that name, or the groups whose names
// begin with it. The caller must not change the slice.
func (x *index) groupsNamed(name string, exactly bool) []*Group {
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

// Document is what a read of /api and /apis has found. Snapshots of servers that serve the same
// may share one.
type Document struct {
	index
	aggregated bool
}

// NewDocument makes a document of groups in server order; no two have the same name. It keeps
// groups. aggregated reports whether it has the resources of every version. Then a resource
// that is not in it is not served.
func NewDocument(groups []*Group, aggregated bool) *Document {
	return &Document{newIndex(slices.Clip(groups)), aggregated}
}

// Successor is NewDocument for the document that follows d, which may be nil. Groups of which it says
// the same stay the same ones, and take their places in groups. Without resources, a document
// that says the same is d.
func (d *Document) Successor(groups []*Group, aggregated bool) *Document {
	if d == nil {
		return NewDocument(groups, aggregated)
	}
	for i, g := range groups {
		if old := d.Group(g.name); old != nil && old.sameAsDocument(g) && old.sameResourceLists(g) {
			groups[i] = old
		}
	}
	if !aggregated && !d.aggregated && slices.Equal(groups, d.groups) {
		return d
	}
	return &Document{newIndex(groups, d.index), aggregated}
}

// Listed returns what the document has of the version that a read is for, and whether it lists that, or the
// group that a read of group discovery is for. d may be nil.
func (d *Document) Listed(r Read) (v *Version, ok bool) {
	if d == nil {
		return nil, false
	}
	g := d.Group(r.Group)
	if r.Part == PartGroup {
		return nil, g != nil
	}
	v = g.Version(r.Version)
	return v, v != nil
}

// Aggregated reports whether the document has the resources of every version.
func (d *Document) Aggregated() bool { return d.aggregated }

// Groups returns the groups in server order. The caller must not change them.
func (d *Document) Groups() []*Group { return d.groups }
