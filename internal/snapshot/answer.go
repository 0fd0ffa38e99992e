// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// match is one version of one group in which a lookup finds something.
type match struct {
	group   *Group
	version *Version
	row     *Resource
}

func (m match) gvk() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: m.group.name, Version: m.version.Name, Kind: m.row.Kind}
}

func (m match) gvr() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: m.group.name, Version: m.version.Name, Resource: m.row.Name}
}

// fill makes m the mapping of a kind. It sets the fields one by one, because
// copying a whole mapping to the heap takes longer.
func (found match) fill(m *meta.RESTMapping, kind string) {
	m.Resource.Group, m.GroupVersionKind.Group = found.group.name, found.group.name
	m.Resource.Version, m.GroupVersionKind.Version = found.version.Name, found.version.Name
	m.Resource.Resource, m.GroupVersionKind.Kind = found.row.Name, kind
	m.Scope = meta.RESTScopeRoot
	if found.row.Namespaced {
		m.Scope = meta.RESTScopeNamespace
	}
}

// lack is what an answer lacks to be current.
type lack struct {
	any   bool
	keep  bool   // whether the reads are wanted
	reads []Read // those that would make the answer current
}

func (l *lack) add(r Read) {
	if l.any = true; l.keep {
		l.reads = append(l.reads, r)
	}
}

// find returns what q finds: everything in server order, or the best match, perhaps before others of
// its group. It adds to l what that lacks to be current. room is what the result may use.
//
// The order, and which match is the best, are client-go's (meta.PriorityRESTMapper with the
// priorities of restmapper.NewDiscoveryRESTMapper): v1 of the core group, else the first group in
// server order; in it the preferred version, else the first in the list. Without a version the
// groups are those whose names begin with q.Group, so "storageclass.storage" finds storageclasses in
// storage.k8s.io.
func (s *Snapshot) find(room []match, q *Query, l *lack) (found []match) {
	if m := s.foremost(q); m.row != nil {
		if !s.current(m.group, m.version) {
			l.add(ReadVersion("", "v1"))
		}
		return append(room, m)
	}
	groups := s.groups
	if q.AnyGroup() {
		groups = s.lazy.among(groups, q.Name)
	} else {
		groups = s.CandidateGroups(q)
	}
	found = room
	for _, g := range groups {
		before := len(found)
		for _, i := range q.positions(g, make([]int32, 0, 8)) {
			v := &g.versions[i]
			if row := q.in(v); row != nil {
				found = append(found, match{g, v, row})
				if !q.All && g.over == nil {
					break // each version has its place, so a worse one is of no interest
				}
			}
		}
		if !q.All && len(found) > before && s.groupPlaced(g) {
			break // likewise
		}
	}
	if !q.ExactGroup() {
		s.use()
	} else if len(found) > 0 {
		found[0].group.use()
	}
	switch {
	case len(found) == 0:
		l.any = true
	case !q.ExactGroup() || !s.settled(found[0].group):
		s.lacking(q, found, l)
	}
	return found
}

// best returns the best match of q, and whether it is current.
func (s *Snapshot) best(q *Query) (best match, current bool) {
	if g := s.Group(q.Group); g != nil && q.ExactGroup() && s.settled(g) { // as nearly always
		for _, i := range q.positions(g, make([]int32, 0, 8)) {
			v := &g.versions[i]
			if row := q.in(v); row != nil {
				g.use()
				return match{g, v, row}, true
			}
		}
		return best, false
	}
	var l lack
	if found := s.find(make([]match, 0, 4), q, &l); len(found) > 0 {
		best = found[0]
	}
	return best, !l.any
}

// foremost returns the match in v1 of the core group, if q names no group, looks for the best, and
// has one there.
func (s *Snapshot) foremost(q *Query) (m match) {
	if q.AnyGroup() && !q.All && q.WantsVersion("v1") {
		m.group = s.Group("")
		m.version = m.group.Version("v1")
		m.row = q.in(m.version)
	}
	return m
}

// lacking adds to l what the answer found lacks: the rows of the table of a miss that have an old
// answer, or one that was chosen among several (R3 in DESIGN.md).
func (s *Snapshot) lacking(q *Query, found []match, l *lack) {
	first, last := found[0].group, found[len(found)-1].group
	if q.ExactGroup() {
		s.lackingIn(first, q, found, l)
		return
	}
	if s.read <= s.reset { // the document was not read since the last reset
		l.add(Read{})
		return
	}
	end, _ := s.position(first.name)
	for _, i := range s.open() {
		g := s.groups[i]
		if !strings.HasPrefix(g.name, q.Group) {
			continue
		}
		if i <= end || q.All {
			s.lackingIn(g, q, found, l)
		}
		if (g != first || g != last) && !s.groupPlaced(g) && q.findsIn(g) {
			l.add(Read{}) // which places it among the others
		}
	}
}

// lackingIn adds what the answer found lacks in one group, which may be one that has nothing of it.
func (s *Snapshot) lackingIn(g *Group, q *Query, found []match, l *lack) {
	list := !s.currentList(g)
	answered, guesses, matches := false, 0, 0
	for _, i := range q.positions(g, make([]int32, 0, 8)) {
		v := &g.versions[i]
		at := slices.IndexFunc(found, func(m match) bool { return m.version == v })
		var fresh bool
		switch {
		case answered: // a worse version need only be known (pinned by upstream's tests)
			fresh = v.known()
		case at < 0:
			fresh = s.asked(g, v)
		default:
			fresh, answered = s.current(g, v), !q.All
		}
		if !fresh {
			l.add(ReadVersion(g.name, v.Name))
		}
		if at >= 0 {
			matches++
			if !s.placed(g, v) {
				guesses++
			}
		}
	}
	if guesses > 0 && matches > 1 {
		list = true
	}
	if list && len(q.Versions) != 1 { // there is no order to one version
		l.add(ReadGroup(g.name))
	}
}
