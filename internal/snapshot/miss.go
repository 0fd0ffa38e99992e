// SPDX-License-Identifier: Apache-2.0

package snapshot

// MissingReads lists the reads that a lookup without a current answer still needs. This is the table of a miss (R3 in
// DESIGN.md). The first row that applies says what is read next:
//
//	the lookup has   and                                                              it reads
//	anything         the document was not read since the last reset                   the document
//	no answer        its group is not known or several may match, and                 the document
//	                 the document is older than the lookup
//	no answer        what a version serves is not proved as of the lookup's           that version
//	                 beginning (see proved)
//	no answer        it names no version, and group discovery is older than it        group discovery
//	an old answer    what it rests on was not read since the last reset               that (see addMissing)
//
// The reads of one group are in their order; those of several groups do not depend on each other. Make at least the
// first one, and ask again: each is made once. If there are none, nothing more can be read for the lookup.
func (s *Snapshot) MissingReads(q Query, p Progress) (groups [][]Read) {
	if s.needsDocument(&q, p) {
		return [][]Read{{ReadDocument}}
	}
	if p.Done[ReadDocument].Err != nil && !s.PathsSuffice(&q) {
		return nil // nothing else can tell which groups there are
	}
	if p.HasAnswer {
		missing := missingReads{collect: true}
		s.find(nil, &q, &missing)
		return p.remaining(missing.reads)
	}
	return p.remaining(s.readsToProve(&q, p))
}

// needsDocument reports whether one of the two rows applies that read the document.
func (s *Snapshot) needsDocument(q *Query, p Progress) bool {
	if _, made := p.Done[ReadDocument]; made {
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
		if r == ReadDocument {
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

// readsToProve lists the reads that must still show that nothing serves what the lookup looks for, for each group.
func (s *Snapshot) readsToProve(q *Query, p Progress) (reads []Read) {
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
//	the document, for groups that the lookup does not name, if it has the version's resources and is not contradicted
//	the document, likewise, if it is all that is known of the group and does not have the version
//	the first document, for a lookup that began before the mapper had read anything
//	a read of the version's own path that began after the lookup, whoever made it
func (s *Snapshot) proved(g *Group, version string, q *Query, p Progress) bool {
	if s.DocumentProves(q, g.name, version) || s.documentProvesAbsence(q, g, version) {
		return true
	}
	if s.believesDocument(q, p) && s.Aggregated() {
		return documentCovers(g, version)
	}
	return s.readSince(g, version, p.Began)
}

// DocumentProves reports whether the document proves what a version serves, so that it does not matter to the lookup
// whether the version's own path can be read: the lookup does not name the group, the document has the resources of
// the version, and no live read has found anything else in the group. A document that has one version wrong lags, and
// may have the others wrong, too.
func (s *Snapshot) DocumentProves(q *Query, group, version string) bool {
	if q.namesGroup(group) || !s.Aggregated() {
		return false
	}
	documented := s.documented(group)
	return documented.table(version) != nil && !s.Group(group).contradicts(documented)
}

// documentProvesAbsence reports whether the document proves that the server does not have a version.
func (s *Snapshot) documentProvesAbsence(q *Query, g *Group, version string) bool {
	return s.Aggregated() && s.documentSuffices(q, g) && g.indexOf(version) < 0
}

// documentSuffices reports whether the document is all that is known of a group that the lookup does not name.
func (s *Snapshot) documentSuffices(q *Query, g *Group) bool {
	return !q.namesGroup(g.name) && g.sameAsDocument(s.documented(g.name))
}

// believesDocument reports whether the lookup began before the mapper had read anything: Began is 0 then. Such a lookup
// believes the document (upstream's tests want it).
func (s *Snapshot) believesDocument(q *Query, p Progress) bool {
	return s.HasDocument() && p.Began == 0 && !q.RequireLive
}

// documentCovers reports whether the document says what a version serves: it does not have the version, or has its
// resources. It does not say it if it marks the version as stale, or only lists it.
func documentCovers(g *Group, version string) bool {
	return g.indexOf(version) < 0 || g.table(version) != nil
}

// readSince reports whether the version's own path was tried by a read that began after the lookup, and that has either
// failed or found what is known now. If answered is not tried, a document that began later has replaced what it found.
func (s *Snapshot) readSince(g *Group, version string, began Seq) bool {
	i := g.indexOf(version)
	if i < 0 {
		return false
	}
	reads := s.readsOf(g, i)
	failed := g.versions[i].Err != nil
	return reads.tried > began && (failed || reads.answered == reads.tried)
}

// needsGroupDiscovery reports whether the row applies that reads group discovery. If the lookup has found a version
// removed, it does not: group discovery most likely still lists that version, and would tell nothing (upstream's tests
// want it). A lookup that believes the document needs none either.
func (s *Snapshot) needsGroupDiscovery(g *Group, q *Query, p Progress) bool {
	if !q.anyVersion() || s.believesDocument(q, p) {
		return false
	}
	last := g.groupRead()
	if s.documentLists(q, g) {
		last = s.orderSeq(g)
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
