// SPDX-License-Identifier: Apache-2.0

package snapshot

import "slices"

// index fills in the order of next.groups. It uses the order of s, or of the document, if
// that still holds. Lookups index the names later.
func (next *Snapshot) index(s *Snapshot) {
	switch {
	case sameNames(next.groups, s.groups):
		next.order = s.order
	case next.doc != nil && sameNames(next.groups, next.doc.groups):
		next.order = next.doc.order
	default:
		next.order = newOrder(next.groups)
	}
	if slices.EqualFunc(next.groups, s.groups, (*Group).answersLike) {
		next.names = s.names
	} else {
		next.names = new(nameIndex)
	}
	next.settle(s)
}

// settle fills in the counts that follow from next.groups, and the generation. s is the
// snapshot before.
func (next *Snapshot) settle(s *Snapshot) {
	next.incomplete, next.private, next.oldest = 0, 0, never
	for _, g := range next.groups {
		if !g.tried {
			next.incomplete++
		}
		if g.own != nil {
			next.private++
			next.oldest = min(next.oldest, g.oldest())
		}
	}
	if !s.Read() && next.Read() || servedDifferently(s, next) {
		next.generation = s.generation + 1
	}
}

// oldest returns the least tick of the group's versions, of versions that were found
// gone, and of their order, unless these come from the document.
func (g *Group) oldest() Tick {
	oldest := never
	if g.own.list > 0 && g.own.listLeads() {
		oldest = g.own.list
	}
	for _, v := range g.own.versions {
		if v.gone {
			oldest = min(oldest, max(v.read, v.tried))
		}
	}
	for i := range g.versions {
		if v := &g.versions[i]; v.Read > 0 {
			oldest = min(oldest, v.Read)
		} else if tried := g.own.get(v.Name).tried; v.Table == nil && tried > 0 {
			oldest = min(oldest, tried)
		}
	}
	return oldest
}
