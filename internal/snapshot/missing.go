// SPDX-License-Identifier: Apache-2.0

package snapshot

import "slices"

// Missing lists, in order, the reads that a lookup still needs before it may be answered.
// p is how far the lookup has come. Call Missing again after these reads. If it lists
// none, the answer is proven: a mapping if the snapshot has one; NoMatch if it has none
// and no read has failed.
//
// This is the table of requests in DESIGN.md as a function.
func (s *Snapshot) Missing(q Query, p Progress) []Read {
	l := &lookup{s: s, q: q, p: p, groups: s.GroupsOf(q)}
	stages := []func() []Read{l.document}
	switch {
	case p.Found:
		stages = append(stages, l.outdated, l.returned, l.order)
	case p.cold() && s.resetOfAny == 0: // after a reset the document may be behind
		stages = append(stages, l.outdated, l.coldVersions)
	case q.Live():
		stages = append(stages, l.versions)
		if s.aggregated && len(q.Versions) > 1 {
			stages = append(stages, l.contradictory, l.contradiction)
		}
	case s.aggregated:
		stages = append(stages, l.newDocument, l.hinted, l.lost, l.list, l.everyVersion, l.contradiction)
	default:
		stages = append(stages, l.newList, l.everyVersion, l.list, l.everyVersion)
	}
	for _, stage := range stages {
		if reads := stage(); len(reads) > 0 {
			return reads
		}
	}
	return nil
}

// Partial reports whether a lookup that found nothing has left out the group's list.
// Upstream's test of requests demands that of a lookup that finds a version gone. Such an
// answer must not be kept. p is how far the lookup has come.
func (s *Snapshot) Partial(q Query, p Progress) bool {
	l := &lookup{s: s, q: q, p: p, groups: s.GroupsOf(q)}
	return !p.cold() && q.anyVersion() && !q.anyGroup() && !p.done(listOf(q.Group)) && l.shrunk()
}

// lookup is the state of one call of Missing.
type lookup struct {
	s      *Snapshot
	q      Query
	p      Progress
	groups []*Group
}

// document asks for the document at first, and after a reset.
func (l *lookup) document() []Read {
	whole := Read{Part: PartDocument}
	if l.p.done(whole) {
		return nil
	}
	if !l.s.Read() || l.needs(PartCore) && l.s.core <= l.s.reset || l.needs(PartNamed) && l.s.named <= l.s.reset {
		return []Read{whole}
	}
	return nil
}

func (l *lookup) needs(half Part) bool {
	return l.q.anyGroup() || (l.q.Group == "") == (half == PartCore)
}

// unless appends r to reads, unless the lookup has already made that read.
func (l *lookup) unless(reads []Read, r Read) []Read {
	if l.p.done(r) {
		return reads
	}
	return append(reads, r)
}

// order asks for the server's order in three cases: it was read before a reset, no list
// gives the place of a known version or group, or a group that was reset may have come.
func (l *lookup) order() []Read {
	var reads []Read
	for _, g := range l.groups {
		if len(l.q.Versions) == 1 || l.s.listSettled(g) || !g.serves(l.q) {
			continue
		}
		if g.own != nil && g.own.list > 0 && g.own.listLeads() {
			reads = l.unless(reads, listOf(g.name))
		} else {
			return l.ownHalf()
		}
	}
	if (l.q.byPrefix() || l.q.anyGroup()) && (!l.s.ordered || l.s.awaits(l.q.Group)) {
		return l.ownHalf()
	}
	return reads
}

// coldVersions is the last stage of the very first lookup, which believes the document. A
// document that is not aggregated proves nothing about a version that it does not list,
// so coldVersions asks for the versions that the lookup names.
func (l *lookup) coldVersions() []Read {
	if l.s.aggregated || l.q.anyVersion() || l.q.anyGroup() {
		return nil
	}
	return l.versions()
}

// versions asks live for the versions that the lookup names.
func (l *lookup) versions() []Read {
	var reads []Read
	for _, name := range l.q.Versions {
		reads = l.unless(reads, versionOf(l.q.Group, name))
	}
	return reads
}

// newDocument asks for the document, which lookups without a version read first: for the
// half of a known group, and for both halves if the group is not known.
func (l *lookup) newDocument() []Read {
	if !l.q.anyGroup() && l.s.Group(l.q.Group) != nil {
		return l.ownHalf()
	}
	core, named := l.p.document(PartCore), l.p.document(PartNamed)
	if core.Times > 0 && named.Times > 0 || core.Times+named.Times > 0 && !l.q.anyGroup() {
		return nil
	}
	return []Read{{Part: PartDocument}}
}

// ownHalf asks for the half of the document that the group is in, unless the lookup has
// already read it.
func (l *lookup) ownHalf() []Read {
	switch {
	case l.q.anyGroup():
		return l.unless(nil, Read{Part: PartDocument})
	case l.p.document(l.half()).Times > 0:
		return nil
	default:
		return []Read{{Part: l.half()}}
	}
}

// half returns the half of the document that the group is in.
func (l *lookup) half() Part {
	if l.q.Group == "" {
		return PartCore
	}
	return PartNamed
}

// newList is newDocument for a server whose document only lists versions. A lookup of a
// kind in a known group does not need the document: it reads the group's own list later.
func (l *lookup) newList() []Read {
	if !l.q.ByResource && l.s.Group(l.q.Group) != nil {
		return nil
	}
	return l.newDocument()
}

// known returns the group that the lookup names in full, if it is known, or nil.
func (l *lookup) known() *Group {
	if l.q.anyGroup() {
		return nil
	}
	return l.s.Group(l.q.Group)
}

// suspects lists the groups whose NoMatch a live read has to confirm: the group that the
// lookup names, groups in which the document has what is looked for but a live fact
// contradicts it, and groups that were reset and wait for a live read.
func (l *lookup) suspects() []*Group {
	return slices.DeleteFunc(slices.Clone(l.groups), func(g *Group) bool {
		waits := l.s.waits(g.name) && !l.leftAlone(g)
		return g != l.known() && len(l.hintsOf(g)) == 0 && !waits
	})
}

// hinted asks live for the versions in which the document has what is looked for but a
// live fact contradicts it. It also asks for the versions that could not be read live and
// that the document does not list.
func (l *lookup) hinted() []Read {
	var reads []Read
	for _, g := range l.groups {
		for _, name := range append(l.hintsOf(g), g.unvouched()...) {
			if l.q.wants(name) {
				reads = l.unless(reads, versionOf(g.name, name))
			}
		}
	}
	return reads
}

// hintsOf lists the versions of g in which the document has what is looked for, if g has
// facts of its own.
func (l *lookup) hintsOf(g *Group) []string {
	if g.own == nil || g.own.doc == nil {
		return nil
	}
	var names []string
	for i := range g.own.doc.versions {
		if v := &g.own.doc.versions[i]; l.q.wants(v.Name) && v.Table.serves(l.q) {
			names = append(names, v.Name)
		}
	}
	return names
}

// serves reports whether a version of the group has what q looks for.
func (g *Group) serves(q Query) bool {
	return slices.ContainsFunc(g.versions, func(v Version) bool { return v.Table.serves(q) })
}

// serves reports whether the table has what q looks for; t may be nil.
func (t *Table) serves(q Query) bool {
	if t == nil {
		return false
	}
	if q.ByResource {
		_, ok := t.kindOf(q.Name)
		return ok
	}
	_, ok := t.target(q.Name)
	return ok
}
