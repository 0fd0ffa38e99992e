// SPDX-License-Identifier: Apache-2.0

package snapshot

import "slices"

// MissingReads lists the reads that a lookup without a current answer still needs: the table of a miss in
// DESIGN.md (R3), row by row. The reads of one group are in their order; those of several groups do
// not depend on each other. Make the first ones, and ask again: each is made once. If there are
// none, the lookup is answered: by what it knows, else by an error that it met, else by NoMatch.
func (s *Snapshot) MissingReads(q Query, p Progress) (groups [][]Read) {
	document, made := p.Done[Read{}]
	switch {
	case made:
	case s.read <= s.reset: // whatever it has | the document was never read, or not since the last reset
		return [][]Read{{{}}}
	case p.HasAnswer, s.PathsSuffice(&q):
	case s.read <= p.Began: // no answer | the group is not known, or several may match; the document is older than the lookup
		return [][]Read{{{}}}
	}
	switch {
	case document.Err != nil && !s.PathsSuffice(&q):
		return nil // nobody else can tell which groups there are
	case !p.HasAnswer: // no answer
		return p.left(s.proof(&q, p))
	}
	answer := lack{keep: true} // an old answer, or one that was chosen among several
	s.find(nil, &q, &answer)
	return p.left(answer.reads)
}

// left returns those of the reads that were not made, by group: the document alone, because others
// depend on it.
func (p Progress) left(reads []Read) (groups [][]Read) {
	for _, r := range reads {
		_, made := p.Done[r]
		n := len(groups)
		switch {
		case made:
		case r == Read{}:
			return [][]Read{{r}}
		case n > 0 && groups[n-1][0].Group == r.Group:
			groups[n-1] = append(groups[n-1], r)
		default:
			groups = append(groups, []Read{r})
		}
	}
	return groups
}

// proof lists the reads that show that nothing serves what the lookup looks for.
func (s *Snapshot) proof(q *Query, p Progress) (reads []Read) {
	searched := s.CandidateGroups(q)
	if len(searched) == 0 && q.ExactGroup() && (q.namesVersions() || q.RequireLive) { // the server may have the group all the same
		searched = []*Group{{name: q.Group}}
	}
	for _, g := range searched {
		reads = append(reads, s.proofIn(g, q, p)...)
	}
	return reads
}

// DocumentProves reports whether the document proves what a version serves, so that it does not matter to the lookup whether
// the version's own path can be read: the lookup does not name the group, the document has the resources of the
// version, and no live read has found anything else.
func (s *Snapshot) DocumentProves(q *Query, group, version string) bool {
	g := s.Group(group)
	documented := g.laid().document.Version(version).table()
	return s.Aggregated() && g != nil && !q.names(g) && documented != nil && g.Version(version).table().sameAnswers(documented)
}

// proofIn has the rows without an answer, for one group.
func (s *Snapshot) proofIn(g *Group, q *Query, p Progress) (reads []Read) {
	first := s.HasDocument() && p.Began == 0 && !q.RequireLive // nothing was known when the lookup began
	listed := g.laid().listed
	unproved := func(v Version) bool { return !s.DocumentProves(q, g.name, v.Name) }
	same := !q.names(g) && g.sameAsDocument(g.laid().document)
	if same || len(g.versions) > 0 && !slices.ContainsFunc(g.versions, unproved) {
		listed = s.listedAt(g) // the document lists the group as well
	}
	names := q.about(g)
	for _, name := range p.Done[ReadGroup(g.name)].Versions {
		if g.Version(name) == nil {
			names = append(names, name)
		}
	}
	for _, name := range names {
		v := g.Version(name)
		asked := false
		switch {
		case s.DocumentProves(q, g.name, name):
			asked = true // the document is younger than the lookup, and counts as a live read
		case same && s.Aggregated() && v == nil:
			asked = true // likewise
		case first && s.Aggregated(): // nothing was known when it began | the document has all versions, none stale
			asked = v == nil || v.Table != nil
		case v != nil && v.TriedSeq > p.Began: // unless a document has overtaken that
			asked = v.Err != nil || v.ReadSeq == v.TriedSeq
		}
		if !asked { // a version that it is about was not asked since it began
			reads = append(reads, ReadVersion(g.name, name))
		}
	}
	gone := func(v Version) bool { return p.Done[ReadVersion(g.name, v.Name)].Removed }
	switch {
	case !q.anyVersion(), first, listed > p.Began:
	case slices.ContainsFunc(g.versions, gone): // then the list is most likely behind (pinned by upstream's tests)
	default: // no version is named, it has found none gone, and the list is older than it
		reads = append(reads, ReadGroup(g.name))
	}
	return reads
}
