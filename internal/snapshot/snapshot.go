// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Snapshot is what one server was last known to serve. Every mapper starts with the zero
// Snapshot, which knows nothing.
type Snapshot struct {
	index // of the groups; some may serve nothing any more

	doc   *Document // the last document. Invariant: it is nil if and only if read is 0
	read  Seq       // when that was last read
	news  Seq       // when it was last news of any group. Invariant: news <= read
	reset Seq       // the last Reset: what was read before it is not current

	generation uint64

	used *atomic.Bool // as of a group, of a lookup that several groups may answer; nil in the zero Snapshot
}

// New returns a Snapshot that knows nothing, and notes which groups lookups use.
func New() *Snapshot { return &Snapshot{used: new(atomic.Bool)} }

// ClearUsed reports whether a lookup that several groups may answer was made since the last call.
func (s *Snapshot) ClearUsed() bool { return s.used != nil && s.used.Swap(false) }

// use notes that such a lookup is made.
func (s *Snapshot) use() {
	if s.used != nil && !s.used.Load() {
		s.used.Store(true)
	}
}

// Groups returns the groups in server order, without those that serve nothing.
func (s *Snapshot) Groups() []*Group {
	return slices.DeleteFunc(slices.Clone(s.groups), (*Group).servesNothing)
}

// Generation returns a number that moves when an answer of the server moves, also by order alone,
// and only then. It does not move when a listed version is read for the first time.
func (s *Snapshot) Generation() uint64 { return s.generation }

// HasDocument reports whether the document was ever read.
func (s *Snapshot) HasDocument() bool { return s.read > 0 }

// HasDocumentSince reports whether the document was read by a read that began after now.
func (s *Snapshot) HasDocumentSince(now Seq) bool { return s.read > now }

// Document returns the last document, or nil if it was never read. It is the same one as
// long as the server sends the same, also of what lookups do not need.
func (s *Snapshot) Document() *Document { return s.doc }

// Aggregated reports whether the document has the resources of every version.
func (s *Snapshot) Aggregated() bool { return s.doc != nil && s.doc.aggregated }

// LastReset returns the sequence number of the last reset.
func (s *Snapshot) LastReset() Seq { return s.reset }

// Serves reports whether a version of a group is known, read or not, and not gone.
func (s *Snapshot) Serves(group, version string) bool {
	v := s.Group(group).Version(version)
	return v != nil && !v.Removed
}

// KindsOfResource returns the kinds that are known to have exactly that resource.
func (s *Snapshot) KindsOfResource(at schema.GroupVersionResource) (kinds []string) {
	for _, r := range s.Group(at.Group).Version(at.Version).table().all() {
		if r.Name == at.Resource {
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
			for range v.Table.spelledKinds() {
				n++
			}
		}
	}
	return n
}

// WithLastReset returns s as one sees it for whom reset was the last Reset: what was read after it counts,
// and nothing else.
func (s *Snapshot) WithLastReset(reset Seq) *Snapshot {
	if s.reset == reset {
		return s
	}
	seen := *s
	seen.reset = reset
	return &seen
}

// The facts below decide whether an answer is current. A group that nothing lies over is as old as
// the document, which confirms it each time that it is read (R2).

// current reports whether what v serves was read since the last reset: then a lookup may be
// answered from it.
func (s *Snapshot) current(g *Group, v *Version) bool {
	if g.over == nil {
		return s.read > s.reset
	}
	return v.ReadSeq > s.reset
}

// asked reports whether v was read since the last reset, or asked in vain: then it keeps no
// answer from being current that does not rest on it.
func (s *Snapshot) asked(g *Group, v *Version) bool {
	if !v.known() {
		return false
	}
	if g.over == nil {
		return s.read > s.reset
	}
	return max(v.ReadSeq, v.TriedSeq) > s.reset
}

// listedAt returns when somebody last told in which order the versions of g stand: its own list,
// or a document that has the group.
func (s *Snapshot) listedAt(g *Group) Seq {
	o := g.laid()
	if o.document == nil {
		return o.listed
	}
	return max(o.listed, s.read)
}

// currentList reports whether that was since the last reset.
func (s *Snapshot) currentList(g *Group) bool {
	return s.listedAt(g) > s.reset
}

// placed reports whether it is known where v stands among the versions of g: a list or a document
// has named it, or was read since it was found. Before that its place, behind all others, is a
// guess, and nobody who chooses among several is answered from it.
func (s *Snapshot) placed(g *Group, v *Version) bool {
	return g.over == nil || v.named > 0 || v.ReadSeq < s.listedAt(g)
}

// groupPlaced is placed for a group among the groups, which documents alone can tell.
func (s *Snapshot) groupPlaced(g *Group) bool {
	younger := func(v Version) bool { return v.ReadSeq > s.read }
	named := func(v Version) bool { return g.over == nil || v.named > 0 }
	return g.laid().document != nil && slices.ContainsFunc(g.versions, named) || !slices.ContainsFunc(g.versions, younger)
}

// settled reports whether no answer that rests on g lacks anything.
func (s *Snapshot) settled(g *Group) bool {
	for i := range g.versions {
		v := &g.versions[i]
		switch {
		case !v.known():
			return false
		case g.over == nil: // all others are as old as the document
		case v.Table == nil && !s.asked(g, v), v.Table != nil && !s.current(g, v), !s.placed(g, v):
			return false
		}
	}
	if g.over == nil {
		return s.read > s.reset
	}
	return s.currentList(g) && s.groupPlaced(g)
}

// overlaid reports whether a group is not the document's own.
func (s *Snapshot) overlaid() bool { return s.doc == nil || s.lazy != s.doc.lazy }

// open returns the positions of the groups that are not settled. The document was read since the last
// reset.
func (s *Snapshot) open() []int {
	var read, reset Seq
	if s.overlaid() {
		read, reset = s.read, s.reset
	}
	if known := s.lazy.open.Load(); known != nil && known.read == read && known.reset == reset {
		return known.positions
	}
	found := &unsettled{read: read, reset: reset}
	for i, g := range s.groups {
		if !s.settled(g) {
			found.positions = append(found.positions, i)
		}
	}
	s.lazy.open.Store(found)
	return found.positions
}
