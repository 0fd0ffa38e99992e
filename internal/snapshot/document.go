// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"slices"
	"sort"
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
	places map[string]place
	sorted []int32 // the positions of the groups, sorted by name
}

// place is where one group stands.
type place struct {
	position int32 // in server order
	rank     int32 // in order.sorted
}

// newIndex indexes groups. What has not changed since one of others, they share.
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
	if next.order == nil {
		next.order = newOrder(groups)
	}
	return next
}

func newOrder(groups []*Group) *order {
	o := &order{places: make(map[string]place, len(groups)), sorted: make([]int32, len(groups))}
	for i := range groups {
		o.sorted[i] = int32(i)
	}
	slices.SortFunc(o.sorted, func(a, b int32) int { return strings.Compare(groups[a].name, groups[b].name) })
	for rank, position := range o.sorted {
		o.places[groups[position].name] = place{position, int32(rank)}
	}
	return o
}

// position returns where the group of that name stands.
func (x *index) position(group string) (i int, ok bool) {
	if x.order == nil {
		return 0, false
	}
	p, ok := x.order.places[group]
	return int(p.position), ok
}

// Group returns the group of that name, or nil.
func (x *index) Group(name string) *Group {
	if i, ok := x.position(name); ok {
		return x.groups[i]
	}
	return nil
}

// groupNamed returns the group of that name, if there is one. The caller must not change the slice.
func (x *index) groupNamed(name string) []*Group {
	if i, ok := x.position(name); ok {
		return x.groups[i : i+1 : i+1]
	}
	return nil
}

// groupsWithPrefix returns, in server order, the groups whose names begin with prefix. The caller must not change the
// slice.
func (x *index) groupsWithPrefix(prefix string) []*Group {
	if x.order == nil {
		return nil
	}
	positions := make([]int32, 0, 8) // on the stack, if they suffice
	for _, i := range x.order.sorted[x.firstWithPrefix(prefix):] {
		if !strings.HasPrefix(x.groups[i].name, prefix) {
			break
		}
		positions = append(positions, i)
	}
	if len(positions) == 1 { // as for nearly every query
		i := positions[0]
		return x.groups[i : i+1 : i+1]
	}
	slices.Sort(positions)
	found := make([]*Group, len(positions))
	for i, position := range positions {
		found[i] = x.groups[position]
	}
	return found
}

// firstWithPrefix returns where in order.sorted the groups begin whose names begin with prefix, if there are any.
// Mostly one has exactly that name, and is the first. A function that is given to slices.BinarySearchFunc would move
// the caller's query to the heap.
func (x *index) firstWithPrefix(prefix string) int {
	if p, ok := x.order.places[prefix]; ok {
		return int(p.rank)
	}
	return sort.Search(len(x.order.sorted), func(rank int) bool {
		return x.groups[x.order.sorted[rank]].name >= prefix
	})
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
