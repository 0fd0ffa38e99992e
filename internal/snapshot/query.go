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
}

// KindQuery is the query of a lookup by kind, in the given versions or in any.
func KindQuery(gk schema.GroupKind, versions []string) Query {
	q := Query{Group: gk.Group, Name: gk.Kind}
	for _, v := range versions {
		if specified(v) {
			q.Versions = append(q.Versions, v)
		}
	}
	return q
}

// ResourceQuery is the query of a lookup by resource, of the best one that matches. The
// case of its name does not matter, as in client-go.
func ResourceQuery(resource schema.GroupVersionResource) Query {
	r := coerce(resource)
	q := Query{Group: r.Group, Name: r.Resource, ByResource: true}
	if r.Version != "" {
		q.Versions = []string{r.Version}
	}
	return q
}

// coerce follows coerceResourceForMatching in k8s.io/apimachinery/pkg/api/meta.
func coerce(query schema.GroupVersionResource) schema.GroupVersionResource {
	version := query.Version
	if version == runtime.APIVersionInternal {
		version = ""
	}
	return schema.GroupVersionResource{Group: query.Group, Version: version, Resource: strings.ToLower(query.Resource)}
}

// specified reports whether version counts in a list of versions to search. client-go ignores
// others (k8s.io/apimachinery/pkg/api/meta, DefaultRESTMapper).
func specified(version string) bool {
	return version != "" && version != runtime.APIVersionInternal
}

func (q Query) anyGroup() bool   { return q.ByResource && q.Group == "" }
func (q Query) anyVersion() bool { return len(q.Versions) == 0 }

// Live reports whether live reads of the named versions suffice to prove NoMatch.
func (q Query) Live() bool { return !q.anyVersion() && !q.anyGroup() }

// InOneGroup reports whether only the group that the lookup names may answer it: none with a
// longer name.
func (q Query) InOneGroup() bool { return !q.ByResource || q.Live() }

// Wants reports whether the query is about the version of that name.
func (q Query) Wants(version string) bool {
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

// GroupsOf returns the known groups that may have an answer to q, in server order. The caller
// must not change the slice.
func (s *Snapshot) GroupsOf(q Query) []*Group { return s.groupsNamed(q.Group, q.InOneGroup()) }
