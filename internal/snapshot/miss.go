// SPDX-License-Identifier: Apache-2.0

package snapshot

// MissingReads lists the reads that a lookup without a current answer still needs. It is the table of a miss in
// DESIGN.md (R3), with a function for each row. The reads of one group are in their order; those of several groups
// do not depend on each other. Make the first ones, and ask again: each is made once. If there are none, the lookup
// is answered: by what it knows, else by an error that it met, else by NoMatch.
func (s *Snapshot) MissingReads(q Query, p Progress) (groups [][]Read) {
	if s.needsDocument(&q, p) {
		return [][]Read{{{}}}
	}
	if p.Done[Read{}].Err != nil && !s.PathsSuffice(&q) {
		return nil // nothing else can tell which groups there are
	}
	if !p.HasAnswer {
		return p.remaining(s.proof(&q, p))
	}
	missing := missingReads{collect: true}
	s.find(nil, &q, &missing)
	return p.remaining(missing.reads)
}

// needsDocument has the rows that read the document. Whatever the lookup has found, the document is read if it was
// not read since the last reset. A lookup without an answer also reads it if its group is not known, or if several
// groups may match, and if the document is older than the lookup.
func (s *Snapshot) needsDocument(q *Query, p Progress) bool {
	if _, made := p.Done[Read{}]; made {
		return false
	}
	if s.docSeq <= s.resetSeq {
		return true
	}
	if p.HasAnswer || s.PathsSuffice(q) {
		return false
	}
	return s.docSeq <= p.Began
}

// remaining returns those of the reads that were not made, by group. The document comes alone, because others depend
// on it.
func (p Progress) remaining(reads []Read) (groups [][]Read) {
	for _, r := range reads {
		if _, made := p.Done[r]; made {
			continue
		}
		if r == (Read{}) {
			return [][]Read{{r}}
		}
		n := len(groups)
		if n > 0 && groups[n-1][0].Group == r.Group {
			groups[n-1] = append(groups[n-1], r)
		} else {
			groups = append(groups, []Read{r})
		}
	}
	return groups
}

// proof lists the reads that show that nothing serves what the lookup looks for: the rows of a lookup without an
// answer, for each group.
func (s *Snapshot) proof(q *Query, p Progress) (reads []Read) {
	searched := s.CandidateGroups(q)
	unknown := len(searched) == 0 && q.ExactGroup()
	if unknown && (q.namesGroupAndVersions() || q.RequireLive) {
		searched = []*Group{{name: q.Group}} // the server may have the group all the same
	}
	for _, g := range searched {
		for _, version := range q.versionsToProve(g, p) {
			if !s.proved(g, version, q, p) {
				reads = append(reads, ReadVersion(g.name, version))
			}
		}
		if s.needsGroupDiscovery(g, q, p) {
			reads = append(reads, ReadGroup(g.name))
		}
	}
	return reads
}

// versionsToProve lists the versions of g that the lookup is about, and those that its own read of group discovery
// has listed and nobody else knows.
func (q *Query) versionsToProve(g *Group, p Progress) []string {
	names := q.versionsOf(g)
	for _, name := range p.Done[ReadGroup(g.name)].Versions {
		if g.indexOf(name) < 0 {
			names = append(names, name)
		}
	}
	return names
}

// proved reports whether it is known as of the lookup's beginning what a version serves. Each of these proves it:
//
//	the document, for groups that the lookup does not name, if it has the version's resources
//	the document, likewise, if it is all that is known of the group and does not have the version
//	the first document, for a lookup that began before the mapper had read anything
//	a read of the version's own path that began after the lookup, whoever made it
func (s *Snapshot) proved(g *Group, version string, q *Query, p Progress) bool {
	if s.DocumentProves(q, g.name, version) || s.documentProvesAbsence(q, g, version) {
		return true
	}
	if s.believesDocument(q, p) && s.Aggregated() {
		return s.firstDocumentProves(g, version)
	}
	return s.readSince(g, version, p.Began)
}

// DocumentProves reports whether the document proves what a version serves, so that it does not matter to the lookup
// whether the version's own path can be read: the lookup does not name the group, the document has the resources of
// the version, and no live read has found anything else.
func (s *Snapshot) DocumentProves(q *Query, group, version string) bool {
	if q.names(group) || !s.Aggregated() {
		return false
	}
	table := s.documented(group).table(version)
	return table != nil && s.Group(group).table(version).sameAnswers(table)
}

// documentProvesAbsence reports whether the document proves that the server does not have a version.
func (s *Snapshot) documentProvesAbsence(q *Query, g *Group, version string) bool {
	return s.Aggregated() && s.documentSuffices(q, g) && g.indexOf(version) < 0
}

// documentSuffices reports whether the document is all that is known of a group that the lookup does not name.
func (s *Snapshot) documentSuffices(q *Query, g *Group) bool {
	return !q.names(g.name) && g.sameAsDocument(s.documented(g.name))
}

// believesDocument reports whether the lookup began before the mapper had read anything. It believes the document
// (upstream's tests want it).
func (s *Snapshot) believesDocument(q *Query, p Progress) bool {
	return s.HasDocument() && p.Began == 0 && !q.RequireLive
}

// firstDocumentProves reports whether a document that is believed proves what a version serves: unless the document
// marks the version as stale, or only lists it.
func (s *Snapshot) firstDocumentProves(g *Group, version string) bool {
	return g.indexOf(version) < 0 || g.table(version) != nil
}

// readSince reports whether the version's own path was tried by a read that began after the lookup, and no document
// has overtaken what that has found.
func (s *Snapshot) readSince(g *Group, version string, began Seq) bool {
	i := g.indexOf(version)
	if i < 0 {
		return false
	}
	reads := s.readsOf(g, i)
	failed := g.versions[i].Err != nil
	return reads.tried > began && (failed || reads.answered == reads.tried)
}

// needsGroupDiscovery has the row that reads group discovery: no version is named, the lookup has found none removed
// (upstream's tests want it: then group discovery is most likely behind), and group discovery is older than the
// lookup. A lookup that believes the document needs none.
func (s *Snapshot) needsGroupDiscovery(g *Group, q *Query, p Progress) bool {
	if !q.anyVersion() || s.believesDocument(q, p) {
		return false
	}
	last := g.groupRead()
	if s.documentLists(q, g) {
		last = s.orderRead(g)
	}
	return last <= p.Began && !p.foundRemoved(g)
}

// documentLists reports whether the document counts as group discovery to the lookup: the document is all that is
// known of the group, or proves each version.
func (s *Snapshot) documentLists(q *Query, g *Group) bool {
	if s.documentSuffices(q, g) {
		return true
	}
	for _, v := range g.versions {
		if !s.DocumentProves(q, g.name, v.Name) {
			return false
		}
	}
	return len(g.versions) > 0
}

// foundRemoved reports whether the lookup has found a version of g removed.
func (p Progress) foundRemoved(g *Group) bool {
	for _, v := range g.versions {
		if p.Done[ReadVersion(g.name, v.Name)].Removed {
			return true
		}
	}
	return false
}
