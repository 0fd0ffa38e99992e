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
	best, current := s.best(q, (*Table).kindOf)
	if best.group == nil {
		return schema.GroupVersionKind{}, false, s.noMatch(query, q)
	}
	return schema.GroupVersionKind{Group: best.group.name, Version: best.version.Name, Kind: best.name}, current, nil
}

// KindsFor answers meta.RESTMapper.KindsFor.
func (s *Snapshot) KindsFor(query schema.GroupVersionResource) ([]schema.GroupVersionKind, bool, error) {
	q := coerce(query)
	all, current := s.all(make([]match, 0, 4), q, (*Table).kindOf)
	if len(all) == 0 {
		return nil, false, s.noMatch(query, q)
	}
	kinds := make([]schema.GroupVersionKind, 0, len(all))
	for _, m := range all {
		kinds = append(kinds, schema.GroupVersionKind{Group: m.group.name, Version: m.version.Name, Kind: m.name})
	}
	return kinds, current, nil
}

// ResourceFor answers meta.RESTMapper.ResourceFor.
func (s *Snapshot) ResourceFor(query schema.GroupVersionResource) (schema.GroupVersionResource, bool, error) {
	q := coerce(query)
	best, current := s.best(q, (*Table).resourceOf)
	if best.group == nil {
		return schema.GroupVersionResource{}, false, s.noMatch(query, q)
	}
	var one [1]schema.GroupVersionResource
	resources := best.appendResources(one[:0], q)
	if len(resources) > 1 {
		all, current, _ := s.ResourcesFor(query)
		return schema.GroupVersionResource{}, current, &meta.AmbiguousResourceError{PartialResource: query, MatchingResources: all}
	}
	return resources[0], current, nil
}

// ResourcesFor answers meta.RESTMapper.ResourcesFor.
func (s *Snapshot) ResourcesFor(query schema.GroupVersionResource) ([]schema.GroupVersionResource, bool, error) {
	q := coerce(query)
	all, current := s.all(make([]match, 0, 4), q, (*Table).resourceOf)
	if len(all) == 0 {
		return nil, false, s.noMatch(query, q)
	}
	resources := make([]schema.GroupVersionResource, 0, len(all))
	for _, m := range all {
		resources = m.appendResources(resources, q)
	}
	return resources, current, nil
}

// ResourceSingularizer answers meta.RESTMapper.ResourceSingularizer. It goes through the
// versions in server order, and returns the singular in the first in which the name has
// exactly one. If there is none, it returns the answer of the last version.
func (s *Snapshot) ResourceSingularizer(resource string) (singular string, current bool, err error) {
	q := coerce(schema.GroupVersionResource{Resource: resource})
	for _, m := range s.appendMatches(make([]match, 0, 4), q, (*Table).resourceOf) {
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

func noKind(gk schema.GroupKind, versions []string) error {
	// A clone, so that the caller's slice of versions may stay on its stack.
	return &meta.NoKindMatchError{GroupKind: gk, SearchedVersions: slices.Clone(versions)}
}

func missingResource(q schema.GroupVersionResource) error {
	return fmt.Errorf("a resource must be present, got: %v", q)
}
