// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"errors"
	"fmt"
	"slices"
)

// checkFacts compares a group with what its facts make of it.
func checkFacts(g *Group) error {
	if g.own == nil {
		if g.unlisted > 0 || slices.ContainsFunc(g.versions, func(v Version) bool { return v.Live || v.Read > 0 }) {
			return errors.New("not the document's own, but without facts")
		}
		return nil
	}
	for i, f := range g.own.versions {
		if i > 0 && f.name <= g.own.versions[i-1].name {
			return fmt.Errorf("facts are not sorted, or two of %s", f.name)
		}
	}
	switch again := g.own.group(g.name); {
	case again == nil || again == g.own.doc:
		return errors.New("keeps facts that say nothing")
	case again.preferred != g.preferred || again.unlisted != g.unlisted || !slices.EqualFunc(again.versions, g.versions, sameVersion):
		return errors.New("not what its facts make of it")
	case g.own.list == 0 && (g.own.doc != nil && len(g.own.listed) > 0):
		return errors.New("a list that was never read")
	}
	for _, f := range g.own.versions {
		if err := f.check(g.own.doc.find(f.name)); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

func sameVersion(a, b Version) bool {
	return a.Name == b.Name && a.Table.equal(b.Table) && a.Read == b.Read && a.Live == b.Live && errors.Is(a.Err, b.Err)
}

// check returns what is wrong with f. said is what the document says of the version, or nil.
func (f *fact) check(said *Version) error {
	switch {
	case f.gone && (f.table != nil || !f.live || said == nil):
		return errors.New("gone, but not live, or of a document that does not list it")
	case f.live && f.read == 0 || f.live && f.table == nil && !f.gone:
		return errors.New("live, but never read")
	case !f.live && f.table != nil && said != nil && said.Table != nil:
		return errors.New("kept although the document has a table")
	case (f.err != nil) != (f.tried > 0):
		return errors.New("failed, but was never tried")
	case f.err != nil && f.tried <= f.read:
		return fmt.Errorf("failed at %d, before the good read at %d", f.tried, f.read)
	case f.table == nil && !f.gone && f.err == nil:
		return errors.New("a fact about nothing")
	}
	return nil
}

// checkDocument returns how g disagrees with what the document of s says of it.
func (s *Snapshot) checkDocument(g *Group) error {
	var said *Group
	if s.doc != nil {
		said = s.doc.group(g.name)
	}
	doc := factsOf(g).doc
	if doc != said && (said == nil || !sameVersions(doc, said)) {
		return errors.New("of another document")
	}
	return nil
}

// checkTicks returns which tick in s is later than now.
func checkTicks(s *Snapshot, now Tick) error {
	latest := max(s.reset, s.resetOfAny, s.core, s.named)
	for _, g := range s.groups {
		f := factsOf(g)
		latest = max(latest, f.list, g.unlisted)
		for _, v := range f.versions {
			latest = max(latest, v.read, v.tried)
		}
	}
	if latest > now {
		return fmt.Errorf("something of tick %d at %d", latest, now)
	}
	return nil
}
