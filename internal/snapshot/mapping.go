// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
)

// mapping makes the mapping of a kind in a version, or nil if the version does not serve it.
func (s *Snapshot) mapping(g *Group, v *Version, kind string) *meta.RESTMapping {
	t := s.table(g, v)
	if t == nil {
		return nil
	}
	found, ok := t.target(kind)
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
// current reports whether no read could find a better one.
func (s *Snapshot) preferredMapping(g *Group, kind string) (m *meta.RESTMapping, current bool) {
	current = g.tried && s.currentList(g)
	for _, i := range g.ranked {
		v := &g.versions[i]
		if m := s.mapping(g, v, kind); m != nil {
			return m, current && s.current(g, v)
		}
		current = current && s.tried(g, v)
	}
	return nil, false
}

// firstMapping returns the mapping in the first of the requested versions that serves
// kind, or nil. current is as for preferredMapping.
func (s *Snapshot) firstMapping(g *Group, kind string, requested []string) (m *meta.RESTMapping, current bool) {
	current = true
	for i, name := range requested {
		if unspecified(name) {
			continue
		}
		v := g.Version(name)
		if m := s.mapping(g, v, kind); m != nil {
			return m, current && s.current(g, v) && g.attempted(requested[i+1:])
		}
		current = current && (v == nil && s.currentList(g) || v != nil && s.tried(g, v))
	}
	return nil, false
}

// attempted reports whether those of the versions that are known were ever tried.
func (g *Group) attempted(versions []string) bool {
	return g.tried || !slices.ContainsFunc(versions, func(name string) bool {
		v := g.Version(name)
		return v != nil && !v.attempted()
	})
}

// requestedMappings returns the mappings of kind in the requested versions, in server order.
func (s *Snapshot) requestedMappings(g *Group, kind string, requested []string) (found []*meta.RESTMapping, current bool) {
	versions := g.versions
	if len(requested) == 1 {
		i := max(g.position(requested[0]), 0)
		versions = versions[i:min(i+1, len(versions))]
		current = true // there is no order to one version
	} else {
		current = s.currentList(g)
	}
	var mappings []meta.RESTMapping // what found points to
	for i := range versions {
		v := &versions[i]
		if len(requested) > 0 && !slices.Contains(requested, v.Name) {
			continue
		}
		current = current && s.tried(g, v)
		t := s.table(g, v)
		if t == nil {
			continue
		}
		if to, ok := t.target(kind); ok {
			current = current && s.current(g, v)
			if found == nil {
				mappings, found = roomFor(len(versions) - i)
			}
			m := &mappings[len(found)]
			g.fill(m, v, kind, to)
			found = append(found, m)
		}
	}
	return found, current
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
