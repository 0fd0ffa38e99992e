// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// match is one version of one group in which a resource query finds something.
type match struct {
	group   *Group
	version *Version
	row     *Resource // the first
}

func (m match) gvk() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: m.group.name, Version: m.version.Name, Kind: m.row.Kind}
}

func (m match) gvr(r *Resource) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: m.group.name, Version: m.version.Name, Resource: r.Name}
}

// several returns all resources that q finds, sorted, or nil if it finds one.
func (m match) several(q schema.GroupVersionResource) []Resource {
	if t := m.version.Table; t.names == nil && !namesOne(q) {
		if all := t.forms.find(q.Resource); len(all) > 1 {
			return all
		}
	}
	return nil
}

func (m match) appendResources(found []schema.GroupVersionResource, q schema.GroupVersionResource) []schema.GroupVersionResource {
	all := m.several(q)
	if all == nil {
		return append(found, m.gvr(m.row))
	}
	for i := range all {
		found = append(found, m.gvr(&all[i]))
	}
	return found
}

// singular follows meta.DefaultRESTMapper.ResourceSingularizer, error texts included. q is
// what resource was coerced to.
func (m match) singular(resource string, q schema.GroupVersionResource) (string, error) {
	all := m.several(q)
	if all == nil {
		all = []Resource{*m.row}
	}
	singular := ""
	for _, r := range all {
		if singular != "" && r.Singular != singular {
			return resource, fmt.Errorf("multiple possible singular resources (%v) found for %v", m.appendResources(nil, q), resource)
		}
		singular = r.Singular
	}
	if singular == "" {
		return resource, fmt.Errorf("no singular of resource %v has been defined", resource)
	}
	return singular, nil
}

// wanted is what a query looks for. A name may stand for a kind and yet for no resource.
type wanted int

const (
	kinds wanted = iota
	resources
)

// find returns what q finds in one version, which may be nil.
func find(q schema.GroupVersionResource, want wanted, g *Group, v *Version) (m match, ok bool) {
	if v == nil || v.Table == nil || q.Resource == "" {
		return match{}, false
	}
	r := v.Table.find(q.Resource)
	if r == nil || want == resources && !r.named() {
		return match{}, false
	}
	return match{group: g, version: v, row: r}, true
}

// namesOne reports whether q names the group and the version.
func namesOne(q schema.GroupVersionResource) bool { return q.Group != "" && q.Version != "" }

// foremost returns the match that client-go puts before all others: that in the version
// that q names with its group, or in v1 of the core group.
func (s *Snapshot) foremost(q schema.GroupVersionResource, want wanted) (match, bool) {
	if q.Group == "" && q.Version == "" {
		q.Version = "v1"
	}
	if !namesOne(q) && (q.Group != "" || q.Version != "v1") {
		return match{}, false
	}
	g := s.Group(q.Group)
	return find(q, want, g, g.Version(q.Version))
}

// best returns the match that meta.PriorityRESTMapper picks with client-go's priorities: v1
// of the core group, else the first group in server order, in it the preferred version, else
// the first in the list. current is as for the lookups.
func (s *Snapshot) best(q schema.GroupVersionResource, want wanted) (best match, current bool) {
	best, complete := s.foremost(q, want)
	if !complete {
		for _, m := range s.appendMatches(make([]match, 0, 4), q, want) {
			if best.group == nil || m.group == best.group && m.version.Name == m.group.preferred {
				best = m
			}
		}
	}
	if best.group == nil || s.lost(best.group, best.version) {
		return match{}, false
	}
	return best, s.current(best.group, best.version) && (complete || s.complete(q, best.group))
}

// all returns every match, in server order, in room, which may be on the caller's stack.
// current is as for the lookups.
func (s *Snapshot) all(room []match, q schema.GroupVersionResource, want wanted) (all []match, current bool) {
	all = s.appendMatches(room, q, want)
	if slices.ContainsFunc(all, func(m match) bool { return s.lost(m.group, m.version) }) {
		return nil, false
	}
	outdated := func(m match) bool { return !s.current(m.group, m.version) }
	return all, !slices.ContainsFunc(all, outdated) && (namesOne(q) || s.complete(q, nil))
}

// appendMatches appends the versions, in server order, in which q finds something.
func (s *Snapshot) appendMatches(found []match, q schema.GroupVersionResource, want wanted) []match {
	for _, g := range s.candidates(q) {
		for i := range g.versions {
			if v := &g.versions[i]; q.Version == "" || v.Name == q.Version {
				if m, ok := find(q, want, g, v); ok {
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
	case s.document <= s.reset: // or never read
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
