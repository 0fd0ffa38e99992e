// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// Seq numbers the reads and resets of one mapper in the order in which they began. A
// read takes its number just before its first request. 0 stands for never.
type Seq uint64

// Version is one version of a group and what is known of it: nothing, what it serves, why it could
// not be read, perhaps beside what it served before, or that it is gone.
type Version struct {
	Name string

	// Table is what it serves. Nil if it was never read, or is gone.
	Table *Table
	// Err is why it could not be read the last time, by its own path or by the document.
	Err error
	// Removed reports whether its own path answered 404, at TriedSeq. Invariant: then Table and Err are nil.
	Removed bool

	// The sequence numbers count in a group that something lies over. In others they are 0.

	// ReadSeq is when the read began that has found Table, or that it is gone; of a document, the one
	// that had it as news. Invariant: it is 0 if nothing is known but a failure of its own path.
	ReadSeq Seq
	// TriedSeq is when its own path was last asked, with whatever result. Invariant: a Table that was
	// read there has ReadSeq <= TriedSeq. News ends a failure: then it counts as never asked.
	TriedSeq Seq

	// named is when the latest list, or the latest document with news of the group, named it: then it has a place
	// in the order. 0: that left it out, or it was found gone since.
	named Seq
}

// known reports whether the version was ever read, or asked in vain, and nobody has named it since
// it was found gone.
func (v *Version) known() bool {
	if v.Removed {
		return !v.returned()
	}
	return v.Table != nil || v.Err != nil
}

// returned reports whether the version was found gone, and named after that: a lookup asks
// it again.
func (v *Version) returned() bool { return v.Removed && v.named > v.TriedSeq }

// table returns what the version serves, or nil; v may be nil.
func (v *Version) table() *Table {
	if v == nil {
		return nil
	}
	return v.Table
}

// Group is one API group. It is immutable. Mostly it is the document's own, which all mappers of
// the process share. What live reads have found lies over that, in a group of the snapshot's own.
type Group struct {
	name      string
	preferred string    // as the server says; may name a version that is not served
	versions  []Version // in server order, with those that are gone
	ranked    []int32   // positions in versions in client-go's order of priority; follows from the others
	over      *overlay  // nil: the group is the document's own
}

// overlay is what a snapshot knows of a group beside what the document says.
type overlay struct {
	document *Group // what that says; nil if it has no such group

	used   *atomic.Bool // a lookup was answered from the group since somebody took note of that; all copies share it
	listed Seq          // when the group's own list was last read; or the last document that had it, if no longer
}

// ClearUsed reports whether a lookup was answered from the group since the last call.
func (g *Group) ClearUsed() bool { return g.over != nil && g.over.used.Swap(false) }

// use notes that a lookup is answered from the group. It does not write if that is known.
func (g *Group) use() {
	if g.over != nil && !g.over.used.Load() {
		g.over.used.Store(true)
	}
}

// NewGroup makes a group of a document, of versions in server order. preferred may be
// empty or name a version that is not among them. The group keeps versions. Versions that
// serve the same resources come to share a table.
func NewGroup(name, preferred string, versions []Version) *Group {
	g := &Group{name: name, preferred: preferred, versions: slices.Clip(versions)}
	g.rank()
	return g
}

// rank fills in what follows from the versions.
func (g *Group) rank() {
	g.ranked = make([]int32, len(g.versions))
	for i := range g.versions {
		if i > 0 {
			g.versions[i].shareTable(&g.versions[i-1])
		}
		g.ranked[i] = int32(i)
	}
	slices.SortStableFunc(g.ranked, func(a, b int32) int { return cmp.Compare(g.class(&g.versions[a]), g.class(&g.versions[b])) })
}

// shareTable makes v keep the table of another version, if both were made of the same resources. A table with a
// resource list is that of one version.
func (v *Version) shareTable(other *Version) {
	if v.Table.ResourceList() != nil || other.Table.ResourceList() != nil {
		return
	}
	if v.Table.sameRows(other.Table) {
		v.Table = other.Table
	}
}

// class follows newDiscoveryRESTMapper in k8s.io/client-go/restmapper: v1 of the core group
// before all, then the preferred version, then the others in the order of the list.
func (g *Group) class(v *Version) int {
	switch {
	case g.name == "" && v.Name == "v1":
		return 0
	case v.Name == g.preferred:
		return 1
	default:
		return 2
	}
}

// Name returns the group's name; "" is the core group.
func (g *Group) Name() string { return g.name }

// Preferred returns the version that the server prefers, which it may not serve.
func (g *Group) Preferred() string { return g.preferred }

// Versions returns the group's versions in server order. The caller must not change them.
func (g *Group) Versions() []Version {
	if g.over == nil {
		return g.versions
	}
	return slices.DeleteFunc(slices.Clone(g.versions), func(v Version) bool { return v.Removed })
}

// Version returns the version of that name, or nil. g may be nil.
func (g *Group) Version(name string) *Version {
	if i := g.indexOf(name); i >= 0 {
		return &g.versions[i]
	}
	return nil
}

// indexOf returns where in g.versions the version of that name stands, or -1. g may be nil.
func (g *Group) indexOf(name string) int {
	if g != nil {
		for i := range g.versions {
			if g.versions[i].Name == name {
				return i
			}
		}
	}
	return -1
}

// laid returns what lies over the document's group, if g is that: nothing; g may be nil.
func (g *Group) laid() overlay {
	switch {
	case g == nil:
		return overlay{}
	case g.over == nil:
		return overlay{document: g}
	}
	return *g.over
}

// lastAsked returns when the list of g, or one of its versions, was last read live.
func (g *Group) lastAsked() Seq {
	last := g.laid().listed
	for i := range g.versions {
		last = max(last, g.versions[i].TriedSeq)
	}
	return last
}

// served lists the versions that are not gone, in server order, or the best one first; g may be nil.
func (g *Group) served(bestFirst bool) []*Version {
	if g == nil {
		return nil
	}
	versions := make([]*Version, 0, len(g.versions))
	for i := range g.versions {
		v := &g.versions[i]
		if bestFirst {
			v = &g.versions[g.ranked[i]]
		}
		if !v.Removed {
			versions = append(versions, v)
		}
	}
	return versions
}

func (g *Group) servesNothing() bool {
	return !slices.ContainsFunc(g.versions, func(v Version) bool { return !v.Removed })
}

// sameAnswers reports whether lookups in both groups have the same answers in the same order. A
// version that was listed before and is now read for the first time is no difference: it was
// served all along. g and other may be nil.
func (g *Group) sameAnswers(other *Group) bool {
	if g == other {
		return true
	}
	sameName := func(a, b *Version) bool { return a.Name == b.Name }
	return slices.EqualFunc(g.served(true), other.served(true), sameName) &&
		slices.EqualFunc(g.served(false), other.served(false), func(a, b *Version) bool {
			switch {
			case !sameName(a, b):
				return false
			case !a.known(), !b.known():
				return true
			}
			return a.Table.sameAnswers(b.Table)
		})
}

// sameResourceLists reports whether both groups, which have the same versions, have the same resource lists of them.
func (g *Group) sameResourceLists(other *Group) bool {
	return slices.EqualFunc(g.versions, other.versions, func(a, b Version) bool {
		return a.Table.sameResourceList(b.Table)
	})
}

// sameAsDocument reports whether g answers as a document's group does: the same versions in the same
// order, and of each the same answers or a failure. Of versions that the document only names it says no
// more. document may be nil.
func (g *Group) sameAsDocument(document *Group) bool {
	switch {
	case g == document:
		return true
	case document == nil, g.preferred != document.preferred:
		return false
	}
	return slices.EqualFunc(g.versions, document.versions, func(v, documented Version) bool {
		switch {
		case v.Name != documented.Name, v.Removed:
			return false
		case !documented.known():
			return true
		case (v.Err == nil) != (documented.Err == nil):
			return false
		}
		return v.Table.sameAnswers(documented.Table)
	})
}
