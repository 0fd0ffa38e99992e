// SPDX-License-Identifier: Apache-2.0

package snapshot

// Snapshot is what one server was last known to serve. Every mapper starts with the zero
// Snapshot, which knows nothing.
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
	groupResets map[string]Tick // in these groups only what was read live since then counts
	resetOfAny  Tick            // the last reset of everything or of a group

	generation uint64 // moves when what is served changes
	incomplete int    // how many groups have a version that was never tried
	private    int    // how many groups have facts of their own
	oldest     Tick   // the least tick in those facts
}

// loss lists the versions of a group that a new document no longer has.
type loss struct {
	at       Tick // of the read of that document
	versions []string
}

// never is greater than every tick.
const never = ^Tick(0)

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

// Generation returns a number that moves when the served API changes, and only then. It
// does not move when a listed version is read for the first time.
func (s *Snapshot) Generation() uint64 { return s.generation }

// Empty reports whether nothing is known: no document, and no version that was read live.
func (s *Snapshot) Empty() bool { return !s.Read() && len(s.groups) == 0 }

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
// groups that the document has dropped and no live read has found gone. Only a live read
// can tell what is right.
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

// selection selects the groups for a resource query without a full group and version:
// those whose name begins with group, or all if it is empty. So "storageclass.storage"
// finds storageclasses in storage.k8s.io, as in client-go.
type selection struct {
	group   string
	version string // empty: every version
}

// each calls visit for the selected groups in server order.
func (s *Snapshot) each(sel selection, visit func(*Group)) {
	switch {
	case s.order == nil:
	case sel.group == "":
		for _, g := range s.groups {
			visit(g)
		}
	default:
		s.order.eachBeginning(sel.group, func(i int) { visit(s.groups[i]) })
	}
}
