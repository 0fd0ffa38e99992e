// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

const (
	maxName     = 253 // bytes of a name that the log and the debug page keep: no API has a longer one
	maxVersions = 16  // that are kept of those that a lookup names
)

// shortName returns name, or its beginning if it is longer than any name of an API.
func shortName(name string) string {
	if !tooLong(name) {
		return name
	}
	return strings.ToValidUTF8(strings.Clone(name[:maxName/4]), "") + "…"
}

func tooLong(name string) bool { return len(name) > maxName }

// boundedNames returns a query and its NoMatch for the log and the debug page, which must not keep the long names of a
// caller.
func boundedNames(q snapshot.Query, err error) (snapshot.Query, error) {
	bounded := len(q.Versions) <= maxVersions
	for _, name := range append([]string{q.Group, q.Name}, q.Versions...) {
		bounded = bounded && !tooLong(name)
	}
	if bounded {
		return q, err
	}

	q.Group = shortName(q.Group)
	q.Name = shortName(q.Name)
	var versions []string
	for _, version := range q.Versions[:min(len(q.Versions), maxVersions)] {
		versions = append(versions, shortName(version))
	}
	q.Versions = versions
	if q.ByResource {
		resource := schema.GroupVersionResource{Group: q.Group, Resource: q.Name}
		return q, &meta.NoResourceMatchError{PartialResource: resource}
	}
	kind := schema.GroupKind{Group: q.Group, Kind: q.Name}
	return q, &meta.NoKindMatchError{GroupKind: kind, SearchedVersions: versions}
}
