// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The lookups return the answer from what is known, and whether it is current: whether
// everything that it rests on was tried since the last reset. You may use an answer that is
// not current only after an attempt to read. NoMatch is never current: only a new read can
// prove that something is absent.

// RESTMapping answers meta.RESTMapper.RESTMapping: in the first of the versions that serves
// the kind, or in the best one if none is specified.
func (s *Snapshot) RESTMapping(gk schema.GroupKind, versions []string) (m *meta.RESTMapping, current bool, err error) {
	g := s.Group(gk.Group)
	if g == nil {
		return nil, false, noKind(gk, versions)
	}
	named, candidates := true, len(versions)
	if !slices.ContainsFunc(versions, specified) {
		named, candidates = false, len(g.ranked)
	}
	current = named || g.tried && s.currentList(g)
	for i := range candidates {
		var v *Version
		switch {
		case !named:
			v = &g.versions[g.ranked[i]]
		case specified(versions[i]):
			v = g.Version(versions[i])
		default:
			continue
		}
		if to, ok := v.target(gk.Kind); ok {
			if v.Read > 0 && s.lost(g, v) { // the call would cost each hit
				break
			}
			m = new(meta.RESTMapping)
			g.fill(m, v, gk.Kind, to)
			return m, current && s.current(g, v) && (!named || g.attempted(versions[i+1:])), nil
		}
		current = current && (v == nil && s.currentList(g) || v != nil && s.tried(g, v))
	}
	return nil, false, noKind(gk, versions)
}

// attempted reports whether those of the versions that are known were ever tried.
func (g *Group) attempted(versions []string) bool {
	return g.tried || !slices.ContainsFunc(versions, func(name string) bool {
		v := g.Version(name)
		return v != nil && !v.attempted()
	})
}

// RESTMappings answers meta.RESTMapper.RESTMappings: in server order, in all versions if none
// is specified.
func (s *Snapshot) RESTMappings(gk schema.GroupKind, versions []string) (found []*meta.RESTMapping, current bool, err error) {
	g := s.Group(gk.Group)
	if g == nil {
		return nil, false, noKind(gk, versions)
	}
	all := !slices.ContainsFunc(versions, specified)
	current = len(versions) == 1 && !all || s.currentList(g) // there is no order to one version
	var mappings []meta.RESTMapping                          // what found points to
	for i := range g.versions {
		v := &g.versions[i]
		if !all && !slices.Contains(versions, v.Name) {
			continue
		}
		current = current && s.tried(g, v)
		to, ok := v.target(gk.Kind)
		if !ok {
			continue
		}
		if s.lost(g, v) {
			found = nil
			break
		}
		if found == nil {
			// Most kinds have one or two versions. Their mappings share one allocation with the
			// pointers, because allocations are most of the cost of the lookup.
			var two struct {
				mappings [2]meta.RESTMapping
				pointers [2]*meta.RESTMapping
			}
			mappings, found = two.mappings[:0], two.pointers[:0]
		}
		current = current && s.current(g, v)
		mappings = append(mappings, meta.RESTMapping{})
		m := &mappings[len(mappings)-1]
		g.fill(m, v, gk.Kind, to)
		found = append(found, m)
	}
	if len(found) == 0 {
		return nil, false, noKind(gk, versions)
	}
	return found, current, nil
}

// target returns where a version, which may be nil, serves kind.
func (v *Version) target(kind string) (target, bool) {
	if v == nil || v.Table == nil {
		return target{}, false
	}
	return v.Table.target(kind)
}

// fill makes m the mapping of a kind. It sets the fields one by one, because
// copying a whole mapping to the heap takes longer.
func (g *Group) fill(m *meta.RESTMapping, v *Version, kind string, found target) {
	m.Resource.Group, m.GroupVersionKind.Group = g.name, g.name
	m.Resource.Version, m.GroupVersionKind.Version = v.Name, v.Name
	m.Resource.Resource, m.GroupVersionKind.Kind = found.resource, kind
	m.Scope = meta.RESTScopeRoot
	if found.namespaced {
		m.Scope = meta.RESTScopeNamespace
	}
}

func noKind(gk schema.GroupKind, versions []string) error {
	// A clone, so that the caller's slice of versions may stay on its stack.
	return &meta.NoKindMatchError{GroupKind: gk, SearchedVersions: slices.Clone(versions)}
}

// KindFor answers meta.RESTMapper.KindFor.
func (s *Snapshot) KindFor(query schema.GroupVersionResource) (kind schema.GroupVersionKind, current bool, err error) {
	q := coerce(query)
	best, current := s.best(q, kinds)
	if best.group == nil {
		return kind, false, s.noMatch(query, q)
	}
	kind.Group, kind.Version, kind.Kind = best.group.name, best.version.Name, best.row.Kind
	return kind, current, nil
}

// KindsFor answers meta.RESTMapper.KindsFor.
func (s *Snapshot) KindsFor(query schema.GroupVersionResource) (found []schema.GroupVersionKind, current bool, err error) {
	q := coerce(query)
	all, current := s.all(make([]match, 0, 4), q, kinds)
	if len(all) == 0 {
		return nil, false, s.noMatch(query, q)
	}
	found = make([]schema.GroupVersionKind, len(all))
	for i, m := range all {
		found[i] = m.gvk()
	}
	return found, current, nil
}

// ResourceFor answers meta.RESTMapper.ResourceFor.
func (s *Snapshot) ResourceFor(query schema.GroupVersionResource) (resource schema.GroupVersionResource, current bool, err error) {
	q := coerce(query)
	best, current := s.best(q, resources)
	if best.group == nil {
		return resource, false, s.noMatch(query, q)
	}
	if best.several(q) != nil {
		all, current, _ := s.ResourcesFor(query)
		return resource, current, &meta.AmbiguousResourceError{PartialResource: query, MatchingResources: all}
	}
	resource.Group, resource.Version, resource.Resource = best.group.name, best.version.Name, best.row.Name
	return resource, current, nil
}

// ResourcesFor answers meta.RESTMapper.ResourcesFor.
func (s *Snapshot) ResourcesFor(query schema.GroupVersionResource) (found []schema.GroupVersionResource, current bool, err error) {
	q := coerce(query)
	all, current := s.all(make([]match, 0, 4), q, resources)
	if len(all) == 0 {
		return nil, false, s.noMatch(query, q)
	}
	found = make([]schema.GroupVersionResource, 0, len(all))
	for _, m := range all {
		found = m.appendResources(found, q)
	}
	return found, current, nil
}

// noMatch is the error of a lookup of a resource that found nothing. query is the caller's
// own, q what it was coerced to.
func (s *Snapshot) noMatch(query, q schema.GroupVersionResource) error {
	if q.Resource == "" && s.lastTable() != nil {
		return missingResource(q)
	}
	return &meta.NoResourceMatchError{PartialResource: query}
}

// ResourceSingularizer answers meta.RESTMapper.ResourceSingularizer. It goes through the
// versions in server order, and returns the singular in the first in which the name has
// exactly one. If there is none, it returns the answer of the last version.
func (s *Snapshot) ResourceSingularizer(resource string) (singular string, current bool, err error) {
	q := coerce(schema.GroupVersionResource{Resource: resource})
	for _, m := range s.appendMatches(make([]match, 0, 4), q, resources) {
		if s.lost(m.group, m.version) {
			return resource, false, &meta.NoResourceMatchError{PartialResource: q}
		}
		if singular, err = m.singular(resource, q); err == nil {
			return singular, s.current(m.group, m.version) && s.complete(q, m.group), nil
		}
	}
	switch last := s.lastTable(); {
	case last == nil || q.Resource != "" && !last.has(q.Resource):
		return resource, false, &meta.NoResourceMatchError{PartialResource: q}
	case q.Resource == "":
		err = missingResource(q)
	}
	return resource, s.complete(q, nil), err
}

func missingResource(q schema.GroupVersionResource) error {
	return fmt.Errorf("a resource must be present, got: %v", q)
}

// lastTable returns the table of the last version that was read, in server order, or nil.
func (s *Snapshot) lastTable() *Table {
	for _, g := range slices.Backward(s.groups) {
		for i := len(g.versions) - 1; i >= 0; i-- {
			if t := g.versions[i].Table; t != nil {
				return t
			}
		}
	}
	return nil
}
