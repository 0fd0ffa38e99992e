// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The lookups return the answer from what is known, and whether it is current: whether
// everything that it rests on was tried since the last reset. You may use an answer that is
// not current only after an attempt to read. NoMatch is never current: only a new read can
// prove that something is absent.

// Answers reports whether the lookup that a query describes has an answer other than NoMatch, and whether that is
// current.
func (s *Snapshot) Answers(q *Query) (found, current bool) {
	kind := schema.GroupKind{Group: q.Group, Kind: q.Name}
	resource := schema.GroupVersionResource{Group: q.Group, Resource: q.Name}
	if len(q.Versions) > 0 {
		resource.Version = q.Versions[0] // a lookup by resource names one at most
	}
	var err error
	switch {
	case q.Singular:
		_, current, err = s.ResourceSingularizer(q.Name)
	case q.ByResource && q.All:
		_, current, err = s.KindsFor(resource)
	case q.ByResource:
		_, current, err = s.KindFor(resource)
	case q.All:
		_, current, err = s.RESTMappings(kind, q.Versions)
	default:
		_, current, err = s.RESTMapping(kind, q.Versions)
	}
	return !meta.IsNoMatchError(err), current
}

// RESTMapping answers meta.RESTMapper.RESTMapping: in the first of the versions that serves
// the kind, or in the best one if none is specified.
func (s *Snapshot) RESTMapping(gk schema.GroupKind, versions []string) (m *meta.RESTMapping, current bool, err error) {
	q := &Query{Group: gk.Group, Name: gk.Kind, Versions: specifiedVersions(versions)}
	best, current := s.best(q)
	if best.row == nil {
		return nil, false, noKind(gk, versions)
	}
	m = new(meta.RESTMapping)
	best.fillMapping(m, gk.Kind)
	return m, current, nil
}

// RESTMappings answers meta.RESTMapper.RESTMappings: in server order, in all versions if none
// is specified.
func (s *Snapshot) RESTMappings(
	gk schema.GroupKind,
	versions []string,
) (all []*meta.RESTMapping, current bool, err error) {
	q := &Query{Group: gk.Group, Name: gk.Kind, Versions: specifiedVersions(versions), All: true}
	var missing missingReads
	found := s.find(make([]match, 0, 4), q, &missing)
	if len(found) == 0 {
		return nil, false, noKind(gk, versions)
	}
	n := len(found)
	var mappings []meta.RESTMapping // what all points to
	if n <= 2 {
		// Most kinds have one or two versions. Their mappings share one allocation with the
		// pointers, because allocations are most of the cost of the lookup.
		two := new(struct {
			mappings [2]meta.RESTMapping
			pointers [2]*meta.RESTMapping
		})
		mappings, all = two.mappings[:n], two.pointers[:n]
	} else {
		mappings, all = make([]meta.RESTMapping, n), make([]*meta.RESTMapping, n)
	}
	for i, m := range found {
		m.fillMapping(&mappings[i], gk.Kind)
		all[i] = &mappings[i]
	}
	return all, !missing.any, nil
}

func noKind(gk schema.GroupKind, versions []string) error {
	// A clone, so that the caller's slice of versions may stay on its stack.
	return &meta.NoKindMatchError{GroupKind: gk, SearchedVersions: slices.Clone(versions)}
}

// KindFor answers meta.RESTMapper.KindFor.
func (s *Snapshot) KindFor(query schema.GroupVersionResource) (kind schema.GroupVersionKind, current bool, err error) {
	version := [1]string{query.Version} // on the stack, as long as the query is
	q := &Query{
		Group: query.Group, Name: strings.ToLower(query.Resource), ByResource: true,
		Versions: specifiedVersions(version[:]),
	}
	best, current := s.best(q)
	if best.row == nil {
		return kind, false, s.noMatch(query)
	}
	kind.Group, kind.Version, kind.Kind = best.group.name, best.version().Name, best.row.Kind
	return kind, current, nil
}

// ResourceFor answers meta.RESTMapper.ResourceFor.
func (s *Snapshot) ResourceFor(
	query schema.GroupVersionResource,
) (resource schema.GroupVersionResource, current bool, err error) {
	version := [1]string{query.Version} // on the stack, as long as the query is
	q := &Query{
		Group: query.Group, Name: strings.ToLower(query.Resource), ByResource: true,
		Versions: specifiedVersions(version[:]),
	}
	best, current := s.best(q)
	if best.row == nil {
		return resource, false, s.noMatch(query)
	}
	resource.Group, resource.Version, resource.Resource = best.group.name, best.version().Name, best.row.Name
	return resource, current, nil
}

// KindsFor answers meta.RESTMapper.KindsFor.
func (s *Snapshot) KindsFor(
	query schema.GroupVersionResource,
) (kinds []schema.GroupVersionKind, current bool, err error) {
	return allOf(s, query, match.gvk)
}

// ResourcesFor answers meta.RESTMapper.ResourcesFor.
func (s *Snapshot) ResourcesFor(
	query schema.GroupVersionResource,
) (resources []schema.GroupVersionResource, current bool, err error) {
	return allOf(s, query, match.gvr)
}

// allOf answers a lookup by resource with everything that matches.
func allOf[T any](
	s *Snapshot, query schema.GroupVersionResource, convert func(match) T,
) (all []T, current bool, err error) {
	version := [1]string{query.Version} // on the stack, as long as the query is
	q := &Query{
		Group: query.Group, Name: strings.ToLower(query.Resource), ByResource: true,
		Versions: specifiedVersions(version[:]), All: true,
	}
	var missing missingReads
	found := s.find(make([]match, 0, 4), q, &missing)
	if len(found) == 0 {
		return nil, false, s.noMatch(query)
	}
	all = make([]T, len(found))
	for i, m := range found {
		all[i] = convert(m)
	}
	return all, !missing.any, nil
}

// noMatch is the error of a lookup by resource that found nothing. query is as the caller has given it.
func (s *Snapshot) noMatch(query schema.GroupVersionResource) error {
	if query.Resource == "" && s.lastTable() != nil {
		return missingResource(coerce(query))
	}
	return &meta.NoResourceMatchError{PartialResource: query}
}

// ResourceSingularizer answers meta.RESTMapper.ResourceSingularizer. It goes through the
// versions in server order, and returns the singular in the first in which the name has
// one. If there is none, it returns the answer of the last version.
func (s *Snapshot) ResourceSingularizer(resource string) (singular string, current bool, err error) {
	name := schema.GroupVersionResource{Resource: resource}
	q := &Query{Name: strings.ToLower(resource), ByResource: true, All: true}
	found := s.matches(make([]match, 0, 4), q)
	for _, m := range found {
		if m.row.Singular != "" {
			// Only the groups before the first match count.
			q.All = false
			var missing missingReads
			s.addMissing(q, found, &missing)
			return m.row.Singular, !missing.any, nil
		}
		err = fmt.Errorf("no singular of resource %v has been defined", resource)
	}
	last := s.lastTable()
	switch {
	case last == nil:
		return resource, false, &meta.NoResourceMatchError{PartialResource: coerce(name)}
	case q.Name == "":
		err = missingResource(coerce(name))
	case last.findName(q.Name) == nil:
		return resource, false, &meta.NoResourceMatchError{PartialResource: coerce(name)}
	}
	return resource, s.docSeq > s.resetSeq, err
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
