// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// match is one version of one group in which a resource query finds something.
type match struct {
	group   *Group
	version *Version
	name    string // what it finds: a kind, or a resource
}

// finder finds what a resource name stands for in a table: (*Table).kindOf or resourceOf.
type finder func(*Table, string) (string, bool)

// match returns what q finds in one version, which may be nil.
func (s *Snapshot) match(q schema.GroupVersionResource, find finder, g *Group, v *Version) (m match, ok bool) {
	if t := s.table(g, v); t != nil && q.Resource != "" {
		m = match{group: g, version: v}
		m.name, ok = find(t, q.Resource)
	}
	return m, ok
}

// foremost returns the match that client-go puts before all others: that in the version
// that q names with its group, or in v1 of the core group.
func (s *Snapshot) foremost(q schema.GroupVersionResource, find finder) (m match, ok bool) {
	version := q.Version
	if q.Group == "" && version == "" {
		version = "v1"
	}
	if q.Group == "" && version != "v1" {
		return match{}, false
	}
	g := s.Group(q.Group)
	return s.match(q, find, g, g.Version(version))
}

// best returns the match that meta.PriorityRESTMapper picks with client-go's priorities: v1
// of the core group, else the first group in server order, in it the preferred version, else
// the first in the list. current is as for the lookups.
func (s *Snapshot) best(q schema.GroupVersionResource, find finder) (best match, current bool) {
	if m, ok := s.foremost(q, find); ok {
		return m, s.current(m.group, m.version)
	}
	for _, m := range s.appendMatches(make([]match, 0, 4), q, find) {
		if best.group == nil || m.group == best.group && m.version.Name == m.group.preferred {
			best = m
		}
	}
	return best, best.group != nil && s.current(best.group, best.version) && s.complete(q, best.group)
}

// all returns every match, in room, which may be on the caller's stack. current is as for the
// lookups.
func (s *Snapshot) all(room []match, q schema.GroupVersionResource, find finder) (all []match, current bool) {
	if q.Group != "" && q.Version != "" {
		if m, ok := s.foremost(q, find); ok {
			return append(room, m), s.current(m.group, m.version)
		}
		return nil, false
	}
	all = s.appendMatches(room, q, find)
	outdated := func(m match) bool { return !s.current(m.group, m.version) }
	return all, !slices.ContainsFunc(all, outdated) && s.complete(q, nil)
}

// appendMatches appends the versions, in server order, in which a query finds something that
// does not name both group and version. The groups are those whose names begin with
// q.Group, so "storageclass.storage" finds storageclasses in storage.k8s.io, as in client-go.
func (s *Snapshot) appendMatches(found []match, q schema.GroupVersionResource, find finder) []match {
	visit := func(g *Group) {
		for i := range g.versions {
			if v := &g.versions[i]; q.Version == "" || v.Name == q.Version {
				if m, ok := s.match(q, find, g, v); ok {
					found = append(found, m)
				}
			}
		}
	}
	switch {
	case q.Group == "":
		for _, g := range s.names.among(s.groups, q.Resource) {
			visit(g)
		}
	case q.Version == "":
		s.eachBeginning(q.Group, visit)
	}
	return found
}

// complete reports whether no read could find more matches of q, or better ones than in the
// group last: the document is current, and every version of the groups up to last was
// tried. Without last, all groups count.
func (s *Snapshot) complete(q schema.GroupVersionResource, last *Group) bool {
	if s.document == 0 || s.document <= s.since(s.reset) {
		return false
	}
	if s.untried == 0 && (s.apart == 0 || s.anyReset == 0) {
		return true
	}
	complete, after := true, false
	s.eachBeginning(q.Group, func(g *Group) {
		complete = complete && (after || s.completeGroup(g))
		after = after || g == last
	})
	return complete
}

func (s *Snapshot) completeGroup(g *Group) bool {
	if !g.apart && g.tried {
		return true
	}
	return s.currentList(g) && !slices.ContainsFunc(g.versions, func(v Version) bool { return !s.tried(g, &v) })
}

// eachBeginning calls visit for the groups whose names begin with prefix, in server order.
func (s *Snapshot) eachBeginning(prefix string, visit func(*Group)) {
	if s.order != nil && prefix != "" {
		s.order.eachBeginning(prefix, func(i int) { visit(s.groups[i]) })
		return
	}
	for _, g := range s.groups {
		visit(g)
	}
}

// appendResources appends, sorted, the resources of the version that q finds. If it names
// group and version, it finds one.
func (m match) appendResources(all []schema.GroupVersionResource, q schema.GroupVersionResource) []schema.GroupVersionResource {
	found := schema.GroupVersionResource{Group: m.group.name, Version: m.version.Name, Resource: m.name}
	if m.version.Table.forms == nil || q.Group != "" && q.Version != "" {
		return append(all, found)
	}
	for _, found.Resource = range m.version.Table.forms.resources(q.Resource) {
		all = append(all, found)
	}
	return all
}

// singular follows meta.DefaultRESTMapper.ResourceSingularizer, error texts included, for a
// resource that the version has; q is what it was coerced to.
func (m match) singular(resource string, q schema.GroupVersionResource) (singular string, err error) {
	var one [1]schema.GroupVersionResource // as nearly always
	all := m.appendResources(one[:0], q)
	for _, plural := range all {
		next := m.version.Table.singularOf(plural.Resource)
		if singular != "" && next != singular {
			return resource, fmt.Errorf("multiple possible singular resources (%v) found for %v", slices.Clone(all), resource)
		}
		singular = next
	}
	if singular == "" {
		return resource, fmt.Errorf("no singular of resource %v has been defined", resource)
	}
	return singular, nil
}

// noMatch is the error of a lookup of a resource that found nothing. query is the caller's
// own, q what it was coerced to.
func (s *Snapshot) noMatch(query, q schema.GroupVersionResource) error {
	if q.Resource == "" && s.lastTable() != nil {
		return missingResource(q)
	}
	return &meta.NoResourceMatchError{PartialResource: query}
}
