// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"fmt"
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

// Error returns the group-versions with their errors, sorted.
func (e *ErrResourceDiscoveryFailed) Error() string {
	failures := make([]string, 0, len(*e))
	for gv, err := range *e {
		failures = append(failures, fmt.Sprintf("%s: %v", gv, err))
	}
	slices.Sort(failures)
	return "unable to retrieve the complete list of server APIs: " + strings.Join(failures, ", ")
}

// Unwrap returns the errors, for errors.Is and errors.As.
func (e *ErrResourceDiscoveryFailed) Unwrap() []error {
	errs := make([]error, 0, len(*e))
	for gv, err := range *e {
		if apierrors.IsNotFound(err) {
			err = &meta.NoResourceMatchError{PartialResource: gv.WithResource("")}
		}
		errs = append(errs, err)
	}
	return errs
}
