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

	doc         *List           // the last document; nil if it was never read
	core, named Tick            // when its halves were last read: /api and /apis
	lost        map[string]loss // groups that lost versions in the last new document
	aggregated  bool            // the document has the resources of every version
	ordered     bool            // the order of groups is the server's own

	reset       Tick            // what was read before it does not count
	groupResets map[string]Tick // of these groups only what was read live since counts
	resetOfAny  Tick            // the last reset of everything or of a group

	generation uint64 // moves when what is served changes
	incomplete int    // how many groups have a version that was never tried
	private    int    // how many groups have facts of their own
	oldest     Tick   // the least tick in those
}

// loss is which versions of a group a new document no longer has.
type loss struct {
	at       Tick // of the read of that document
	versions []string
}

// never is greater than every tick.
const never = ^Tick(0)

// order is the positions of groups in a snapshot. It depends on their names alone, so
// snapshots share it while only the contents of groups change.
type order struct {
	position map[string]int
	longer   map[string][]int // of a group: the other groups whose names begin with its name
}

func newOrder(groups []*Group) *order {
	o := &order{position: make(map[string]int, len(groups)), longer: map[string][]int{}}
	for i, g := range groups {
		o.position[g.name] = i
	}
	o.findLonger()
	return o
}

// findLonger fills in longer. It goes through the names in alphabetical order: those
// that begin with a name come right after it.
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

// NewList makes a list of groups in server order, no two of the same name. It keeps
// groups. aggregated reports whether their document has the resources of every version,
// so that a resource that is not in it is not served.
func NewList(groups []*Group, aggregated bool) *List {
	return newList(groups, newOrder(groups), aggregated)
}

func newList(groups []*Group, order *order, aggregated bool) *List {
	return &List{groups: slices.Clip(groups), order: order, names: new(nameIndex), aggregated: aggregated}
}

// Next is NewList for the list that follows l, which may be nil. If only the contents of
// groups have changed, the lists share their order.
func (l *List) Next(groups []*Group, aggregated bool) *List {
	if l == nil || !sameNames(groups, l.groups) {
		return NewList(groups, aggregated)
	}
	return newList(groups, l.order, aggregated)
}

// Awaited lists the groups that wait for a live read after a reset.
func (s *Snapshot) Awaited() []*Group {
	var groups []*Group
	for name := range s.groupResets {
		if g := s.Group(name); g != nil {
			groups = append(groups, g)
		}
	}
	return groups
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

// Generation returns a number that moves when the served API changes, and only then: not
// when a version that was listed all along is read for the first time.
func (s *Snapshot) Generation() uint64 { return s.generation }

// Read reports whether the whole document was ever read.
func (s *Snapshot) Read() bool { return s.core > 0 && s.named > 0 }

// Aggregated reports whether the document has the resources of every version.
func (s *Snapshot) Aggregated() bool { return s.aggregated }

// LastReset returns the tick of the last reset of everything.
func (s *Snapshot) LastReset() Tick { return s.reset }

// LastResetOfAny returns the tick of the last reset, of everything or of a group.
func (s *Snapshot) LastResetOfAny() Tick { return s.resetOfAny }

// half returns when the half of the document that the group is in was last read.
func (s *Snapshot) half(group string) Tick {
	if group == "" {
		return s.core
	}
	return s.named
}

// Serves reports whether a version of a group is known, read or not.
func (s *Snapshot) Serves(group, version string) bool {
	return s.Group(group).find(version) != nil
}

// LiveReads lists the live reads of everything about a group: its list, and every
// version that is known, listed, or was found gone.
func (s *Snapshot) LiveReads(group string) []Read {
	reads := []Read{listOf(group)}
	if g := s.Group(group); g != nil {
		for _, name := range g.everyName() {
			reads = append(reads, versionOf(group, name))
		}
	}
	return reads
}

// Unsettled lists the groups on which the document and a live read disagree, and the
// groups that the document has dropped without a live read that confirms it. Only a
// live read can tell which is right.
func (s *Snapshot) Unsettled() (disputed, dropped []*Group) {
	if s.private == 0 {
		return nil, nil
	}
	for _, g := range s.groups {
		switch {
		case g.own == nil:
		case g.own.dropped():
			dropped = append(dropped, g)
		case g.own.disputed():
			disputed = append(disputed, g)
		}
	}
	return disputed, dropped
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

// settled reports whether a version of g was read, and after the last reset, so that a
// lookup may be answered from it.
func (s *Snapshot) settled(g *Group, v *Version) bool {
	return v.Table != nil && !v.doubted && s.fresh(g, v.Read, v.Live)
}

// gaveUp reports whether v could not be read, and was tried after the last reset.
func (s *Snapshot) gaveUp(g *Group, v *Version) bool {
	f := factsOf(g)
	return v.Err != nil && s.fresh(g, f.get(v.Name).tried, true)
}

// listSettled reports whether the list of the group's versions, and their order, were
// read after the last reset.
func (s *Snapshot) listSettled(g *Group) bool {
	if g.own == nil {
		return s.fresh(g, 0, false)
	}
	asked := max(g.own.list, s.half(g.name)) // when the server was last asked for the list
	read := asked
	if _, waiting := s.groupResets[g.name]; waiting || g.own.list > 0 && g.own.listLeads() {
		read = g.own.list
	}
	return asked > g.unlisted && s.fresh(g, read, true) && len(s.outdatedAbsences(g)) == 0
}

// outdatedAbsences lists the versions of g that the document has, but that were found
// gone before the last reset.
func (s *Snapshot) outdatedAbsences(g *Group) []string {
	if g.own == nil || s.reset == 0 && len(s.groupResets) == 0 {
		return nil
	}
	var names []string
	for _, v := range g.own.versions {
		if v.gone && !s.fresh(g, v.read, true) {
			names = append(names, v.name)
		}
	}
	return names
}

// fresh reports whether a part of g that was read at then was read after the last reset.
// live reports whether it was read live; then is 0 for what comes from the document.
func (s *Snapshot) fresh(g *Group, then Tick, live bool) bool {
	if s.reset == 0 && len(s.groupResets) == 0 {
		return true
	}
	if then == 0 {
		then = s.half(g.name)
	}
	reset, waiting := s.groupResets[g.name]
	return then > s.reset && (!waiting || live && then > reset)
}

// awaits reports whether a group whose name begins with prefix waits for a read after a
// reset. A known group waits for a live read. Any other group may have come, and waits
// for a read of the document.
func (s *Snapshot) awaits(prefix string) bool {
	for group, reset := range s.groupResets {
		if strings.HasPrefix(group, prefix) && (s.Group(group) != nil || s.half(group) <= reset) {
			return true
		}
	}
	return false
}

// complete reports whether the selected groups may answer without a read: every version
// was read or, outside the group that was asked for, at least tried. A version may fail
// for days; lookups in many groups must not read it again each time.
func (s *Snapshot) complete(sel selection) bool {
	if !s.Read() || min(s.core, s.named) <= s.reset || s.oldest <= s.reset {
		return false
	}
	if s.awaits(sel.group) {
		return false
	}
	if sel.group == "" {
		return s.ordered && s.incomplete == 0
	}
	complete, selected := true, 0
	s.each(sel, func(g *Group) {
		complete = complete && (g.complete || g.name != sel.group && g.tried) && (g.own == nil || s.listSettled(g))
		selected++
	})
	return complete && (s.ordered || selected == 1)
}

// selection selects the groups for a resource query without a full group and version:
// those whose name begins with group, or all if it is empty. That is how in client-go
// "storageclass.storage" finds storageclasses in storage.k8s.io.
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
