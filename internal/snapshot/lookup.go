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

// RESTMapping answers meta.RESTMapper.RESTMapping.
func (s *Snapshot) RESTMapping(gk schema.GroupKind, versions []string) (m *meta.RESTMapping, current bool, err error) {
	g := s.Group(gk.Group)
	if g == nil {
		return nil, false, noKind(gk, versions)
	}
	if len(versions) == 0 || len(specified(versions)) == 0 {
		m, current = s.preferredMapping(g, gk.Kind)
	} else {
		m, current = s.firstMapping(g, gk.Kind, versions)
	}
	if m == nil {
		return nil, false, noKind(gk, versions)
	}
	return m, current, nil
}

// RESTMappings answers meta.RESTMapper.RESTMappings.
func (s *Snapshot) RESTMappings(gk schema.GroupKind, versions []string) (found []*meta.RESTMapping, current bool, err error) {
	if g := s.Group(gk.Group); g != nil {
		found, current = s.requestedMappings(g, gk.Kind, specified(versions))
	}
	if len(found) == 0 {
		return nil, false, noKind(gk, versions)
	}
	return found, current, nil
}

// KindFor answers meta.RESTMapper.KindFor.
func (s *Snapshot) KindFor(query schema.GroupVersionResource) (schema.GroupVersionKind, bool, error) {
	q := coerce(query)
	if g, v := s.foremost(q); v != nil {
		if kind, ok := v.Table.kindOf(q.Resource); ok {
			return schema.GroupVersionKind{Group: g.name, Version: v.Name, Kind: kind}, s.current(g, v), nil
		}
	}
	matches, err := s.matches(query, q)
	if err != nil {
		return schema.GroupVersionKind{}, false, err
	}
	best := bestOf(matches)
	return best.kindIn(q.Resource), s.complete(selectionOf(q), best.group, best), nil
}

// KindsFor answers meta.RESTMapper.KindsFor.
func (s *Snapshot) KindsFor(query schema.GroupVersionResource) ([]schema.GroupVersionKind, bool, error) {
	q := coerce(query)
	if g, v := s.exact(q); v != nil {
		if kind, ok := v.Table.kindOf(q.Resource); ok {
			return []schema.GroupVersionKind{{Group: g.name, Version: v.Name, Kind: kind}}, s.current(g, v), nil
		}
	}
	matches, err := s.matches(query, q)
	if err != nil {
		return nil, false, err
	}
	kinds := make([]schema.GroupVersionKind, 0, len(matches))
	for _, m := range matches {
		kinds = append(kinds, m.kindIn(q.Resource))
	}
	return kinds, s.complete(selectionOf(q), nil, matches...), nil
}

// ResourceFor answers meta.RESTMapper.ResourceFor.
func (s *Snapshot) ResourceFor(query schema.GroupVersionResource) (schema.GroupVersionResource, bool, error) {
	q := coerce(query)
	if g, v := s.foremost(q); v != nil {
		if resource, ok := v.Table.resourceOf(q.Resource); ok && (q.Group != "" || v.Table.unambiguous(q.Resource)) {
			return schema.GroupVersionResource{Group: g.name, Version: v.Name, Resource: resource}, s.current(g, v), nil
		}
	}
	matches, err := s.resourceMatches(query, q)
	if err != nil {
		return schema.GroupVersionResource{}, false, err
	}
	best := bestOf(matches)
	current := s.complete(selectionOf(q), best.group, best)
	if resources := best.resourcesIn(q.Resource); len(resources) == 1 {
		return resources[0], current, nil
	}
	return schema.GroupVersionResource{}, current, &meta.AmbiguousResourceError{
		PartialResource: query, MatchingResources: allResources(matches, q.Resource),
	}
}

// ResourcesFor answers meta.RESTMapper.ResourcesFor.
func (s *Snapshot) ResourcesFor(query schema.GroupVersionResource) ([]schema.GroupVersionResource, bool, error) {
	q := coerce(query)
	if g, v := s.exact(q); v != nil {
		if resource, ok := v.Table.resourceOf(q.Resource); ok {
			return []schema.GroupVersionResource{{Group: g.name, Version: v.Name, Resource: resource}}, s.current(g, v), nil
		}
	}
	matches, err := s.resourceMatches(query, q)
	if err != nil {
		return nil, false, err
	}
	return allResources(matches, q.Resource), s.complete(selectionOf(q), nil, matches...), nil
}

// ResourceSingularizer answers meta.RESTMapper.ResourceSingularizer. It goes through the
// versions in server order, and returns the singular in the first in which the name has
// exactly one. If there is none, it returns the answer of the last version.
func (s *Snapshot) ResourceSingularizer(resource string) (singular string, current bool, err error) {
	q := coerce(schema.GroupVersionResource{Resource: resource})
	for _, g := range s.names.among(s.groups, q.Resource) {
		for i := range g.versions {
			v := &g.versions[i]
			t := s.table(g, v)
			if t == nil || q.Resource != "" && !t.has(q.Resource) {
				continue
			}
			if singular, err = t.singularize(g.name, v.Name, resource, q); err == nil {
				return singular, s.complete(selection{}, g, match{g, v}), nil
			}
		}
	}
	if last := s.lastTable(); last == nil || q.Resource != "" && !last.has(q.Resource) {
		return resource, false, &meta.NoResourceMatchError{PartialResource: q}
	}
	return singular, s.complete(selection{}, nil), err
}

// lastTable returns the table of the last version that was read, in server order, or nil.
func (s *Snapshot) lastTable() *Table {
	for _, g := range slices.Backward(s.groups) {
		for i := len(g.versions) - 1; i >= 0; i-- {
			if t := s.table(g, &g.versions[i]); t != nil {
				return t
			}
		}
	}
	return nil
}

// singularize follows meta.DefaultRESTMapper.ResourceSingularizer, error texts
// included, for a resource that the table has; q is what it was coerced to.
func (t *Table) singularize(group, version, resource string, q schema.GroupVersionResource) (string, error) {
	if q.Resource == "" {
		return resource, missingResource(q)
	}
	singular, ok := t.singularFor(q.Resource)
	if !ok {
		all := inVersion(group, version, t.resourcesOf(q.Resource))
		return resource, fmt.Errorf("multiple possible singular resources (%v) found for %v", all, resource)
	}
	if singular == "" {
		return resource, fmt.Errorf("no singular of resource %v has been defined", resource)
	}
	return singular, nil
}

// singularFor returns the singular of the resources that have name as their plural
// or singular, unless they have different ones.
func (t *Table) singularFor(name string) (singular string, ok bool) {
	if t.unambiguous(name) { // as nearly all are
		plural, _ := t.resourceOf(name)
		singular, _ = t.singularOf(plural)
		return singular, true
	}
	for _, plural := range t.resourcesOf(name) {
		next, _ := t.singularOf(plural)
		if singular != "" && next != singular {
			return "", false
		}
		singular = next
	}
	return singular, true
}

func noKind(gk schema.GroupKind, versions []string) error {
	// A clone, so that the caller's slice of versions may stay on its stack.
	return &meta.NoKindMatchError{GroupKind: gk, SearchedVersions: slices.Clone(versions)}
}

func missingResource(q schema.GroupVersionResource) error {
	return fmt.Errorf("a resource must be present, got: %v", q)
}

// exact returns the group and version of a query that names both, if it was read.
func (s *Snapshot) exact(q schema.GroupVersionResource) (*Group, *Version) {
	if q.Group == "" || q.Version == "" {
		return nil, nil
	}
	g := s.Group(q.Group)
	if g == nil {
		return nil, nil
	}
	v := g.Version(q.Version)
	if s.table(g, v) == nil {
		return nil, nil
	}
	return g, v
}

// foremost returns the version that KindFor and ResourceFor try first: the one that the
// query names, or, if it names no group, v1 of the core group.
func (s *Snapshot) foremost(q schema.GroupVersionResource) (*Group, *Version) {
	if q.Group != "" || q.Version != "" && q.Version != "v1" || q.Resource == "" {
		return s.exact(q)
	}
	g := s.Group("")
	if g == nil {
		return nil, nil
	}
	v := g.Version("v1")
	if s.table(g, v) == nil {
		return nil, nil
	}
	return g, v
}
