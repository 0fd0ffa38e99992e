// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Hint returns where the kind, or the resource, of a NoMatch is served instead, as far as a snapshot
// knows: "Widget: example.com/v2, example.org/v1". It returns "" if err has no NoMatch, or if nothing
// of that name is known to be served.
func Hint(s *snapshot.Snapshot, err error) string {
	var noKind *meta.NoKindMatchError
	var noResource *meta.NoResourceMatchError
	wanted := func(r *snapshot.Resource) bool { return strings.EqualFold(r.Kind, noKind.GroupKind.Kind) }
	if !errors.As(err, &noKind) {
		if !errors.As(err, &noResource) {
			return ""
		}
		name := noResource.PartialResource.Resource
		wanted = func(r *snapshot.Resource) bool {
			return strings.EqualFold(r.Name, name) || strings.EqualFold(r.Singular, name)
		}
	}
	var places []string
	lastKind := ""
	for _, k := range s.KindsWhere(wanted) {
		gvk := k.Mapping.GroupVersionKind
		place := gvk.GroupVersion().String()
		if gvk.Kind != lastKind { // the spelling may differ, or, of a resource, the whole kind
			place = gvk.Kind + ": " + place
		}
		lastKind = gvk.Kind
		places = append(places, place)
	}
	return strings.Join(shortened(places), ", ")
}

// mostNamed is how many names a line of the log has, or a hint.
const mostNamed = 20

func shortened(names []string) []string {
	if len(names) > mostNamed {
		return append(names[:mostNamed], "and more")
	}
	return names
}
