// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	apiversion "k8s.io/apimachinery/pkg/version"
)

// Version is one version of a group and what is known of it.
type Version struct {
	Name string

	// Table is what the last successful read found; nil before the first one.
	Table *Table

	// Outdated says that a reset came after that read: Table is served only as
	// long as it cannot be read again.
	Outdated bool

	// Err says why the last read failed; nil if it succeeded or none was made.
	Err error
}

// Known says that the version's resources may be served without another read.
func (v *Version) Known() bool { return v.Table != nil && !v.Outdated }

// Group is one API group. It is immutable.
type Group struct {
	name      string
	preferred string    // as the server says; may name a version that is not served
	versions  []Version // in server order
	listed    bool      // versions and preferred are the server's own list
	complete  bool      // listed, and every version is known
	tried     bool      // listed, and every version is known or its last read failed
	ranked    []int32   // positions in versions in client-go's order of priority
}

// NewGroup makes a group of versions in server order. preferred may be empty or
// name a version that is not among them. listed says that the list is the
// server's own, and not put together from single versions. The group keeps
// versions. Versions that serve the same resources come to share a table.
func NewGroup(name, preferred string, versions []Version, listed bool) *Group {
	g := &Group{name: name, preferred: preferred, versions: slices.Clip(versions), listed: listed, complete: listed, tried: listed}
	for i := range versions {
		if i > 0 && versions[i].Table.equal(versions[i-1].Table) {
			versions[i].Table = versions[i-1].Table
		}
		g.complete = g.complete && versions[i].Known()
		g.tried = g.tried && (versions[i].Known() || versions[i].Err != nil)
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

// Listed says that the versions are the server's own list, and not put together
// from reads of single versions.
func (g *Group) Listed() bool { return g.listed }

// Versions returns the group's versions in server order. The caller must not change them.
func (g *Group) Versions() []Version { return g.versions }

// Version returns the version of that name, or nil.
func (g *Group) Version(name string) *Version {
	if i := g.index(name); i >= 0 {
		return &g.versions[i]
	}
	return nil
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

// preferredMapping returns the mapping in the best version that serves kind, or
// nil. settled says that no read could bring up a better one.
func (g *Group) preferredMapping(kind string) (m *meta.RESTMapping, settled bool) {
	settled = g.listed
	for _, i := range g.ranked {
		v := &g.versions[i]
		settled = settled && v.Known()
		if m := g.mapping(v, kind); m != nil {
			return m, settled
		}
	}
	return nil, settled
}

// firstMapping returns the mapping in the first of the requested versions that
// serves kind, or nil. settled says that no read could bring up a better one.
func (g *Group) firstMapping(kind string, requested []string) (m *meta.RESTMapping, settled bool) {
	settled = true
	for _, name := range requested {
		if unspecified(name) {
			continue
		}
		v := g.Version(name)
		settled = settled && g.settled(v)
		if m := g.mapping(v, kind); m != nil {
			return m, settled
		}
	}
	return nil, settled
}

// settled says that nothing has to be read to know what v, found by its name in
// this group, serves; nil stands for a version that is not listed.
func (g *Group) settled(v *Version) bool {
	if v == nil {
		return g.listed
	}
	return v.Known()
}

// requestedMappings returns the mappings of kind in the requested versions, in server order.
func (g *Group) requestedMappings(kind string, requested []string) (found []*meta.RESTMapping, settled bool) {
	versions := g.versions
	settled = g.listed
	if len(requested) == 1 {
		versions = g.only(requested[0])
		settled = true // there is no order to one version
	}
	var mappings []meta.RESTMapping // what found points to
	for i := range versions {
		v := &versions[i]
		if len(requested) > 0 && !slices.Contains(requested, v.Name) {
			continue
		}
		settled = settled && v.Known()
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

// only returns the version of that name alone, or none.
func (g *Group) only(version string) []Version {
	if i := g.index(version); i >= 0 {
		return g.versions[i : i+1]
	}
	return nil
}

// roomFor returns n mappings and room for pointers to them. One or two, as most
// kinds have, are in one piece with their pointers: memory is most of what the
// lookup costs.
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

// unspecified says that client-go ignores version in a list of versions to search.
func unspecified(version string) bool {
	return version == "" || version == runtime.APIVersionInternal
}

// specified returns the versions that are not ignored.
func specified(versions []string) []string {
	if !slices.ContainsFunc(versions, unspecified) {
		return versions
	}
	return slices.DeleteFunc(slices.Clone(versions), unspecified)
}

// Keep returns the group with those of its versions that are in served, and after
// that the other versions of served, which the server did not list.
func (g *Group) Keep(served map[string]Version) *Group {
	versions := make([]Version, 0, len(served))
	for _, v := range g.versions {
		if read, ok := served[v.Name]; ok {
			versions = append(versions, read)
		}
	}
	kept := NewGroup(g.name, g.preferred, versions, g.listed)
	for _, name := range slices.Sorted(maps.Keys(served)) {
		if g.index(name) < 0 {
			kept = kept.withVersion(served[name])
		}
	}
	return kept
}

// withVersion returns the group with v in the place of the version of that name.
// A version that was not in the list goes where the API server would put it
// among the versions of a CustomResourceDefinition, and the list no longer
// counts as the server's own.
func (g *Group) withVersion(v Version) *Group {
	versions := slices.Clone(g.versions)
	if i := g.index(v.Name); i >= 0 {
		versions[i] = v
		return NewGroup(g.name, g.preferred, versions, g.listed)
	}
	at := slices.IndexFunc(versions, func(other Version) bool {
		return apiversion.CompareKubeAwareVersionStrings(v.Name, other.Name) > 0
	})
	if at < 0 {
		at = len(versions)
	}
	return NewGroup(g.name, g.preferred, slices.Insert(versions, at, v), false)
}

// withoutVersion returns the group without the version, or nil if none is left.
// The list no longer counts as the server's own, which must have a new one.
func (g *Group) withoutVersion(name string) *Group {
	versions := slices.DeleteFunc(slices.Clone(g.versions), func(v Version) bool { return v.Name == name })
	if len(versions) == 0 {
		return nil
	}
	return NewGroup(g.name, g.preferred, versions, false)
}

// equal says that both groups answer alike. Groups with a version that failed
// are never equal: the reason may have changed.
func (g *Group) equal(other *Group) bool {
	return g == other || g != nil && other != nil &&
		g.name == other.name && g.preferred == other.preferred && g.listed == other.listed &&
		slices.EqualFunc(g.versions, other.versions, func(a, b Version) bool {
			return a.Name == b.Name && a.Outdated == b.Outdated && a.Err == nil && b.Err == nil && a.Table.equal(b.Table)
		})
}
