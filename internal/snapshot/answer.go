// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// match is one version of one group in which a lookup finds something.
type match struct {
	group    *Group
	position int // of the version, in group.versions
	row      *Resource
}

func (m match) version() *Version { return &m.group.versions[m.position] }

func (m match) gvk() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: m.group.name, Version: m.version().Name, Kind: m.row.Kind}
}

func (m match) gvr() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: m.group.name, Version: m.version().Name, Resource: m.row.Name}
}

// fillMapping makes m the mapping of a kind. It sets the fields one by one, because
// copying a whole mapping to the heap takes longer.
func (found match) fillMapping(m *meta.RESTMapping, kind string) {
	version := found.version().Name
	m.Resource.Group, m.GroupVersionKind.Group = found.group.name, found.group.name
	m.Resource.Version, m.GroupVersionKind.Version = version, version
	m.Resource.Resource, m.GroupVersionKind.Kind = found.row.Name, kind
	m.Scope = meta.RESTScopeRoot
	if found.row.Namespaced {
		m.Scope = meta.RESTScopeNamespace
	}
}

// missingReads is what an answer needs to be current.
type missingReads struct {
	any     bool   // the answer is not current
	collect bool   // whether the caller wants the reads
	reads   []Read // those that would make the answer current
}

func (m *missingReads) add(r Read) {
	m.any = true
	if m.collect {
		m.reads = append(m.reads, r)
	}
}

// find returns what q finds: everything in server order, or the best match, perhaps before others. It adds to
// missing what that needs to be current. scratch is memory that the result may use.
//
// The order, and which match is the best, are client-go's (meta.PriorityRESTMapper with the
// priorities of restmapper.NewDiscoveryRESTMapper): v1 of the core group, else the first group in
// server order; in it the preferred version, else the first in the list. Without a version the
// groups are those whose names begin with q.Group, so "storageclass.storage" finds storageclasses in
// storage.k8s.io.
func (s *Snapshot) find(scratch []match, q *Query, missing *missingReads) (found []match) {
	if m := s.coreV1Match(q); m.row != nil {
		if s.readsOf(m.group, m.position).answered <= s.resetSeq {
			missing.add(ReadVersion("", "v1"))
		}
		return append(scratch, m)
	}
	found = s.matches(scratch, q)
	if len(found) == 0 {
		missing.any = true
		return found
	}
	if !q.ExactGroup() {
		s.addMissing(q, found, missing)
	} else if g := found[0].group; !s.groupCurrent(g) {
		s.addMissingIn(g, q, found, missing)
	}
	return found
}

// matches returns what q finds in the groups that may have a match, and notes that they are in use.
func (s *Snapshot) matches(scratch []match, q *Query) (found []match) {
	found = scratch
	for _, g := range s.searchedGroups(q) {
		before := len(found)
		found = q.appendMatches(found, g)
		if len(found) > before && !q.All && s.groupPlaced(g) {
			break // a worse group is of no interest
		}
	}
	if !q.ExactGroup() {
		s.markUsed()
	} else if len(found) > 0 {
		found[0].group.markUsed()
	}
	return found
}

// coreV1Match returns the match in v1 of the core group, if q names no group, looks for the best match, and has one
// there: it comes before all others. Otherwise the match has no row.
func (s *Snapshot) coreV1Match(q *Query) (m match) {
	if !q.AnyGroup() || q.All || !q.WantsVersion("v1") {
		return m
	}
	g := s.Group("")
	i := g.indexOf("v1")
	if i < 0 {
		return m
	}
	return match{g, i, q.findIn(g.versions[i].Table)}
}

// searchedGroups returns the groups that may have a match, in server order.
func (s *Snapshot) searchedGroups(q *Query) []*Group {
	if q.AnyGroup() {
		return s.cache.groupsWithName(s.groups, q.Name)
	}
	return s.CandidateGroups(q)
}

// appendMatches appends what q finds in a group. In a group of the document each version has its place: if the best
// match is looked for, that is enough.
func (q *Query) appendMatches(found []match, g *Group) []match {
	firstOnly := !q.All && g.overlay == nil
	for _, i := range q.positions(g, make([]int32, 0, 8)) {
		row := q.findIn(g.versions[i].Table)
		if row == nil {
			continue
		}
		found = append(found, match{g, int(i), row})
		if firstOnly {
			break
		}
	}
	return found
}

// best returns the best match of q, and whether it is current. Without one the match has no row.
func (s *Snapshot) best(q *Query) (best match, current bool) {
	if g := s.currentGroup(q); g != nil { // as nearly always
		for _, i := range q.positions(g, make([]int32, 0, 8)) {
			if row := q.findIn(g.versions[i].Table); row != nil {
				g.markUsed()
				return match{g, int(i), row}, true
			}
		}
		return best, false
	}
	var missing missingReads
	found := s.find(make([]match, 0, 4), q, &missing)
	if len(found) > 0 {
		best = found[0]
	}
	return best, !missing.any
}

// currentGroup returns the only group that may answer q if every answer that rests on it is current, or nil.
func (s *Snapshot) currentGroup(q *Query) *Group {
	if !q.ExactGroup() {
		return nil
	}
	g := s.Group(q.Group)
	if g == nil || !s.groupCurrent(g) {
		return nil
	}
	return g
}

// addMissing adds what an answer that was found in several groups needs to be current: reads of the groups that
// are not settled, and the document if the place of a group among the others is a guess.
func (s *Snapshot) addMissing(q *Query, found []match, missing *missingReads) {
	if s.docSeq <= s.resetSeq {
		missing.add(ReadDocument)
		return
	}
	outdated := s.outdated()
	if len(outdated) == 0 {
		return // as nearly always
	}
	first, last := found[0].group, found[len(found)-1].group
	inSeveral := first != last
	end, _ := s.position(first.name)
	for _, i := range outdated {
		g := s.groups[i]
		if !strings.HasPrefix(g.name, q.Group) {
			continue
		}
		// If the best match is looked for, the groups behind it do not matter.
		if i <= end || q.All {
			s.addMissingIn(g, q, found, missing)
		}
		isChoice := inSeveral || g != first
		if isChoice && !s.groupPlaced(g) && q.matchesGroup(g) {
			missing.add(ReadDocument) // it places the group among the others
		}
	}
}

// addMissingIn adds what the answer needs in one group, which may be one that has nothing of it: reads of versions,
// and of their order.
//
// For example, a lookup for the best version finds Foo in v2 of [v1, v2, v3]. v1 has to be tried since the last
// reset, because it might serve Foo, too, and v2 has to be read successfully since. v3 need only be known: it is
// worse, whatever it serves (pinned by upstream's tests).
func (s *Snapshot) addMissingIn(g *Group, q *Query, found []match, missing *missingReads) {
	after := s.resetSeq
	for _, i := range q.positions(g, make([]int32, 0, 8)) {
		reads := s.readsOf(g, int(i))
		matched := hasMatch(found, g, int(i))
		last := reads.lastTried()
		if matched {
			last = reads.answered
		}
		if last <= after {
			missing.add(ReadVersion(g.name, g.versions[i].Name))
		}
		if matched && !q.All {
			after = 0
		}
	}
	if len(q.Versions) == 1 {
		return // there is no order to one version
	}
	if s.orderSeq(g) <= s.resetSeq || s.choiceIsGuess(g, found) {
		missing.add(ReadGroup(g.name))
	}
}

// hasMatch reports whether a version is among the matches.
func hasMatch(found []match, g *Group, position int) bool {
	for _, m := range found {
		if m.group == g && m.position == position {
			return true
		}
	}
	return false
}

// choiceIsGuess reports whether several versions of g match, and the place of one of them in the order is a guess
// (R1).
func (s *Snapshot) choiceIsGuess(g *Group, found []match) bool {
	matches, guesses := 0, 0
	for _, m := range found {
		if m.group != g {
			continue
		}
		matches++
		if !s.placed(g, m.position) {
			guesses++
		}
	}
	return matches > 1 && guesses > 0
}
