// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
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
	// Versions are the versions that the lookup names, each once; none stands for all.
	Versions []string
	// All reports whether everything that matches is looked for, and not only the best.
	All bool
	// Name is the kind that is looked for, or the resource.
	Name string
	// ByResource reports whether Name is a resource. Then Group matches as in client-go:
	// without a version the beginning of a group's name suffices, and "" matches any
	// group.
	ByResource bool
}

// KindQuery is the query of a lookup by kind, in the given versions or in any.
func KindQuery(gk schema.GroupKind, versions []string) Query {
	return Query{Group: gk.Group, Versions: distinct(specified(versions)), Name: gk.Kind}
}

// ResourceQuery is the query of a lookup by resource, of the best one that matches. The
// case of its name does not matter, as in client-go.
func ResourceQuery(resource schema.GroupVersionResource) Query {
	q := coerce(resource)
	return Query{Group: q.Group, Versions: specified([]string{q.Version}), Name: q.Resource, ByResource: true}
}

// coerce follows coerceResourceForMatching in k8s.io/apimachinery/pkg/api/meta.
func coerce(query schema.GroupVersionResource) schema.GroupVersionResource {
	query.Resource = strings.ToLower(query.Resource)
	if query.Version == runtime.APIVersionInternal {
		query.Version = ""
	}
	return query
}

// distinct returns each version once.
func distinct(versions []string) []string {
	var result []string
	for _, v := range versions {
		if !slices.Contains(result, v) {
			result = append(result, v)
		}
	}
	return result
}

// specified returns the versions to search, without those that client-go ignores
// (k8s.io/apimachinery/pkg/api/meta, DefaultRESTMapper).
func specified(versions []string) []string {
	if !slices.ContainsFunc(versions, unspecified) {
		return versions
	}
	return slices.DeleteFunc(slices.Clone(versions), unspecified)
}

// unspecified reports whether client-go ignores version in a list of versions to search.
func unspecified(version string) bool {
	return version == "" || version == runtime.APIVersionInternal
}

func (q Query) anyGroup() bool   { return q.ByResource && q.Group == "" }
func (q Query) anyVersion() bool { return len(q.Versions) == 0 }

// Live reports whether live reads of the named versions suffice to prove NoMatch.
func (q Query) Live() bool { return !q.anyVersion() && !q.anyGroup() }

// byPrefix reports whether groups with a longer name may answer as well.
func (q Query) byPrefix() bool { return q.ByResource && q.anyVersion() }

// InOneGroup reports whether only the group that the lookup names may answer it.
func (q Query) InOneGroup() bool { return !q.byPrefix() && !q.anyGroup() }

// wants reports whether the query is about the version of that name.
func (q Query) wants(version string) bool {
	return q.anyVersion() || slices.Contains(q.Versions, version)
}

// restsOn reports whether a lookup may be answered from v.
func (q Query) restsOn(v *Version) bool {
	if v.Table == nil {
		return false
	}
	if q.ByResource {
		return v.Table.has(q.Name)
	}
	_, ok := v.Table.target(q.Name)
	return ok
}

// GroupsOf lists the known groups that may have an answer to q, in server order.
func (s *Snapshot) GroupsOf(q Query) []*Group {
	if q.InOneGroup() {
		if g := s.Group(q.Group); g != nil {
			return []*Group{g}
		}
		return nil
	}
	return slices.DeleteFunc(slices.Clone(s.groups), func(g *Group) bool { return !strings.HasPrefix(g.name, q.Group) })
}
