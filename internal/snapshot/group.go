// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
)

// Version is one version of a group and what is known of it.
type Version struct {
	Name string

	// Table is what the last successful read found; nil before the first one.
	Table *Table

	// Read is the tick at which Table was read. 0 stands for the last read of the
	// document, whose tick the snapshot knows. Live reports whether it was read live.
	Read Tick
	Live bool

	// Err is the error of the last read; nil if it succeeded or none was made.
	Err error

	doubted bool // the group's own list, read live after Table, does not have it
}

// Group is one API group. It is immutable.
type Group struct {
	name      string
	preferred string    // as the server says; may name a version that is not served
	versions  []Version // in server order
	complete  bool      // every version has a table that is not doubted
	tried     bool      // every version has such a table, or an error
	ranked    []int32   // positions in versions in client-go's order of priority

	own      *facts // the facts that the group is made of; nil for the document's own group
	unlisted Tick   // the last read of a version that no list had
}

// NewGroup makes a group of versions in server order. preferred may be empty or
// name a version that is not among them. The group keeps versions. Versions that
// serve the same resources come to share a table.
func NewGroup(name, preferred string, versions []Version) *Group {
	g := &Group{name: name, preferred: preferred, versions: slices.Clip(versions), complete: true, tried: true}
	for i := range versions {
		v := &versions[i]
		if i > 0 && v.Table.equal(versions[i-1].Table) {
			v.Table = versions[i-1].Table
		}
		g.complete = g.complete && v.Table != nil && !v.doubted
		g.tried = g.tried && (v.Table != nil && !v.doubted || v.Err != nil)
	}
	g.rank()
	return g
}

// rank follows newDiscoveryRESTMapper in k8s.io/client-go/restmapper: v1 of the
// core group before all, then the preferred version, then the order of the list.
func (g *Group) rank() {
	g.ranked = make([]int32, len(g.versions))
	for i := range g.versions {
		g.ranked[i] = int32(i)
	}
	slices.SortStableFunc(g.ranked, func(a, b int32) int { return cmp.Compare(g.class(a), g.class(b)) })
}

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
func (g *Group) Versions() []Version { return g.versions }

// Version returns the version of that name, or nil.
func (g *Group) Version(name string) *Version {
	if i := g.index(name); i >= 0 {
		return &g.versions[i]
	}
	return nil
}

// find is Version for a group that may be nil.
func (g *Group) find(name string) *Version {
	if g == nil {
		return nil
	}
	return g.Version(name)
}

// names lists the versions; g may be nil.
func (g *Group) names() []string {
	if g == nil {
		return nil
	}
	names := make([]string, len(g.versions))
	for i := range g.versions {
		names[i] = g.versions[i].Name
	}
	return names
}

func (g *Group) index(version string) int {
	for i := range g.versions {
		if g.versions[i].Name == version {
			return i
		}
	}
	return -1
}

// mapping makes the mapping of a kind in a version, or nil if the version does not serve it.
func (g *Group) mapping(v *Version, kind string) *meta.RESTMapping {
	if v == nil || v.Table == nil {
		return nil
	}
	found, ok := v.Table.target(kind)
	if !ok {
		return nil
	}
	m := new(meta.RESTMapping)
	g.fill(m, v, kind, found)
	return m
}

// fill makes m the mapping of a kind. It sets the fields one by one, because
// copying a whole mapping to the heap takes longer.
func (g *Group) fill(m *meta.RESTMapping, v *Version, kind string, found target) {
	m.Resource.Group, m.GroupVersionKind.Group = g.name, g.name
	m.Resource.Version, m.GroupVersionKind.Version = v.Name, v.Name
	m.Resource.Resource, m.GroupVersionKind.Kind = found.resource, kind
	m.Scope = scope(found.namespaced)
}

func scope(namespaced bool) meta.RESTScope {
	if namespaced {
		return meta.RESTScopeNamespace
	}
	return meta.RESTScopeRoot
}

// preferredMapping returns the mapping in the best version that serves kind, or nil.
// settled reports whether the list, this version and all better ones were read after the
// last reset.
func (s *Snapshot) preferredMapping(g *Group, kind string) (m *meta.RESTMapping, settled bool) {
	settled = s.listSettled(g)
	for _, i := range g.ranked {
		v := &g.versions[i]
		settled = settled && s.settled(g, v)
		if m := g.mapping(v, kind); m != nil {
			return m, settled
		}
	}
	return nil, settled
}

// firstMapping returns the mapping in the first of the requested versions that serves
// kind, or nil. settled is as for preferredMapping.
func (s *Snapshot) firstMapping(g *Group, kind string, requested []string) (m *meta.RESTMapping, settled bool) {
	settled = true
	for _, name := range requested {
		if unspecified(name) {
			continue
		}
		v := g.Version(name)
		settled = settled && (v == nil && s.listSettled(g) || v != nil && s.settled(g, v))
		if m := g.mapping(v, kind); m != nil {
			return m, settled
		}
	}
	return nil, settled
}

// requestedMappings returns the mappings of kind in the requested versions, in server order.
func (s *Snapshot) requestedMappings(g *Group, kind string, requested []string) (found []*meta.RESTMapping, settled bool) {
	versions := g.versions
	if len(requested) == 1 {
		versions = g.only(requested[0])
		settled = true // there is no order to one version
	} else {
		settled = s.listSettled(g)
	}
	var mappings []meta.RESTMapping // what found points to
	for i := range versions {
		v := &versions[i]
		if len(requested) > 0 && !slices.Contains(requested, v.Name) {
			continue
		}
		settled = settled && s.settled(g, v)
		if v.Table == nil {
			continue
		}
		if to, ok := v.Table.target(kind); ok {
			if found == nil {
				mappings, found = roomFor(len(versions) - i)
			}
			m := &mappings[len(found)]
			g.fill(m, v, kind, to)
			found = append(found, m)
		}
	}
	return found, settled
}

// only returns the version of that name as a list, which is empty if there is none.
func (g *Group) only(version string) []Version {
	if i := g.index(version); i >= 0 {
		return g.versions[i : i+1]
	}
	return nil
}

// roomFor returns n mappings and room for pointers to them. Most kinds have one or two:
// these share one allocation with their pointers, because allocations are most of the
// cost of the lookup.
func roomFor(n int) ([]meta.RESTMapping, []*meta.RESTMapping) {
	switch n {
	case 1:
		var one struct {
			mapping [1]meta.RESTMapping
			pointer [1]*meta.RESTMapping
		}
		return one.mapping[:], one.pointer[:0]
	case 2:
		var two struct {
			mappings [2]meta.RESTMapping
			pointers [2]*meta.RESTMapping
		}
		return two.mappings[:], two.pointers[:0]
	default:
		return make([]meta.RESTMapping, n), make([]*meta.RESTMapping, 0, n)
	}
}

// answersLike reports whether both groups give the same answers, and the same versions of
// them were read. It returns false if a version has failed: the reason may have changed.
func (g *Group) answersLike(other *Group) bool {
	return g == other || g != nil && other != nil &&
		g.name == other.name && g.preferred == other.preferred &&
		slices.EqualFunc(g.versions, other.versions, func(a, b Version) bool {
			return a.Name == b.Name && a.Err == nil && b.Err == nil && a.Table.equal(b.Table)
		})
}
