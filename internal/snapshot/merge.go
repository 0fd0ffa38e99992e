// SPDX-License-Identifier: Apache-2.0

package snapshot

import "slices"

// How a read changes what is known:
//
//   - Only the 404 of a version's own path marks the version as removed (R1). Documents and group discovery add
//     versions, update them and put them in order.
//   - Of two reads the one that began later counts (R2), unless it is a document that only repeats what it had of a
//     group: that is no news of the group. It confirms what came from the document, and changes nothing else. Groups of
//     which a document says the same as the one before are the same *Group (Document.Successor), so news is another
//     pointer.
//   - The first document after a reset is news of every group (R4).

// WithDocument records a read of the document that began at a sequence number and found doc.
func (s *Snapshot) WithDocument(doc *Document, began Seq) *Snapshot {
	if began <= s.docSeq {
		return s
	}
	firstSinceReset := s.docSeq <= s.resetSeq
	next := *s
	next.doc, next.docSeq = doc, began
	if firstSinceReset || doc != s.doc {
		next.newsSeq = began
	}
	if doc == s.doc && !s.hasOverlays() {
		return &next
	}
	next.groups = make([]*Group, 0, len(doc.groups))
	for _, name := range mergeOrder(groupNames(s.groups), groupNames(doc.groups)) {
		if g := s.withDocument(name, doc, firstSinceReset, began); g != nil {
			next.groups = append(next.groups, g)
		}
	}
	next.reindex(s)
	return &next
}

func groupNames(groups []*Group) []string {
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = g.name
	}
	return names
}

// mergeOrder returns names, and behind them those of old that are not among them, in their order. What the latest
// order leaves out has no place in it, wherever it stood before: any place among the names would be a guess, and a
// lookup that chooses must not be answered from one. For example, [v1beta1, v1, v2alpha1] and then [v1, v1beta1] is
// [v1, v1beta1, v2alpha1].
func mergeOrder(old, names []string) []string {
	if slices.Equal(old, names) {
		return names // as nearly always
	}
	all := make([]string, 0, len(old)+len(names))
	known := make(map[string]bool, len(old)+len(names))
	for _, name := range slices.Concat(names, old) {
		if !known[name] {
			known[name] = true
			all = append(all, name)
		}
	}
	return all
}

// withDocument returns a group after a read of the document that began at a sequence number and found doc, or nil if
// nothing is known of it any more. The first document since a reset is news in any case.
func (s *Snapshot) withDocument(name string, doc *Document, firstSinceReset bool, began Seq) *Group {
	g := s.Group(name)
	before, documented := s.documented(name), doc.Group(name)
	if g == nil || g == documented {
		return documented
	}
	d := s.draft(name)
	dropped := documented == nil && before != nil
	if dropped {
		d.groupRead = max(d.groupRead, s.docSeq) // the last document that had the group
	}
	isNews := firstSinceReset || documented != before
	if documented != nil && isNews {
		d.takeDocument(documented, began)
	}
	d.versions = slices.DeleteFunc(d.versions, func(v draftVersion) bool {
		return !v.mayBeServed() && documented.indexOf(v.Name) < 0
	})
	next := d.group(documented)
	if doc.aggregated && next.confirmedBy(documented, began) {
		return documented // which is enough, and all mappers share it
	}
	return next
}

// WithGroup records a read of group discovery that began at a sequence number, when the snapshot was from. versions
// is empty if the server answered that there is no such group. The first row that applies counts:
//
//	the group is not known, and has no versions          nothing is kept
//	group discovery was read by a later read             nothing changes
//	a document that began later has news of the group    nothing changes
//	there are no versions                                only that group discovery was read is noted
//	otherwise                                            versions are added and put in order, and none is removed
func (s *Snapshot) WithGroup(group string, versions []string, preferred string, began Seq, from *Snapshot) *Snapshot {
	g := s.Group(group)
	if g == nil && len(versions) == 0 {
		return s
	}
	if g.groupRead() >= began {
		return s
	}
	if s.newsSince(group, from, began) {
		return s
	}
	d := s.draft(group)
	d.groupRead = began
	if len(versions) > 0 {
		d.preferred = preferred
		d.arrange(versions, began)
	}
	return s.with(d)
}

// WithVersion records a live read of a version that began at a sequence number, when the snapshot was from. The first
// row that applies counts:
//
//	the version is not known, and no resources were found               nothing is kept: nobody has seen it served
//	the version was tried by a later read                               nothing changes
//	a document that began later has news of it, and its resources       nothing changes
//	otherwise                                                           what the read has found replaces what is known
func (s *Snapshot) WithVersion(group, version string, found VersionResult, began Seq, from *Snapshot) *Snapshot {
	g, documented := s.Group(group), s.documented(group)
	if found.Table == nil && g.indexOf(version) < 0 {
		return s
	}
	if s.lastLiveRead(g, version) >= began {
		return s
	}
	table := documented.table(version)
	listedLater := documented.indexOf(version) >= 0 && s.newsSince(group, from, began)
	if listedLater && table != nil {
		return s
	}
	d := s.draft(group)
	v := d.add(version)
	v.takeLive(found, began)
	if listedLater && s.newsSeq > d.groupRead { // the document listed it, and is younger than group discovery
		v.listed = s.newsSeq
	}
	if v.Table.mayShare(table) {
		v.Table = table // one copy for all mappers
	}
	return s.with(d)
}

// newsSince reports whether a document that began later than a sequence number has news of the group since the
// snapshot from. The first document after a reset is news of every group.
func (s *Snapshot) newsSince(group string, from *Snapshot, began Seq) bool {
	if s.newsSeq <= began {
		return false
	}
	firstSinceReset := from.docSeq <= s.resetSeq && from.docSeq < s.docSeq
	return firstSinceReset || s.documented(group) != from.documented(group)
}

// Reset makes everything count as unread that was read before a sequence number.
func (s *Snapshot) Reset(began Seq) *Snapshot {
	next := *s
	next.resetSeq = max(began, s.resetSeq)
	return &next
}

// exceedsDocument reports whether something of g is known that the document does not have.
func (s *Snapshot) exceedsDocument(g *Group) bool {
	if g.overlay == nil {
		return false
	}
	documented := s.documented(g.name)
	return documented == nil || len(g.versions) > len(documented.versions)
}

// with returns s with a draft instead of the group of that name, or after all others. Mostly the draft takes a
// group's place, and nothing is done that takes longer the more groups there are, except that the slice is copied: a
// lookup may read each of very many groups.
func (s *Snapshot) with(d *draft) *Snapshot {
	g := d.group(s.documented(d.name))
	next := *s
	next.groups = slices.Clone(s.groups)
	i, known := s.position(d.name)
	switch {
	case g == nil:
		next.groups = slices.DeleteFunc(next.groups, func(old *Group) bool { return old.name == d.name })
	case !known:
		next.groups = append(next.groups, g)
	default:
		old := s.groups[i]
		next.groups[i] = g
		if s.exceedsDocument(old) || !s.exceedsDocument(g) { // as mostly: no more groups are to be bounded than before
			next.cache = new(lookupCache)
			if !g.sameAnswers(old) {
				next.generation++
			}
			return &next
		}
	}
	next.reindex(s)
	return &next
}

// reindex fills in what follows from next.groups. s is the snapshot before.
func (next *Snapshot) reindex(s *Snapshot) {
	next.forgetUndocumented()
	var document index
	if next.doc != nil {
		document = next.doc.index
	}
	next.index = newIndex(next.groups, document, s.index)
	firstDocument := s.docSeq == 0 && next.docSeq > 0
	if firstDocument || !s.sameAnswers(next) {
		next.generation = s.generation + 1
	}
}

// forgetUndocumented forgets what the document does not have if that is known of too many groups.
func (next *Snapshot) forgetUndocumented() {
	n := 0
	for _, g := range next.groups {
		if next.exceedsDocument(g) {
			n++
		}
	}
	if n <= maxUndocumentedGroups {
		return
	}
	for i, g := range next.groups {
		if next.exceedsDocument(g) {
			next.groups[i] = next.documented(g.name)
		}
	}
	next.groups = slices.DeleteFunc(next.groups, func(g *Group) bool { return g == nil })
}

// sameAnswers reports whether lookups in both snapshots have the same answers in the same order.
func (s *Snapshot) sameAnswers(other *Snapshot) bool {
	return slices.EqualFunc(s.Groups(), other.Groups(), func(a, b *Group) bool {
		return a.name == b.name && a.sameAnswers(b)
	})
}
