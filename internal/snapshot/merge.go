// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"slices"
	"sync/atomic"
)

// How a read changes what is known (R1, R2, R4). Only the 404 of a version's own path removes the
// version. Of two reads the one that began later counts. A document that repeats what it had of a
// group is no news of the group: it confirms what came from the document, and changes nothing else.
// The first document after a reset is news of every group.

// WithDocument records a read of the document that began at now and found doc.
func (s *Snapshot) WithDocument(doc *Document, now Seq) *Snapshot {
	if now <= s.read {
		return s
	}
	next := *s
	all := s.read <= s.reset // the groups of which it is news, else those that it says something else of
	if all || doc != s.doc {
		next.news = now
	}
	next.doc, next.read = doc, now
	if doc == s.doc && !s.overlaid() {
		return &next
	}
	next.groups = make([]*Group, 0, len(doc.groups))
	for _, name := range mergeOrder(groupNames(s.groups), groupNames(doc.groups)) {
		if g := s.withDocument(s.Group(name), doc.Group(name), all, now); g != nil {
			if doc.aggregated && g.sameAsDocument(g.laid().document) && g.lastAsked() < now {
				g = g.laid().document
			}
			next.groups = append(next.groups, g)
		}
	}
	next.follow(s)
	return &next
}

func groupNames(groups []*Group) []string {
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = g.name
	}
	return names
}

// mergeOrder returns names, and then those of old that are not among them, in their order. What the latest order
// leaves out has no place in it, wherever it stood before: any place among the names would be a guess, and a lookup
// that chooses must not be answered from one. [v1beta1, v1, v2alpha1] and then [v1, v1beta1] is [v1, v1beta1, v2alpha1].
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

// withDocument returns g after a read of the document that began at now and found document, or
// nil if nothing is left of it. all reports whether that is news in any case. g or document may be nil.
func (s *Snapshot) withDocument(g, document *Group, all bool, now Seq) *Group {
	if g == nil || g == document {
		return document
	}
	next := s.fork(g, g.name)
	next.over.document = document
	if document == nil && g.laid().document != nil {
		next.over.listed = max(next.over.listed, s.read)
	}
	if all || document != g.laid().document {
		next.takeNews(document, now)
	}
	next.versions = slices.DeleteFunc(next.versions, func(v Version) bool {
		return v.Removed && !v.returned() && document.Version(v.Name) == nil
	})
	if next.finish(); next.isLeft() {
		return next
	}
	return nil
}

// isLeft reports whether anything is known of a group of the snapshot's own.
func (g *Group) isLeft() bool {
	return g.over.document != nil || len(g.versions) > 0
}

// takeNews replaces what was read before the document's read began. What document does not have
// stays as it is. document may be nil.
func (g *Group) takeNews(document *Group, now Seq) {
	if document == nil {
		return
	}
	for _, news := range document.versions {
		if g.Version(news.Name) == nil {
			g.versions = append(g.versions, Version{Name: news.Name})
		}
		g.Version(news.Name).takeNews(&news, now)
	}
	if g.over.listed < now {
		g.preferred = document.preferred
		g.arrange(document.names(), now)
	}
}

// takeNews takes what a document says that was read at now. A version that the document marks as
// stale, or only names, keeps its table: that says nothing of what it serves.
func (v *Version) takeNews(news *Version, now Seq) {
	if news.Table != nil && v.ReadSeq < now {
		v.Table, v.Removed, v.ReadSeq = news.Table, false, now
	}
	if v.Removed || v.TriedSeq >= now || !news.known() {
		return
	}
	if v.Err != nil {
		v.TriedSeq = 0
	}
	if v.Err = news.Err; v.Table == nil {
		v.ReadSeq = now
	}
}

func (g *Group) names() []string {
	names := make([]string, len(g.versions))
	for i := range g.versions {
		names[i] = g.versions[i].Name
	}
	return names
}

// arrange puts the versions into the order of names, which was read at now.
func (g *Group) arrange(names []string, now Seq) {
	versions := make([]Version, 0, len(g.versions))
	for i, name := range mergeOrder(g.names(), names) {
		if v := g.Version(name); v != nil {
			v.named = 0
			if i < len(names) {
				v.named = now
			}
			versions = append(versions, *v)
		}
	}
	g.versions = versions
}

// WithGroup records a live read of the list of a group that began at now, when the snapshot
// was from. versions is empty if the server answered that there is no such group.
func (s *Snapshot) WithGroup(group string, versions []string, preferred string, now Seq, from *Snapshot) *Snapshot {
	g := s.Group(group)
	switch {
	case g == nil && len(versions) == 0:
		return s
	case g != nil && now <= g.laid().listed, s.newsSince(group, from, now):
		return s // something younger is known
	}
	next := s.fork(g, group)
	next.over.listed = now
	if len(versions) > 0 {
		for _, name := range versions {
			if next.Version(name) == nil {
				next.versions = append(next.versions, Version{Name: name})
			}
		}
		next.preferred = preferred
		next.arrange(versions, now)
	}
	return s.with(next)
}

// WithVersion records a live read of a version that began at now, when the snapshot was
// from. Nothing is kept of a version that nobody has seen served.
func (s *Snapshot) WithVersion(group, version string, found VersionResult, now Seq, from *Snapshot) *Snapshot {
	g := s.Group(group)
	v, documented := g.Version(version), g.laid().document.Version(version)
	news := documented != nil && s.newsSince(group, from, now)
	switch {
	case v == nil && found.Table == nil:
		return s
	case v != nil && now <= v.TriedSeq, news && documented.Table != nil:
		return s // something younger is known
	}
	next := s.fork(g, group)
	if v == nil {
		next.versions = append(next.versions, Version{Name: version})
	}
	v = next.Version(version)
	v.take(found, now)
	if news && next.over.listed < s.news {
		v.named = s.news
	}
	// A table with a resource list belongs to this mapper, and the document may have an older list.
	if documented != nil && v.Table.ResourceList() == nil && documented.Table.sameAnswers(v.Table) {
		v.Table = documented.Table // one copy for all mappers
	}
	return s.with(next)
}

// take takes what the version's own path has told at now.
func (v *Version) take(found VersionResult, now Seq) {
	v.TriedSeq, v.Err = now, found.Err
	switch {
	case found.Table != nil:
		same := found.Table.sameAnswers(v.Table) && found.Table.sameResourceList(v.Table)
		if !same { // who reads many versions compares each, again and again
			v.Table = found.Table
		}
		v.ReadSeq, v.Removed = now, false
	case found.Err == nil:
		v.Table, v.ReadSeq, v.Removed = nil, now, true
		if v.named < now {
			v.named = 0 // if it comes back, its old place is none
		}
	case v.Removed:
		v.ReadSeq, v.Removed = 0, false // nobody knows any more
	}
}

// newsSince reports whether a document that began after now has news of the group since
// the snapshot from.
func (s *Snapshot) newsSince(group string, from *Snapshot, now Seq) bool {
	if s.news <= now {
		return false
	}
	first := from.read <= s.reset && from.read < s.read // after a reset: news of every group
	return first || s.Group(group).laid().document != from.Group(group).laid().document
}

// Reset makes everything count as unread that was read before now.
func (s *Snapshot) Reset(now Seq) *Snapshot {
	next := *s
	next.reset = max(now, s.reset)
	return &next
}

// fork returns a copy of g to change, which lies over what the document says of the group. Its
// versions may be changed, too. g is nil if nothing is known of the group.
func (s *Snapshot) fork(g *Group, name string) *Group {
	if g == nil {
		return &Group{name: name, over: &overlay{used: new(atomic.Bool)}}
	}
	own := &struct { // one allocation
		group Group
		over  overlay
	}{*g, g.laid()}
	next := &own.group
	next.over, next.versions = &own.over, slices.Clone(g.versions)
	if next.over.used == nil {
		next.over.used = new(atomic.Bool)
	}
	if g.over == nil {
		for i := range next.versions {
			v := &next.versions[i]
			v.named = s.news
			if v.known() {
				v.ReadSeq = s.news
			}
		}
	}
	return next
}

// finish ends the change of a copy.
func (g *Group) finish() {
	g.forget()
	g.rank()
}

// mostUnnamed bounds the versions of a group that the document does not have, and mostLeft the
// groups with such a version. A server that lists others each time must not fill the memory.
// What exceeds a bound is forgotten, and found again if it is there.
const (
	mostUnnamed = 64
	mostLeft    = 4096
)

// forget forgets the versions that the document does not have if there are too many.
func (g *Group) forget() {
	if document := g.over.document; len(g.versions)-document.count() > mostUnnamed {
		g.versions = slices.DeleteFunc(g.versions, func(v Version) bool { return document.Version(v.Name) == nil })
	}
}

// count counts the versions; g may be nil.
func (g *Group) count() int {
	if g == nil {
		return 0
	}
	return len(g.versions)
}

// hasMore reports whether something of g is known that the document does not have.
func (g *Group) hasMore() bool {
	return g.over != nil && (g.over.document == nil || len(g.versions) > len(g.over.document.versions))
}

// with returns s with g instead of the group of that name, or after all others. Mostly g takes
// the other's place, and nothing is done that takes longer the more groups there are, but to
// copy the slice: a lookup may read each of very many groups.
func (s *Snapshot) with(g *Group) *Snapshot {
	next := *s
	g.finish()
	next.groups = slices.Clone(s.groups)
	i, known := s.position(g.name)
	switch {
	case !known:
		next.groups = append(next.groups, g)
	case !g.isLeft():
		next.groups = slices.Delete(next.groups, i, i+1)
	default:
		old := s.groups[i]
		next.groups[i], next.lazy = g, new(lazy)
		if old.hasMore() || !g.hasMore() {
			if !g.sameAnswers(old) {
				next.generation++
			}
			return &next
		}
	}
	next.follow(s)
	return &next
}

// follow fills in what follows from next.groups, after s.
func (next *Snapshot) follow(s *Snapshot) {
	left := 0
	for _, g := range next.groups {
		if g.hasMore() {
			left++
		}
	}
	if left > mostLeft {
		for i, g := range next.groups {
			if g.hasMore() {
				next.groups[i] = g.over.document
			}
		}
		next.groups = slices.DeleteFunc(next.groups, func(g *Group) bool { return g == nil })
	}
	var document index
	if next.doc != nil {
		document = next.doc.index
	}
	next.index = indexed(next.groups, document, s.index)
	if !s.sameAnswers(next) || s.read == 0 && next.read > 0 {
		next.generation = s.generation + 1
	}
}

// sameAnswers reports whether lookups in both snapshots have the same answers in the same order.
func (s *Snapshot) sameAnswers(other *Snapshot) bool {
	a, b := s.groups, other.groups
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] == b[0]:
			a, b = a[1:], b[1:]
		case a[0].servesNothing():
			a = a[1:]
		case b[0].servesNothing():
			b = b[1:]
		case a[0].name != b[0].name, !a[0].sameAnswers(b[0]):
			return false
		default:
			a, b = a[1:], b[1:]
		}
	}
	serves := func(g *Group) bool { return !g.servesNothing() }
	return !slices.ContainsFunc(a, serves) && !slices.ContainsFunc(b, serves)
}
