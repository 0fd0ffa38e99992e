// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ErrResourceDiscoveryFailed is the error of a lookup whose answer may be in
// group-versions that could not be read. It holds them, with the reasons. Lookups return
// a pointer to it, wrapped: find it with errors.As.
//
// It unwraps to the errors it holds, except that a NotFound API error becomes a
// *meta.NoResourceMatchError for that group-version, so that meta.IsNoMatchError finds
// it. The mapper itself never adds a NotFound: if the server answers that it does not
// serve an API, that is NoMatch and not a failure.
type ErrResourceDiscoveryFailed map[schema.GroupVersion]error

// namedInError is how many group-versions the text of an error names. A server may let
// thousands fail at once.
const namedInError = 10

// Error returns the group-versions with their errors, sorted: ten of them, and how many
// there are besides.
func (e *ErrResourceDiscoveryFailed) Error() string {
	failed := e.sorted()
	failures := make([]string, 0, namedInError)
	for _, gv := range failed[:min(len(failed), namedInError)] {
		failures = append(failures, fmt.Sprintf("%s: %v", gv, (*e)[gv]))
	}
	text := "unable to retrieve the complete list of server APIs: " + strings.Join(failures, ", ")
	if more := len(failed) - namedInError; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Unwrap returns the errors, for errors.Is and errors.As, in the order of Error.
func (e *ErrResourceDiscoveryFailed) Unwrap() []error {
	var causes []error
	for _, gv := range e.sorted() {
		causes = append(causes, causeOf(gv, (*e)[gv]))
	}
	return causes
}

// causeOf is what a failure means to the caller of a lookup: a group-version that does not exist has no matches.
func causeOf(gv schema.GroupVersion, failure error) error {
	if !apierrors.IsNotFound(failure) {
		return failure
	}
	return &meta.NoResourceMatchError{PartialResource: gv.WithResource("")}
}

// sorted are the group-versions, in a fixed order.
func (e *ErrResourceDiscoveryFailed) sorted() []schema.GroupVersion {
	return slices.SortedFunc(maps.Keys(*e), func(a, b schema.GroupVersion) int {
		return cmp.Compare(a.String()+":", b.String()+":")
	})
}
