// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Hint returns where the kind, or the resource, of a NoMatch is served instead, as far as a snapshot knows:
// "Widget: example.com/v2, example.org/v1". It returns "" if err has no NoMatch, or if nothing of that name is known to
// be served.
func Hint(s *snapshot.Snapshot, err error) string {
	isWanted := wantedBy(err)
	if isWanted == nil {
		return ""
	}
	var places []string
	lastKind := ""
	for _, k := range s.KindsWhere(isWanted) {
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

// wantedBy returns a function that reports whether the lookup that ended with err was about a resource. It returns nil
// if err has no NoMatch.
func wantedBy(err error) func(*snapshot.Resource) bool {
	var noKind *meta.NoKindMatchError
	if errors.As(err, &noKind) {
		return func(r *snapshot.Resource) bool { return strings.EqualFold(r.Kind, noKind.GroupKind.Kind) }
	}
	var noResource *meta.NoResourceMatchError
	if errors.As(err, &noResource) {
		name := noResource.PartialResource.Resource
		return func(r *snapshot.Resource) bool {
			return strings.EqualFold(r.Name, name) || strings.EqualFold(r.Singular, name)
		}
	}
	return nil
}

// maxNamed is how many names a line of the log has, or a hint.
const maxNamed = 20

// shortened returns names, or the first of them and a note that there are more.
func shortened(names []string) []string {
	if len(names) > maxNamed {
		return append(names[:maxNamed], "and more")
	}
	return names
}
