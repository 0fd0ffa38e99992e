// SPDX-License-Identifier: Apache-2.0

package snapshot

import "slices"

// Next lists the reads that a lookup without a current answer still needs: the table of a miss in
// DESIGN.md (R3), row by row. The reads of one group are in their order; those of several groups do
// not depend on each other. Make the first ones, and ask again: each is made once. If there are
// none, the lookup is answered: by what it knows, else by an error that it met, else by NoMatch.
func (s *Snapshot) Next(q Query, p Progress) (groups [][]Read) {
	answer := lack{keep: true}
	since := s.reset // when the document was read before, or never, it is read first
	switch {
	case p.Found:
		s.find(nil, &q, &answer)
	case !s.PathsAnswer(&q): // the group is not known, or several may match
		since = max(since, p.Began)
	}
	document, made := p.Done[Read{}]
	switch {
	case !made && (s.read <= since || slices.Contains(answer.reads, Read{})):
		return [][]Read{{{}}}
	case document.Err != nil && !s.PathsAnswer(&q):
		return nil // nobody else can tell which groups there are
	case p.Found:
		return p.left(answer.reads)
	}
	var reads []Read
	searched := s.GroupsOf(&q)
	for _, g := range searched {
		reads = append(reads, s.proof(g, &q, p)...)
	}
	if len(searched) == 0 && q.namesVersions() { // the server may have the group all the same
		reads = s.proof(&Group{name: q.Group}, &q, p)
	}
	return p.left(reads)
}

// left returns those of the reads that were not made, by group.
func (p Progress) left(reads []Read) (groups [][]Read) {
	for _, r := range reads {
		_, made := p.Done[r]
		n := len(groups)
		switch {
		case made:
		case n > 0 && groups[n-1][0].Group == r.Group:
			groups[n-1] = append(groups[n-1], r)
		default:
			groups = append(groups, []Read{r})
		}
	}
	return groups
}

// proof has the rows without an answer: the reads that show that g serves nothing of what the
// lookup looks for.
func (s *Snapshot) proof(g *Group, q *Query, p Progress) (reads []Read) {
	first := s.Read() && p.Began == 0 // nothing was known when the lookup began
	listed := g.laid().listed
	if !q.names(g) && g.sameAsDocument(g.laid().document) {
		if s.Aggregated() && !first {
			return nil // the document is younger than the lookup, and counts as a live read
		}
		listed = s.listedAt(g) // the document lists the group as well
	}
	names := q.about(g)
	for _, name := range p.Done[ReadList(g.name)].Versions {
		if g.Version(name) == nil {
			names = append(names, name)
		}
	}
	for _, name := range names {
		v := g.Version(name)
		asked := false
		switch {
		case first && s.Aggregated(): // it believes the document, but not that a version is stale
			asked = v == nil || v.Table != nil
		case v != nil && v.Asked > p.Began: // unless a document has overtaken that
			asked = v.Err != nil || v.Read == v.Asked
		}
		if !asked {
			reads = append(reads, ReadVersion(g.name, name))
		}
	}
	gone := func(v Version) bool { return p.Done[ReadVersion(g.name, v.Name)].Gone }
	switch {
	case !q.anyVersion(), first, listed > p.Began:
	case slices.ContainsFunc(g.versions, gone): // then the list is most likely behind (pinned by upstream's tests)
	default:
		reads = append(reads, ReadList(g.name))
	}
	return reads
}
