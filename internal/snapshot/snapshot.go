// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Tick numbers the reads and resets of one mapper in the order in which they began. A
// read takes its tick just before its first request. 0 stands for never.
type Tick uint64

// Snapshot is what one server was last known to serve. Every mapper starts with the zero
// Snapshot, which knows nothing.
type Snapshot struct {
	groupIndex // some groups may serve nothing any more

	doc      *List // the last document; nil if it was never read
	document Tick  // when that was last read
	news     Tick  // when it was last news of any group
	reset    Tick  // what was read before it is not current
	anyReset Tick  // the last reset of everything or of a group

	generation uint64

	// What follows from groups, so that nobody needs to go through all of them:
	untried int // groups with a version that was never tried, or with a reset that is pending
	apart   int // groups that are not the document's own
	marked  int // groups of which the document does not name everything
}

// Groups returns the groups in server order, without those that serve nothing.
func (s *Snapshot) Groups() []*Group {
	return slices.DeleteFunc(slices.Clone(s.groups), func(g *Group) bool { return len(g.served()) == 0 })
}

// Generation returns a number that moves when the served API changes, and only then. It
// does not move when a listed version is read for the first time.
func (s *Snapshot) Generation() uint64 { return s.generation }

// Read reports whether the document was ever read.
func (s *Snapshot) Read() bool { return s.document > 0 }

// Document returns the last document, or nil if it was never read. It is the same one as
// long as the server sends the same, also of what lookups do not need.
func (s *Snapshot) Document() *List { return s.doc }

// Aggregated reports whether the document has the resources of every version.
func (s *Snapshot) Aggregated() bool { return s.doc != nil && s.doc.aggregated }

// LastResetOfAny returns the tick of the last reset, of everything or of a group.
func (s *Snapshot) LastResetOfAny() Tick { return s.anyReset }

// Serves reports whether a version of a group is known, read or not.
func (s *Snapshot) Serves(group, version string) bool {
	v := s.Group(group).Version(version)
	return v != nil && !v.Gone
}

// KindsAt returns the kinds that are known to have exactly that resource.
func (s *Snapshot) KindsAt(at schema.GroupVersionResource) (kinds []string) {
	if v := s.Group(at.Group).Version(at.Version); v != nil && v.Table != nil {
		for _, r := range v.Table.rows {
			if r.Name == at.Resource {
				kinds = append(kinds, r.Kind)
			}
		}
	}
	return kinds
}

// AsOf returns s as a lookup sees it that began at now: a reset after that does not count.
func (s *Snapshot) AsOf(now Tick) *Snapshot {
	if s.reset <= now {
		return s
	}
	seen := *s
	seen.reset = now
	return &seen
}

// current reports whether a version was read since the last reset, so that a lookup may be
// answered from what is known of it.
func (s *Snapshot) current(g *Group, v *Version) bool {
	if s.anyReset == 0 || !v.attempted() {
		return v.attempted()
	}
	return s.readAt(v) > s.reset && (g.reset == 0 || v.Err == nil && v.Tried > g.reset)
}

// tried reports whether a version was read since the last reset, or tried in vain: then it
// keeps no answer from being current that does not rest on it.
func (s *Snapshot) tried(g *Group, v *Version) bool {
	if s.anyReset == 0 || !v.attempted() {
		return v.attempted()
	}
	return max(s.readAt(v), v.Tried) > s.reset && (g.reset == 0 || v.Tried > g.reset)
}

// readAt returns when the table of v was read.
func (s *Snapshot) readAt(v *Version) Tick {
	if v.Read == 0 && (v.Table != nil || v.Err != nil && v.Tried == 0) {
		return s.document
	}
	return v.Read
}

// currentList reports whether the list of a group's versions, and their order, were read
// since the last reset, or tried in vain.
func (s *Snapshot) currentList(g *Group) bool {
	tried := max(g.listed, g.listTried)
	if g.Said() != nil {
		tried = max(tried, s.document)
	}
	return tried > s.reset && (g.reset == 0 || g.listTried > g.reset)
}

// lost reports whether a document that was read after the last Reset no longer has a
// version that was known before it, and no read of the version has succeeded since. What such a
// version had is neither served nor absent: a lookup that comes to it finds nothing.
func (s *Snapshot) lost(g *Group, v *Version) bool {
	return 0 < v.Read && v.Read <= s.reset && s.reset < s.document && g.Said().Version(v.Name) == nil
}

// Kinds counts the kinds of all versions that were read.
func (s *Snapshot) Kinds() int {
	n := 0
	for _, g := range s.groups {
		for _, v := range g.versions {
			if v.Table != nil {
				n += cmp.Or(len(v.Table.kinds), len(v.Table.rows))
			}
		}
	}
	return n
}
