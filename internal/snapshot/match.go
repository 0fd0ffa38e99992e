// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// match is one version of one group in which a resource query finds something.
type match struct {
	group   *Group
	version *Version
}

// matches answers a query that does not name both group and version from the groups that
// it selects. query is the caller's own, for the error.
func (s *Snapshot) matches(query, q schema.GroupVersionResource) ([]match, error) {
	return s.matching(query, q, func(t *Table) bool {
		_, ok := t.kindOf(q.Resource)
		return ok
	})
}

// resourceMatches is matches for the lookups that return resources. It differs only for
// singular names that a later resource claims as well.
func (s *Snapshot) resourceMatches(query, q schema.GroupVersionResource) ([]match, error) {
	return s.matching(query, q, func(t *Table) bool {
		return t.has(q.Resource)
	})
}

func (s *Snapshot) matching(query, q schema.GroupVersionResource, has func(*Table) bool) ([]match, error) {
	if q.Resource == "" && s.lastTable() != nil {
		return nil, missingResource(q)
	}
	if q.Group != "" && q.Version != "" {
		return nil, &meta.NoResourceMatchError{PartialResource: query}
	}
	found := make([]match, 0, 4) // one for each version of a group, most often
	if q.Group == "" {
		for _, g := range s.names.among(s.groups, q.Resource) {
			found = s.appendMatches(found, g, q.Version, has)
		}
	} else {
		s.each(selectionOf(q), func(g *Group) { found = s.appendMatches(found, g, q.Version, has) })
	}
	if len(found) == 0 {
		return nil, &meta.NoResourceMatchError{PartialResource: query}
	}
	return found, nil
}

// appendMatches appends the group's versions, in server order, for whose table has
// returns true.
func (s *Snapshot) appendMatches(found []match, g *Group, version string, has func(*Table) bool) []match {
	for i := range g.versions {
		v := &g.versions[i]
		if version != "" && v.Name != version {
			continue
		}
		if t := s.table(g, v); t != nil && has(t) {
			found = append(found, match{group: g, version: v})
		}
	}
	return found
}

// bestOf picks the match that meta.PriorityRESTMapper picks with client-go's
// priorities: v1 of the core group, else the first group in server order, in it
// the preferred version, else the first in the list. matches is not empty.
func bestOf(matches []match) match {
	for _, m := range matches {
		if m.group.name == "" && m.version.Name == "v1" {
			return m
		}
	}
	best := matches[0]
	for _, m := range matches {
		if m.group == best.group && m.version.Name == m.group.preferred {
			return m
		}
	}
	return best
}

func (m match) kindIn(name string) schema.GroupVersionKind {
	kind, _ := m.version.Table.kindOf(name)
	return schema.GroupVersionKind{Group: m.group.name, Version: m.version.Name, Kind: kind}
}

func (m match) resourcesIn(name string) []schema.GroupVersionResource {
	return m.appendResources(nil, name)
}

// appendResources appends, sorted, the resources of the version that name stands for.
func (m match) appendResources(all []schema.GroupVersionResource, name string) []schema.GroupVersionResource {
	gv := schema.GroupVersion{Group: m.group.name, Version: m.version.Name}
	t := m.version.Table
	if t.unambiguous(name) { // as nearly all are
		if resource, ok := t.resourceOf(name); ok {
			all = append(all, gv.WithResource(resource))
		}
		return all
	}
	for _, plural := range t.resourcesOf(name) {
		all = append(all, gv.WithResource(plural))
	}
	return all
}

func inVersion(group, version string, plurals []string) []schema.GroupVersionResource {
	resources := make([]schema.GroupVersionResource, 0, len(plurals))
	for _, plural := range plurals {
		resources = append(resources, schema.GroupVersionResource{Group: group, Version: version, Resource: plural})
	}
	return resources
}

func allResources(matches []match, name string) []schema.GroupVersionResource {
	all := make([]schema.GroupVersionResource, 0, len(matches))
	for _, m := range matches {
		all = m.appendResources(all, name)
	}
	return all
}
