// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"slices"

	apiversion "k8s.io/apimachinery/pkg/version"
)

// Version is one version of a group and what is known of it.
type Version struct {
	Name string

	// Table is what the last read that succeeded has found; nil if there was none, or if
	// the version is gone.
	Table *Table
	// Read is when that read began. 0 stands for the document, which confirms Table each
	// time that it repeats it.
	Read Tick

	// Tried is when the version's own path was last read, with whatever result. Gone
	// reports whether that answered 404. Err is its error, or that of the document.
	Tried Tick
	Gone  bool
	Err   error

	named   Tick // when a list, or a document with news of it, last named it
	changed Tick // when a live read that found another table had ended
}

// attempted reports whether the version was ever read, or tried in vain.
func (v *Version) attempted() bool { return v.Table != nil || v.Err != nil || v.Gone && !v.returned() }

// returned reports whether the version was found gone, and named after that: a lookup asks
// it again.
func (v *Version) returned() bool { return v.Gone && v.named > v.Tried }

// Group is one API group. It is immutable. Mostly it is the document's own, which all
// mappers of the process share. After live reads, or when the document no longer says what
// it said, a snapshot has a group of its own: that is apart.
type Group struct {
	name      string
	preferred string    // as the server says; may name a version that is not served
	versions  []Version // in server order, with those that are gone
	ranked    []int32   // positions in versions in client-go's order of priority
	tried     bool      // every version was read, or tried in vain
	marked    bool      // the document does not name it, or one of its versions

	apart     bool
	document  *Group // what the document says of the group; nil if it has no such group
	listed    Tick   // when its list was last read; when the document had it, if it no longer has it
	listTried Tick   // when its own list was last read, with whatever result
	reset     Tick   // what was not tried live since then is not current; 0: no such reset is pending
	settled   Tick   // the last such reset that is not pending: a read from before it makes it so again
}

// NewGroup makes a group of a document, of versions in server order. preferred may be
// empty or name a version that is not among them. The group keeps versions. Versions that
// serve the same resources come to share a table.
func NewGroup(name, preferred string, versions []Version) *Group {
	g := &Group{name: name, preferred: preferred, versions: slices.Clip(versions)}
	g.index()
	return g
}

// index fills in what follows from the versions.
func (g *Group) index() {
	if g.apart {
		unnamed := func(v *Version) (Tick, bool) { return v.Tried, g.document.Version(v.Name) == nil }
		g.versions = bounded(g.versions, mostUnnamed, unnamed, func(*Version) (none Version, ok bool) { return none, false })
		g.marked = g.document == nil || len(g.versions) > len(g.document.versions)
	}
	g.tried = true
	g.ranked = make([]int32, len(g.versions))
	for i := range g.versions {
		v := &g.versions[i]
		if i > 0 && v.Table.equal(g.versions[i-1].Table) {
			v.Table = g.versions[i-1].Table
		}
		g.tried = g.tried && v.attempted()
		g.ranked[i] = int32(i)
	}
	slices.SortStableFunc(g.ranked, func(a, b int32) int { return cmp.Compare(g.class(a), g.class(b)) })
}

// class follows newDiscoveryRESTMapper in k8s.io/client-go/restmapper: v1 of the core group
// before all, then the preferred version, then the others in the order of the list.
func (g *Group) class(i int32) int {
	switch name := g.versions[i].Name; {
	case g.name == "" && name == "v1":
		return 0
	case name == g.preferred:
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
	if !g.apart {
		return g.versions
	}
	return slices.DeleteFunc(slices.Clone(g.versions), func(v Version) bool { return v.Gone })
}

// Version returns the version of that name, or nil. g may be nil.
func (g *Group) Version(name string) *Version {
	if g == nil {
		return nil
	}
	for i := range g.versions {
		if g.versions[i].Name == name {
			return &g.versions[i]
		}
	}
	return nil
}

// Said returns what the document says of the group, or nil; g may be nil.
func (g *Group) Said() *Group {
	if g == nil || !g.apart {
		return g
	}
	return g.document
}

// fork returns a copy of g to change, which is apart. Its versions may be changed, too. g
// may be nil: then the copy is a group that no document has.
func (g *Group) fork(name string) *Group {
	if g == nil {
		return &Group{name: name, apart: true}
	}
	next := *g
	next.versions, next.document, next.apart = slices.Clone(g.versions), g.Said(), true
	return &next
}

// insert adds a version that no list has, in the place where the API server would list it
// among the versions of a CustomResourceDefinition.
func insert(versions []Version, v Version) []Version {
	at := slices.IndexFunc(versions, func(other Version) bool {
		return apiversion.CompareKubeAwareVersionStrings(v.Name, other.Name) > 0
	})
	if at < 0 {
		at = len(versions)
	}
	return slices.Insert(versions, at, v)
}

// settle forgets the reset of the group when its list and each of its versions were read
// live since then.
func (g *Group) settle() {
	waiting := func(v Version) bool { return v.Tried <= g.reset || v.Err != nil }
	if g.reset > 0 && g.listed > g.reset && !slices.ContainsFunc(g.versions, waiting) {
		g.reset, g.settled = 0, g.reset
	}
}

// like reports whether two groups have the same versions in the same order, and those are alike.
func (g *Group) like(other *Group, alike func(a, b *Version) bool) bool {
	return g == other || g != nil && other != nil && g.preferred == other.preferred &&
		slices.EqualFunc(g.versions, other.versions, func(a, b Version) bool { return a.Name == b.Name && alike(&a, &b) })
}

// agrees reports whether g answers as the document does, and no read of g has failed that
// the document says nothing of. Such a group needs no live read in a refresh.
func (g *Group) agrees() bool {
	return g.reset == 0 && g.like(g.Said(), func(a, b *Version) bool {
		return !a.Gone && (a.Err == nil) == (b.Err == nil) && a.Table.servesLike(b.Table)
	})
}

// saysLike reports whether two groups of documents say the same, in whatever order of kinds.
// Errors count as different: they may have other texts.
func (g *Group) saysLike(other *Group) bool {
	return g.like(other, func(a, b *Version) bool {
		return a.Err == nil && b.Err == nil && a.Table.servesLike(b.Table)
	})
}

// rankedNames lists the versions that are served, or may be again, the best one first.
func (g *Group) rankedNames() (names []string) {
	for _, i := range g.ranked {
		if v := &g.versions[i]; !v.Gone || v.returned() {
			names = append(names, v.Name)
		}
	}
	return names
}
