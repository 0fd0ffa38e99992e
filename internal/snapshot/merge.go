// SPDX-License-Identifier: Apache-2.0

package snapshot

import "slices"

// How a read changes what is known. Only the 404 of a version's own path removes the
// version. Of two reads the one that began later counts. A document that repeats what it
// said of a group is no news of the group: it confirms what came from the document, and
// changes nothing else. The first document after a reset is news of every group.

// WithDocument records a read of the document that began at now and found doc.
func (s *Snapshot) WithDocument(doc *List, now Tick) *Snapshot {
	if now <= s.document {
		return s
	}
	next := *s
	if doc != s.doc || s.document <= s.reset {
		next.news = now
	}
	next.doc, next.document = doc, now
	if doc == s.doc && s.apart == 0 {
		return &next
	}
	next.groups = make([]*Group, 0, len(doc.groups))
	for _, name := range keepPlaces(names(s.groups), names(doc.groups)) {
		if g := s.Group(name).withDocument(doc.Group(name), s, now); g != nil {
			next.groups = append(next.groups, g)
		}
	}
	next.follow(s)
	return &next
}

func names(groups []*Group) []string {
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = g.name
	}
	return names
}

// keepPlaces returns names, and those of old that are not among them behind the one that they
// followed: lookups in many groups must not answer something else while a server starts.
func keepPlaces(old, names []string) []string {
	if slices.Equal(old, names) {
		return names // as nearly always
	}
	position := make(map[string]int, len(names))
	for i, name := range names {
		position[name] = i
	}
	left := map[int][]string{}
	at := -1
	for _, name := range old {
		if i, ok := position[name]; ok {
			at = i
		} else {
			left[at] = append(left[at], name)
		}
	}
	all := append(make([]string, 0, len(old)+len(names)), left[-1]...)
	for i, name := range names {
		if position[name] == i { // once
			all = append(append(all, name), left[i]...)
		}
	}
	return all
}

// mostMarked bounds the groups that have something which the document does not name, and
// mostUnnamed such versions of one group. A server that lists others each time must not fill
// the memory.
const (
	mostMarked  = 4096
	mostUnnamed = 64
)

// bounded returns all, but of those that are marked, if they are more than most, the least
// recently tried as they are without that, if anything is left of them.
func bounded[T any](all []T, most int, tried func(*T) (at Tick, marked bool), without func(*T) (left T, ok bool)) []T {
	var ticks []Tick
	for i := range all {
		if at, marked := tried(&all[i]); marked {
			ticks = append(ticks, at)
		}
	}
	forget := len(ticks) - most
	if forget <= 0 {
		return all
	}
	slices.Sort(ticks)
	last := ticks[forget-1]
	kept := make([]T, 0, len(all))
	for _, t := range all {
		at, marked := tried(&t)
		ok := true
		if marked && at <= last && forget > 0 {
			forget--
			t, ok = without(&t)
		}
		if ok {
			kept = append(kept, t)
		}
	}
	return kept
}

// withDocument returns the group after a read of the document that began at now, when the
// snapshot was s, and says said of it, or nil if nothing is left of it. g or said may be nil.
func (g *Group) withDocument(said *Group, s *Snapshot, now Tick) *Group {
	if g == nil || g == said {
		return said
	}
	next := g.fork(g.name)
	next.document = said
	if s.document <= s.reset || said != g.Said() {
		next.takeNews(said, s.document, now)
	}
	if said == nil && g.Said() != nil {
		next.listed = max(g.listed, s.document)
	}
	next.versions = slices.DeleteFunc(next.versions, func(v Version) bool { return v.Gone && !v.returned() && said.Version(v.Name) == nil })
	switch {
	case next.agrees() && next.lastTried() < now:
		return said
	case said == nil && len(next.versions) == 0 && next.reset == 0:
		return nil
	}
	next.index()
	return next
}

// takeNews replaces what was read before the document's read began. A version that the
// document marks as stale or only names keeps its last table, and so does a version that
// the document does not have.
func (g *Group) takeNews(said *Group, before, now Tick) {
	for i := range g.versions {
		v := &g.versions[i]
		if v.Read == 0 && v.Table != nil {
			v.Read = before
		}
		if news := said.Version(v.Name); news != nil {
			v.takeNews(news, now)
		}
	}
	if said == nil {
		return
	}
	for _, v := range said.versions {
		if g.Version(v.Name) == nil {
			g.versions = insert(g.versions, v)
		}
	}
	if g.listed < now {
		g.preferred = said.preferred
		g.arrange(said.names())
	}
}

func (v *Version) takeNews(news *Version, now Tick) {
	if v.Tried >= now && v.Err == nil {
		return // read live, or found gone, later than the document
	}
	if news.Table != nil && v.Read < now {
		v.Table, v.Read, v.Gone = news.Table, 0, false
	}
	v.named = now
	if v.Gone || v.Tried >= now || !news.attempted() {
		return // a document that only names a version does not say how it is
	}
	if v.Err != nil {
		v.Tried = 0 // what was found then is no longer what is known
	}
	v.Err = news.Err
}

func (g *Group) names() []string {
	names := make([]string, len(g.versions))
	for i := range g.versions {
		names[i] = g.versions[i].Name
	}
	return names
}

// arrange puts the versions into the order of names.
func (g *Group) arrange(names []string) {
	versions := make([]Version, 0, len(g.versions))
	for _, name := range keepPlaces(g.names(), names) {
		if v := g.Version(name); v != nil {
			versions = append(versions, *v)
		}
	}
	g.versions = versions
}

// WithList records a live read of the list of a group that began at now, when the snapshot
// was from. versions is empty if the server answered that there is no such group. err is
// not nil if the read failed.
func (s *Snapshot) WithList(group string, versions []string, preferred string, err error, now Tick, from *Snapshot) *Snapshot {
	g := s.Group(group)
	if g == nil && len(versions) == 0 || g != nil && now <= g.listTried {
		return s
	}
	next := s.fork(group, now)
	next.listTried = now
	if err == nil && !s.newsSince(group, from, now) {
		next.takeList(versions, preferred, now)
	}
	next.settle()
	return s.with(next)
}

// takeList takes over the order of a list and its versions, but removes none.
func (g *Group) takeList(versions []string, preferred string, now Tick) {
	g.listed = now
	if len(versions) == 0 {
		return
	}
	for _, name := range versions {
		if g.Version(name) == nil {
			g.versions = append(g.versions, Version{Name: name})
		}
		g.Version(name).named = now
	}
	g.preferred = preferred
	g.arrange(versions)
}

// Found is what a live read of a version has found: what it serves, or an error, or
// neither if the server answered that there is no such version.
type Found struct {
	Table *Table
	Err   error
}

// None reports whether the server answered that there is no such version.
func (f Found) None() bool { return f.Table == nil && f.Err == nil }

// WithVersion records a live read of a version that began at now, when the snapshot was
// from, and has ended at end. It changes nothing if a later read is known already. Nothing is
// kept of a version that nobody has seen served.
func (s *Snapshot) WithVersion(group, version string, found Found, now, end Tick, from *Snapshot) *Snapshot {
	g := s.Group(group)
	v, said := g.Version(version), g.Said().Version(version)
	news := said != nil && s.newsSince(group, from, now)
	if v == nil && found.Table == nil || v != nil && now <= v.Tried || news && said.Table != nil {
		return s
	}
	next := s.fork(group, now)
	if v == nil {
		next.versions = insert(next.versions, Version{Name: version})
	}
	v = next.Version(version)
	v.take(found, now, end)
	if news {
		v.named = max(v.named, s.news)
	}
	if said != nil && said.Table.servesLike(v.Table) {
		v.Table = said.Table // one copy for all mappers
	}
	next.settle()
	return s.with(next)
}

// fork returns a copy of a group to change for a read that began at now. If that was before the
// group's last reset, the reset is pending again. Of a group that nobody knows any reset may
// have been the last.
func (s *Snapshot) fork(group string, now Tick) *Group {
	g := s.Group(group)
	next := g.fork(group)
	if g == nil {
		next.settled = s.anyReset
	}
	if now <= next.settled {
		next.reset = max(next.reset, next.settled)
	}
	return next
}

func (v *Version) take(found Found, now, end Tick) {
	v.Tried, v.Err = now, found.Err
	switch {
	case found.Err == nil:
		if !found.Table.servesLike(v.Table) {
			if v.Table != nil {
				v.changed = end
			}
			v.Table = found.Table
		}
		v.Read, v.Gone = now, v.Table == nil
	case v.Gone: // nobody knows any more
		v.Read, v.Gone = 0, false
	}
}

// newsSince reports whether a document that began after now has news of the group since
// the snapshot from.
func (s *Snapshot) newsSince(group string, from *Snapshot, now Tick) bool {
	if s.news <= now {
		return false
	}
	return s.Group(group).Said() != from.Group(group).Said() || from.document <= s.reset
}

// Reset makes everything count as unread that was read before now.
func (s *Snapshot) Reset(now Tick) *Snapshot {
	next := *s
	next.reset, next.anyReset = max(now, s.reset), max(now, s.anyReset)
	return &next
}

// ResetGroup makes one group count as unread until its list and each of its versions were
// tried live after now. An unknown group counts as known until then.
func (s *Snapshot) ResetGroup(group string, now Tick) *Snapshot {
	g := s.Group(group).fork(group)
	g.reset = max(g.reset, now)
	next := s.with(g)
	next.anyReset = max(now, s.anyReset)
	return next
}

// with returns s with g instead of the group of that name, or after all others. Mostly g takes
// the other's place, and nothing is done that takes longer the more groups there are, but to
// copy the slice: a lookup may read each of very many groups.
func (s *Snapshot) with(g *Group) *Snapshot {
	next := *s
	g.index()
	next.groups = slices.Clone(s.groups)
	i, known := s.position(g.name)
	keep := g.document != nil || g.reset > 0 || len(g.versions) > 0
	switch {
	case known && keep:
		next.groups[i], next.names = g, new(nameIndex)
		next.count(s.groups[i], -1)
		next.count(g, 1)
		if next.marked <= mostMarked {
			if !g.servesLike(s.groups[i]) {
				next.generation++
			}
			return &next
		}
	case known:
		next.groups = slices.Delete(next.groups, i, i+1)
	default:
		next.groups = append(next.groups, g)
	}
	next.follow(s)
	return &next
}

// follow fills in what follows from next.groups, after s.
func (next *Snapshot) follow(s *Snapshot) {
	next.groups = bounded(next.groups, mostMarked,
		func(g **Group) (Tick, bool) { return (*g).lastTried(), (*g).marked },
		func(g **Group) (*Group, bool) { return (*g).document, (*g).document != nil })
	var said groupIndex
	if next.doc != nil {
		said = next.doc.groupIndex
	}
	next.groupIndex = index(next.groups, said, s.groupIndex)
	next.untried, next.apart, next.marked = 0, 0, 0
	for _, g := range next.groups {
		next.count(g, 1)
	}
	if servedDifferently(s, next) {
		next.generation = s.generation + 1
	}
}

// count adds g to what is counted, n times.
func (s *Snapshot) count(g *Group, n int) {
	if g.apart {
		s.apart += n
	}
	if g.marked {
		s.marked += n
	}
	if !g.tried || g.reset > 0 {
		s.untried += n
	}
}
