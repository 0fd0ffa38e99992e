// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"maps"
	"slices"
	"strings"
)

// Snapshot is what one server was last known to serve. The zero Snapshot knows
// nothing and is where every mapper starts.
type Snapshot struct {
	groups []*Group   // in server order
	order  *order     // where each group stands; shared by snapshots whose groups have the same names
	names  *nameIndex // nil only where there are no groups; shared by snapshots of the same groups

	read       bool   // a bulk read has succeeded
	aggregated bool   // and it said what is in every version
	ordered    bool   // the order of groups is the server's own
	incomplete int    // how many groups have a version that nobody tried to read
	generation uint64 // moves when what is served changes

	// A reset asks for a read that starts after it. Resets are numbered; reads
	// carry the number that was current when they began.
	clock        uint64            // the last reset of any kind; never goes back
	resets       uint64            // the last reset of everything
	readAt       uint64            // the number at which the last bulk read began
	groupsResets map[string]uint64 // groups that have to be read again, and since which number
}

// order says where groups stand in a snapshot. It depends on their names alone,
// so a snapshot whose groups changed inside takes it over from the last one.
type order struct {
	position map[string]int
	longer   map[string][]int // of a group: the groups whose names begin with its name, itself left out
}

func newOrder(groups []*Group) *order {
	o := &order{position: make(map[string]int, len(groups)), longer: map[string][]int{}}
	for i, g := range groups {
		o.position[g.name] = i
	}
	o.findLonger()
	return o
}

// findLonger goes through the names in alphabetical order, in which those that
// begin with a name come right after it.
func (o *order) findLonger() {
	var begun []string // the names that the current one begins with, shorter ones first
	for _, name := range slices.Sorted(maps.Keys(o.position)) {
		for len(begun) > 0 && !strings.HasPrefix(name, begun[len(begun)-1]) {
			begun = begun[:len(begun)-1]
		}
		for _, shorter := range begun {
			o.longer[shorter] = append(o.longer[shorter], o.position[name])
		}
		if name != "" {
			begun = append(begun, name)
		}
	}
	for _, longer := range o.longer {
		slices.Sort(longer)
	}
}

// List is the groups of one server with their order. Snapshots of servers that
// serve the same may share one.
type List struct {
	groups     []*Group
	order      *order
	names      *nameIndex
	aggregated bool
}

// NewList makes a list of groups in server order, no two of the same name. It
// keeps groups. aggregated says that they come from a document that says what is
// in every version, so that one it does not list is not served.
func NewList(groups []*Group, aggregated bool) *List {
	return newList(groups, newOrder(groups), aggregated)
}

func newList(groups []*Group, order *order, aggregated bool) *List {
	return &List{groups: slices.Clip(groups), order: order, names: new(nameIndex), aggregated: aggregated}
}

// Next is NewList for the list that follows on l, which may be nil: where only
// what is in the groups has changed, it saves working out their order again.
func (l *List) Next(groups []*Group, aggregated bool) *List {
	if l == nil || !sameNames(groups, l.groups) {
		return NewList(groups, aggregated)
	}
	return newList(groups, l.order, aggregated)
}

// Unique says that no two groups have the same name.
func (l *List) Unique() bool { return len(l.order.position) == len(l.groups) }

func sameNames(a, b []*Group) bool {
	return slices.EqualFunc(a, b, func(a, b *Group) bool { return a.name == b.name })
}

// Group returns the group of that name, or nil.
func (s *Snapshot) Group(name string) *Group {
	if s.order == nil {
		return nil
	}
	if i, ok := s.order.position[name]; ok {
		return s.groups[i]
	}
	return nil
}

// Groups returns the groups in server order. The caller must not change them.
func (s *Snapshot) Groups() []*Group { return s.groups }

// Generation moves when the served API changes, and only then: not when a
// version is read for the first time that was listed all along.
func (s *Snapshot) Generation() uint64 { return s.generation }

// Read says whether any bulk read has succeeded.
func (s *Snapshot) Read() bool { return s.read }

// Aggregated says that the last bulk read was of the aggregated document.
func (s *Snapshot) Aggregated() bool { return s.aggregated }

// Complete says that every version of every group has been read, or tried to.
func (s *Snapshot) Complete() bool { return s.complete(selection{}) }

// Outdated says that a reset is waiting for a bulk read that starts after it.
func (s *Snapshot) Outdated() bool { return s.readAt < s.resets }

// GroupOutdated says that a reset of this group is waiting for a read that starts after it.
func (s *Snapshot) GroupOutdated(group string) bool {
	_, waiting := s.groupsResets[group]
	return waiting
}

// Kinds counts the kinds of all versions that were read.
func (s *Snapshot) Kinds() int {
	n := 0
	for _, g := range s.groups {
		for i := range g.versions {
			if t := g.versions[i].Table; t != nil {
				n += len(t.kinds)
			}
		}
	}
	return n
}

// servable says that answers about the group need no read first, as far as resets go.
func (s *Snapshot) servable(group string) bool {
	return !s.Outdated() && (len(s.groupsResets) == 0 || !s.GroupOutdated(group))
}

// complete says that nothing has to be read before the selected groups may
// answer: every version was read or, outside the very group that was asked for,
// at least tried. A version that fails, for days perhaps, must not make every
// lookup that searches many groups ask for it again.
func (s *Snapshot) complete(sel selection) bool {
	if s.Outdated() || !s.read {
		return false
	}
	for group := range s.groupsResets {
		if strings.HasPrefix(group, sel.group) {
			return false
		}
	}
	if sel.group == "" {
		return s.ordered && s.incomplete == 0
	}
	complete, selected := true, 0
	s.each(sel, func(g *Group) {
		complete = complete && (g.complete || g.name != sel.group && g.tried)
		selected++
	})
	return complete && (s.ordered || selected == 1)
}

// selection names the groups that a resource query without a full group and
// version is put to: those whose name begins with group, which are all when it
// is empty. This is how client-go lets "storageclass.storage" find
// storageclasses in storage.k8s.io.
type selection struct {
	group   string
	version string // empty: every version
}

// each calls visit for the selected groups in server order.
func (s *Snapshot) each(sel selection, visit func(*Group)) {
	at, exact := -1, false
	if s.order != nil {
		at, exact = s.order.position[sel.group]
	}
	if sel.group == "" || !exact {
		for _, g := range s.groups {
			if strings.HasPrefix(g.name, sel.group) {
				visit(g)
			}
		}
		return
	}
	longer := s.order.longer[sel.group]
	before, _ := slices.BinarySearch(longer, at)
	for _, i := range longer[:before] {
		visit(s.groups[i])
	}
	visit(s.groups[at])
	for _, i := range longer[before:] {
		visit(s.groups[i])
	}
}
