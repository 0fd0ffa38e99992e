// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

const (
	mostName     = 253 // bytes of a name that the log and the debug page keep
	mostVersions = 16  // that a lookup names
)

// shortName returns name, or its beginning if it is longer than any name of an API.
func shortName(name string) string {
	if len(name) <= mostName {
		return name
	}
	return strings.ToValidUTF8(strings.Clone(name[:mostName/4]), "") + "…"
}

// boundedNames returns a query and its NoMatch for the log and the debug page, which must not keep the long names
// of a caller. No API has such a name.
func boundedNames(q snapshot.Query, err error) (snapshot.Query, error) {
	long := func(name string) bool { return len(name) > mostName }
	if !long(q.Group) && !long(q.Name) && len(q.Versions) <= mostVersions && !slices.ContainsFunc(q.Versions, long) {
		return q, err
	}
	q.Group, q.Name = shortName(q.Group), shortName(q.Name)
	var versions []string
	for _, version := range q.Versions[:min(len(q.Versions), mostVersions)] {
		versions = append(versions, shortName(version))
	}
	q.Versions = versions
	if q.ByResource {
		return q, &meta.NoResourceMatchError{PartialResource: schema.GroupVersionResource{Group: q.Group, Resource: q.Name}}
	}
	return q, &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: q.Group, Kind: q.Name}, SearchedVersions: versions}
}
