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
	group     *Group
	version   *Version
	kind      string
	resources []Resource // several in a partial query, if they share a name
}

func (m *match) gvk() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: m.group.name, Version: m.version.Name, Kind: m.kind}
}

func (m *match) gvr(i int) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: m.group.name, Version: m.version.Name, Resource: m.resources[i].Name}
}

func (m *match) appendResources(all []schema.GroupVersionResource) []schema.GroupVersionResource {
	for i := range m.resources {
		all = append(all, m.gvr(i))
	}
	return all
}

// singular follows meta.DefaultRESTMapper.ResourceSingularizer, error texts included.
func (m *match) singular(resource string) (singular string, err error) {
	for _, r := range m.resources {
		if singular != "" && r.Singular != singular {
			return resource, fmt.Errorf("multiple possible singular resources (%v) found for %v", m.appendResources(nil), resource)
		}
		singular = r.Singular
	}
	if singular == "" {
		return resource, fmt.Errorf("no singular of resource %v has been defined", resource)
	}
	return singular, nil
}

// wanted is what a query looks for: all matches or the best one, of resources or of kinds. A
// name may stand for a kind and yet for no resource.
type wanted struct{ all, resources bool }

// match returns what q finds in one version, which may be nil.
func (s *Snapshot) match(q schema.GroupVersionResource, want wanted, g *Group, v *Version) (m match, ok bool) {
	t := s.table(g, v)
	if t == nil || q.Resource == "" {
		return match{}, false
	}
	m = match{group: g, version: v}
	m.kind, m.resources, ok = t.find(q.Resource)
	if namesOne(q) && len(m.resources) > 1 {
		// client-go takes the first in a map. We take the one with exactly that name.
		exact := slices.IndexFunc(m.resources, func(r Resource) bool { return r.Name == q.Resource })
		m.resources = m.resources[max(exact, 0):][:1]
	}
	return m, ok && (!want.resources || len(m.resources) > 0)
}

// namesOne reports whether q names the group and the version.
func namesOne(q schema.GroupVersionResource) bool { return q.Group != "" && q.Version != "" }

// find lists what matches query, in room, which may be on the caller's stack: everything, in
// server order, or the match that meta.PriorityRESTMapper picks with client-go's priorities:
// v1 of the core group, else the first group in server order, in it the preferred version,
// else the first in the list. current and err are as for the lookups.
func (s *Snapshot) find(room []match, query schema.GroupVersionResource, want wanted) (found []match, current bool, err error) {
	q := coerce(query)
	if !want.all && q.Group == "" && (q.Version == "" || q.Version == "v1") {
		core := s.Group("")
		if m, ok := s.match(q, want, core, core.Version("v1")); ok {
			return append(room, m), s.current(m.group, m.version), nil
		}
	}
	switch found = s.appendMatches(room, q, want); {
	case len(found) == 0 && q.Resource == "" && s.lastTable() != nil:
		return nil, false, missingResource(q)
	case len(found) == 0:
		return nil, false, &meta.NoResourceMatchError{PartialResource: query}
	case want.all:
		outdated := func(m match) bool { return !s.current(m.group, m.version) }
		return found, !slices.ContainsFunc(found, outdated) && s.complete(q, nil), nil
	}
	g, best := found[0].group, 0
	for i, m := range found {
		if m.group == g && m.version.Name == g.preferred {
			best = i
		}
	}
	return found[best:][:1], s.current(g, found[best].version) && s.complete(q, g), nil
}

// appendMatches appends the versions, in server order, in which q finds something.
func (s *Snapshot) appendMatches(found []match, q schema.GroupVersionResource, want wanted) []match {
	for _, g := range s.candidates(q) {
		for i := range g.versions {
			if v := &g.versions[i]; q.Version == "" || v.Name == q.Version {
				if m, ok := s.match(q, want, g, v); ok {
					found = append(found, m)
				}
			}
		}
	}
	return found
}

// candidates returns the groups in which q may find something. Without a version they are
// those whose names begin with q.Group, so "storageclass.storage" finds storageclasses in
// storage.k8s.io, as in client-go.
func (s *Snapshot) candidates(q schema.GroupVersionResource) []*Group {
	if q.Group == "" {
		return s.names.among(s.groups, q.Resource)
	}
	return s.groupsNamed(q.Group, q.Version != "")
}

// complete reports whether no read could find more matches of q, or better ones than in the
// group last: the document is current, and every version of the groups up to last was
// tried. Without last, all groups count.
func (s *Snapshot) complete(q schema.GroupVersionResource, last *Group) bool {
	switch {
	case namesOne(q):
		return true
	case s.document == 0 || s.document <= s.since(s.reset):
		return false
	case s.untried == 0 && (s.apart == 0 || s.anyReset == 0):
		return true
	}
	for _, g := range s.groupsNamed(q.Group, false) {
		if !s.currentList(g) {
			return false
		}
		for i := range g.versions {
			if !s.tried(g, &g.versions[i]) {
				return false
			}
		}
		if g == last {
			break
		}
	}
	return true
}
