// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Snapshot is what one server was last known to serve. Every mapper starts with that of New, which knows nothing.
type Snapshot struct {
	index // of the groups; some may serve nothing any more

	doc      *Document // the last document. Invariant: it is nil if and only if docSeq is 0
	docSeq   Seq       // the last read of the document
	newsSeq  Seq       // the last one that had news of any group. Invariant: newsSeq <= docSeq
	resetSeq Seq       // the last Reset: what was read before it is not current

	generation uint64

	// used is set by a lookup that several groups may answer; see the field of overlay. Nil in the zero Snapshot.
	used *atomic.Bool
}

// New returns a Snapshot that knows nothing, and notes which groups lookups use.
func New() *Snapshot { return &Snapshot{used: new(atomic.Bool)} }

// ClearUsed forgets that lookups were made that several groups may answer, and reports whether one was made since
// the last call.
func (s *Snapshot) ClearUsed() bool { return s.used != nil && s.used.Swap(false) }

// markUsed notes that such a lookup is made.
func (s *Snapshot) markUsed() {
	if s.used != nil {
		mark(s.used)
	}
}

// Groups returns the groups in server order, without those that serve nothing.
func (s *Snapshot) Groups() []*Group {
	return slices.DeleteFunc(slices.Clone(s.groups), (*Group).servesNothing)
}

// Generation returns a number that grows when an answer of the server changes, also if only the order does, and
// only then. It does not grow when a listed version is read for the first time.
func (s *Snapshot) Generation() uint64 { return s.generation }

// HasDocument reports whether the document was ever read.
func (s *Snapshot) HasDocument() bool { return s.docSeq > 0 }

// HasDocumentSince reports whether a read of the document has ended that began after a sequence number.
func (s *Snapshot) HasDocumentSince(seq Seq) bool { return s.docSeq > seq }

// Document returns the last document, or nil if it was never read. It is the same one as
// long as the server sends the same, also of what lookups do not need.
func (s *Snapshot) Document() *Document { return s.doc }

// Aggregated reports whether the document has the resources of every version.
func (s *Snapshot) Aggregated() bool { return s.doc != nil && s.doc.aggregated }

// LastReset returns the sequence number of the last reset.
func (s *Snapshot) LastReset() Seq { return s.resetSeq }

// Serves reports whether a version of a group is known, whether it was read or not, and was not found removed.
func (s *Snapshot) Serves(group, version string) bool { return s.Group(group).Version(version) != nil }

// KindsOfResource returns the kinds that are known to have exactly that resource.
func (s *Snapshot) KindsOfResource(resource schema.GroupVersionResource) (kinds []string) {
	for _, r := range s.Group(resource.Group).table(resource.Version).allRows() {
		if r.Name == resource.Resource {
			kinds = append(kinds, r.Kind)
		}
	}
	return kinds
}

// CountKinds counts the kinds of all versions that were read.
func (s *Snapshot) CountKinds() int {
	n := 0
	for _, g := range s.groups {
		for _, v := range g.versions {
			for range v.Table.kindNames() {
				n++
			}
		}
	}
	return n
}

// WithLastReset returns s as if reset were the last Reset: what was read after it is current, and nothing else is.
func (s *Snapshot) WithLastReset(reset Seq) *Snapshot {
	if s.resetSeq == reset {
		return s
	}
	seen := *s
	seen.resetSeq = reset
	return &seen
}

// The functions below say as of which reads something is known. An answer is current if all that it rests on was
// read since the last reset.

// readsOf returns as of which reads a version of g is known. A group without an overlay is the document's own, and
// each document confirms it (R2): so its versions are as old as the document.
func (s *Snapshot) readsOf(g *Group, i int) versionReads {
	if g.overlay != nil {
		return g.overlay.reads[i]
	}
	if g.versions[i].onlyListed() {
		return versionReads{listed: s.newsSeq}
	}
	return versionReads{answered: s.docSeq, listed: s.newsSeq}
}

// lastLiveRead returns the last read of a version's own path, or 0. g may be nil.
func (s *Snapshot) lastLiveRead(g *Group, version string) Seq {
	i := g.indexOf(version)
	if i < 0 {
		return 0
	}
	return s.readsOf(g, i).tried
}

// documented returns what the document says of a group, or nil if it does not have the group.
func (s *Snapshot) documented(group string) *Group {
	if s.doc == nil {
		return nil
	}
	return s.doc.Group(group)
}

// isDocumented reports whether the document has g.
func (s *Snapshot) isDocumented(g *Group) bool {
	if s.doc == nil {
		return false
	}
	if s.order == s.doc.order {
		return true // as mostly: the document has the same groups, in the same order
	}
	return s.doc.Group(g.name) != nil
}

// orderSeq returns the last read that has found in which order the versions of g stand: that of group discovery, or
// of a document that has the group.
func (s *Snapshot) orderSeq(g *Group) Seq {
	if g.overlay == nil {
		return s.docSeq
	}
	if g.overlay.groupRead < s.docSeq && s.isDocumented(g) {
		return s.docSeq
	}
	return g.overlay.groupRead
}

// placed reports whether it is known where a version stands among those of g.
func (s *Snapshot) placed(g *Group, i int) bool { return s.readsOf(g, i).placed(s.orderSeq(g)) }

// groupPlaced reports whether it is known where g stands among the groups. Only a document can tell: either it has
// the group, and one of its versions was listed, or it was read since all of the group's versions were.
func (s *Snapshot) groupPlaced(g *Group) bool {
	if g.overlay == nil {
		return true
	}
	younger := func(r versionReads) bool { return r.answered > s.docSeq }
	if !slices.ContainsFunc(g.overlay.reads, younger) {
		return true
	}
	isListed := func(r versionReads) bool { return r.listed > 0 }
	return s.isDocumented(g) && slices.ContainsFunc(g.overlay.reads, isListed)
}

// groupCurrent reports whether every answer that rests on g is current: each version was read since the last reset,
// or tried if it has nothing to answer from, and it is known where the versions and the group stand.
func (s *Snapshot) groupCurrent(g *Group) bool {
	if g.overlay == nil {
		return g.complete && s.docSeq > s.resetSeq
	}
	order := s.orderSeq(g)
	for i := range g.overlay.reads {
		reads := &g.overlay.reads[i]
		last := reads.answered
		if g.versions[i].Table == nil {
			last = reads.lastTried()
		}
		if last <= s.resetSeq || !reads.placed(order) {
			return false
		}
	}
	return order > s.resetSeq && s.groupPlaced(g)
}

// hasOverlays reports whether a group is not the document's own.
func (s *Snapshot) hasOverlays() bool { return s.doc == nil || s.cache != s.doc.cache }

// outdated returns the positions of the groups that are not current (groupCurrent). The document was read since the
// last reset.
func (s *Snapshot) outdated() []int {
	var docSeq, resetSeq Seq // of a document alone the same groups are current for all mappers
	if s.hasOverlays() {
		docSeq, resetSeq = s.docSeq, s.resetSeq
	}
	known := s.cache.outdated.Load()
	if known != nil && known.docSeq == docSeq && known.resetSeq == resetSeq {
		return known.positions
	}
	found := &outdatedGroups{docSeq: docSeq, resetSeq: resetSeq}
	for i, g := range s.groups {
		if !s.groupCurrent(g) {
			found.positions = append(found.positions, i)
		}
	}
	s.cache.outdated.Store(found)
	return found.positions
}
