// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Query is what a lookup looks for.
type Query struct {
	// Group is the group that the lookup names. Lookups by resource may give the beginning
	// of its name, or "".
	Group string
	// Versions are the versions that the lookup names; none stands for all.
	Versions []string
	// All reports whether everything that matches is looked for, and not only the best.
	All bool
	// Name is the kind that is looked for, or the resource.
	Name string
	// ByResource reports whether Name is a resource. Then Group matches as in client-go:
	// without a version the beginning of a group's name suffices, and "" matches any
	// group.
	ByResource bool
	// Singular reports whether the singular name of a resource is looked for, and not its kind.
	Singular bool
	// RequireLive reports whether no document proves that the group which the lookup names has nothing: group
	// discovery and the versions are read live, too, also by the mapper's first lookup.
	RequireLive bool
}

// KindQuery is the query of a lookup by kind, in the given versions or in any.
func KindQuery(gk schema.GroupKind, versions []string) Query {
	return Query{Group: gk.Group, Name: gk.Kind, Versions: slices.Clone(specifiedVersions(versions))}
}

// ResourceQuery is the query of a lookup by resource, of the best one that matches. The
// case of its name does not matter, as in client-go.
func ResourceQuery(resource schema.GroupVersionResource) Query {
	r := coerce(resource)
	return Query{Group: r.Group, Name: r.Resource, ByResource: true, Versions: specifiedVersions([]string{r.Version})}
}

// specifiedVersions returns those of the versions to search that count. client-go ignores the others
// (k8s.io/apimachinery/pkg/api/meta, DefaultRESTMapper). It does not change its argument.
func specifiedVersions(versions []string) []string {
	if !slices.ContainsFunc(versions, isUnspecified) {
		return versions
	}
	if len(versions) == 1 {
		return nil // as nearly always, and without an allocation
	}
	return slices.DeleteFunc(slices.Clone(versions), isUnspecified)
}

// coerce returns query as client-go names it in some errors (coerceResourceForMatching in
// k8s.io/apimachinery/pkg/api/meta).
func coerce(query schema.GroupVersionResource) schema.GroupVersionResource {
	query.Resource = strings.ToLower(query.Resource)
	if isUnspecified(query.Version) {
		query.Version = ""
	}
	return query
}

// isUnspecified reports whether version does not count among the versions to search.
func isUnspecified(version string) bool {
	return version == "" || version == runtime.APIVersionInternal
}

// String returns what the lookup looks for, for an error.
func (q *Query) String() string {
	switch {
	case q.AnyGroup():
		return fmt.Sprintf("resource %q in any group", q.Name)
	case q.anyVersion():
		return fmt.Sprintf("%s %q in group %q", q.NameType(), q.Name, q.Group)
	default:
		return fmt.Sprintf("%s %q in group %q, versions %q", q.NameType(), q.Name, q.Group, q.Versions)
	}
}

// NameType returns the word for what the lookup looks for: "kind" or "resource".
func (q *Query) NameType() string {
	if q.ByResource {
		return "resource"
	}
	return "kind"
}

// AnyGroup reports whether the lookup names no group.
func (q *Query) AnyGroup() bool { return q.ByResource && q.Group == "" }

// names reports whether it names the group, and not only the beginning of its name.
func (q *Query) namesGroup(group string) bool { return group == q.Group && !q.AnyGroup() }

// anyVersion reports whether it names no version.
func (q *Query) anyVersion() bool { return len(q.Versions) == 0 }

// namesGroupAndVersions reports whether it names group and versions: their paths prove NoMatch.
func (q *Query) namesGroupAndVersions() bool { return !q.anyVersion() && !q.AnyGroup() }

// ExactGroup reports whether only the group that the lookup names may answer it: none with a
// longer name.
func (q *Query) ExactGroup() bool { return !q.ByResource || q.namesGroupAndVersions() }

// WantsVersion reports whether the query is about the version of that name.
func (q *Query) WantsVersion(version string) bool {
	return q.anyVersion() || slices.Contains(q.Versions, version)
}

// findIn returns what q finds among the resources of a version, or nil. t may be nil.
func (q *Query) findIn(t *Table) *Resource {
	if q.ByResource {
		return t.findName(q.Name)
	}
	return t.findKind(q.Name)
}

// matchesGroup reports whether a version of g serves what the lookup looks for.
func (q *Query) matchesGroup(g *Group) bool {
	return slices.ContainsFunc(g.versions, func(v Version) bool {
		return q.WantsVersion(v.Name) && q.findIn(v.Table) != nil
	})
}

// positions returns where in g.versions the versions stand that q is about, in its order: the
// caller's if it names them, else that of the server if everything is looked for, else the best one
// first. scratch is memory that the result may use. The caller must not change the result.
func (q *Query) positions(g *Group, scratch []int32) []int32 {
	if q.All {
		for i := range g.versions {
			if q.WantsVersion(g.versions[i].Name) {
				scratch = append(scratch, int32(i))
			}
		}
		return scratch
	}
	if q.anyVersion() {
		return g.ranked
	}
	for _, name := range q.Versions {
		if i := g.indexOf(name); i >= 0 {
			scratch = append(scratch, int32(i))
		}
	}
	return scratch
}

// versionsOf lists the versions of g that the lookup is about: those that it names, else those that
// may be served, the best one first.
func (q *Query) versionsOf(g *Group) (names []string) {
	if !q.anyVersion() {
		return q.Versions
	}
	for _, i := range g.ranked {
		if g.overlayReads(int(i)).mayBeServed() {
			names = append(names, g.versions[i].Name)
		}
	}
	return names
}

// CandidateGroups returns the known groups that may have an answer to q, in server order. The caller
// must not change the slice.
func (s *Snapshot) CandidateGroups(q *Query) []*Group {
	if q.ExactGroup() {
		return s.groupNamed(q.Group)
	}
	return s.groupsWithPrefix(q.Group)
}

// PathsSuffice reports whether the paths of the group that a lookup names can answer it without
// the document: R1.
func (s *Snapshot) PathsSuffice(q *Query) bool {
	return q.ExactGroup() && (q.namesGroupAndVersions() || s.Group(q.Group) != nil)
}
