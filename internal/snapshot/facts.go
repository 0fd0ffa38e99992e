// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"slices"
)

// facts hold what is known of a group besides its entry in the document: live reads,
// failures, and what the document has dropped. They are immutable. Most groups have no
// facts: they are the document's own groups, and mappers share them.
type facts struct {
	doc      *Group   // the group in the document; nil if the document does not list it
	list     Tick     // of the last live read of the group's list, if any
	passed   bool     // the document has had news of the group since that read
	listed   []string // the versions that the list had, in server order
	favorite string   // the preferred version of the list
	lacked   []string // the versions that a live list did not have, and that were not read since
	versions []fact   // sorted by name
}

// fact is what is known of one version besides the document.
type fact struct {
	name  string
	table *Table // what the last good read found; nil if there was none, or if it is gone
	read  Tick   // the tick of that read
	live  bool   // that read was live; else it was of the document, which has changed since
	gone  bool   // that read found that the version is not served
	err   error  // why a later read failed
	tried Tick   // the tick of the later read
}

// factsOf returns the facts of a group. If it has none of its own, they refer to the
// document alone. g may be nil.
func factsOf(g *Group) facts {
	switch {
	case g == nil:
		return facts{}
	case g.own != nil:
		return *g.own
	default:
		return facts{doc: g}
	}
}

func (f *facts) index(name string) (int, bool) {
	return slices.BinarySearchFunc(f.versions, name, func(a fact, name string) int { return cmp.Compare(a.name, name) })
}

// get returns the fact about a version, or an empty one.
func (f *facts) get(name string) fact {
	if i, ok := f.index(name); ok {
		return f.versions[i]
	}
	return fact{name: name}
}

// with returns the facts with v instead of what was known of that version.
func (f facts) with(v fact) facts {
	i, ok := f.index(v.name)
	f.versions = slices.Clone(f.versions)
	if ok {
		f.versions[i] = v
	} else {
		f.versions = slices.Insert(f.versions, i, v)
	}
	return f
}

// without returns the facts after a live read has found a version gone. If the document
// has dropped a group that had this version, that proves that the document is right.
func (f facts) without(version string, now Tick) facts {
	right := f.doc == nil && slices.Contains(f.names(), version)
	f.listed = slices.DeleteFunc(slices.Clone(f.listed), func(name string) bool { return name == version })
	if f.doc.find(version) != nil {
		return f.with(fact{name: version, gone: true, read: now, live: true})
	}
	f.versions = slices.DeleteFunc(slices.Clone(f.versions), func(v fact) bool {
		return v.name == version || right && !v.live
	})
	if right && f.list == 0 { // the list was the document's
		f.listed = slices.DeleteFunc(f.listed, func(name string) bool { return !f.has(name) })
	}
	return f
}

// restate returns the facts that remain after a new read of the document, in which the
// group is doc; doc is nil if the document no longer lists the group. The document was
// read at now, and before that at then.
//
// A live fact that differs from the document stays until the next live read: the
// document may be behind, by seconds on another replica, by a minute for an APIService.
// A version that the document only names, or marks as stale, keeps its last good table.
// A group that it drops stays as it was.
func (f facts) restate(doc *Group, then, now Tick) facts {
	next, news := facts{doc: doc}, doc != f.doc
	for _, name := range f.names() {
		if v, keep := f.sinceThen(name, then).against(doc, news, now); keep {
			next = next.with(v)
		}
	}
	switch {
	case !news:
		next.list, next.listed, next.favorite, next.lacked, next.passed = f.list, f.listed, f.favorite, f.lacked, f.passed
	case doc == nil:
		next.list, next.favorite, next.lacked = f.list, f.preferred(), f.lacked
		next.listed = slices.DeleteFunc(f.listing(), func(name string) bool {
			if f.list > 0 { // a version that the live list lacks must not seem to be in it
				return !slices.Contains(f.listed, name)
			}
			return !next.has(name)
		})
	case f.list > 0:
		next.list, next.listed, next.favorite, next.lacked = f.list, f.listed, f.favorite, f.lacked
		next.passed = true
	}
	if doc != nil && len(next.versions) == 0 && next.sameList() {
		return facts{doc: doc}
	}
	return next
}

// lacking returns the versions that the live list read at now, or an earlier one, did not
// have, and that were not read since then.
func (f *facts) lacking(listed []string, now Tick) []string {
	var lacking []string
	for _, name := range f.names() {
		lacked := slices.Contains(f.lacked, name) || !slices.Contains(listed, name)
		if lacked && f.get(name).read <= now {
			lacking = append(lacking, name)
		}
	}
	return lacking
}

// has reports whether the document lists the version or there is a fact about it.
func (f *facts) has(name string) bool {
	_, ok := f.index(name)
	return ok || f.doc.find(name) != nil
}

// sinceThen returns the fact about a version. If there is none, it makes one from the
// document, which was read at then.
func (f *facts) sinceThen(name string, then Tick) fact {
	v := f.get(name)
	if said := f.doc.find(name); said != nil && said.Table != nil && v.table == nil && !v.gone {
		v.table, v.read = said.Table, then
		if v.tried < then {
			v.err, v.tried = nil, 0
		}
	}
	return v
}

// everyName lists the versions of the group, the best first, and then those that were
// found gone but that a list still has.
func (g *Group) everyName() []string {
	var names []string
	for _, i := range g.ranked {
		names = append(names, g.versions[i].Name)
	}
	f := factsOf(g)
	for _, name := range f.listing() {
		if g.Version(name) == nil {
			names = append(names, name)
		}
	}
	return names
}

// unvouched lists the versions that could not be read live and that the document
// does not list.
func (g *Group) unvouched() []string {
	var names []string
	f := factsOf(g)
	for _, v := range f.versions {
		if v.err != nil && f.doc.find(v.name) == nil {
			names = append(names, v.name)
		}
	}
	return names
}

// against compares v with a document that was read at now. It returns what remains of v,
// and reports whether that is more than the document has. news reports whether the
// document has news of the group. A mark as stale counts only if it is news, and was read
// after v.
func (v fact) against(doc *Group, news bool, now Tick) (fact, bool) {
	said, failed := doc.find(v.name), v.err != nil && !news
	switch {
	case doc == nil:
		return v, v.table != nil || failed
	case v.gone:
		return v, said != nil
	case said == nil:
		return v, v.live || failed
	case said.Table == nil && v.table != nil: // it is stale, or only listed
		if said.Err != nil && news && now > v.read {
			v.err, v.tried = said.Err, now
		}
		return v, true
	case said.Table == nil && v.err != nil:
		return v, true
	default:
		if v.tried <= now { // the document has it again
			v.err, v.tried = nil, 0
		}
		return v, v.err != nil || v.live && !v.table.equal(said.Table)
	}
}

// names lists every version in the facts or in the document.
func (f *facts) names() []string {
	var names []string
	for _, v := range f.versions {
		names = append(names, v.name)
	}
	for _, name := range f.listing() {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// disputed reports whether the document and a live read disagree, so that only another
// live read can tell which is right.
func (f *facts) disputed() bool {
	if f.doc == nil || !f.sameList() {
		return true
	}
	return slices.ContainsFunc(f.versions, func(v fact) bool {
		said := f.doc.Version(v.name)
		switch {
		case v.gone:
			return said != nil
		case v.table == nil:
			return false
		default:
			return said == nil || said.Table != nil && !said.Table.equal(v.table)
		}
	})
}

// dropped reports whether the document has dropped the group, and no version of it was
// read live since then.
func (f *facts) dropped() bool {
	return f.doc == nil && !slices.ContainsFunc(f.versions, func(v fact) bool { return v.live })
}
