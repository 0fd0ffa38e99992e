// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"
	"net/http"
	"reflect" //nolint:depguard // Only it can tell a nil pointer of a type that is not ours.
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// resettable and resettableWithContext are what meta.MaybeResetRESTMapper looks
// for. The second is not in every version of apimachinery that this compiles with.
type (
	resettable            interface{ Reset() }
	resettableWithContext interface{ ResetWithContext(context.Context) }
)

// ResetOnNoMatch resets those of the mappers that can be reset if err, however
// wrapped or joined, says that discovery is stale: if it is a NoMatch of either
// kind, or an *ErrResourceDiscoveryFailed around one, or the 404 that an API
// server gives for a resource that it does not serve (but not the 404 of an object
// that does not exist). It returns whether it has reset anything. A nil err and
// nil mappers are passed over.
//
// A mapper that cannot be reset, as that of controller-runtime v0.25 and before, is
// passed over as well.
func ResetOnNoMatch(err error, mappers ...meta.RESTMapper) bool {
	if !meta.IsNoMatchError(err) && !anyError(err, isUnservedResource) {
		return false
	}
	reset := false
	for _, mapper := range mappers {
		if isNilPointer(mapper) {
			continue
		}
		switch mapper := mapper.(type) {
		case resettableWithContext:
			mapper.ResetWithContext(context.Background())
			reset = true
		case resettable:
			mapper.Reset()
			reset = true
		}
	}
	return reset
}

// isNilPointer is true of a pointer to no mapper in an interface, which is what an
// optional field of a concrete type turns into.
func isNilPointer(mapper meta.RESTMapper) bool {
	v := reflect.ValueOf(mapper)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// anyError reports whether is holds for any error in the tree of err. errors.As
// would look at the first of a type only.
func anyError(err error, is func(error) bool) bool {
	if err == nil || is(err) {
		return err != nil
	}
	switch err := err.(type) { //nolint:errorlint // This is what walks the tree.
	case interface{ Unwrap() error }:
		return anyError(err.Unwrap(), is)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(err.Unwrap(), func(err error) bool { return anyError(err, is) })
	case interface{ Errors() []error }: // apimachinery's util/errors.Aggregate
		return slices.ContainsFunc(err.Errors(), func(err error) bool { return anyError(err, is) })
	}
	return false
}

// isUnservedResource reports whether err is the answer for a path that the server does
// not know. It names no object; or, where client-go has filled in the name of the
// request, it says that the server's answer was no metav1.Status
// (apierrors.NewGenericServerResponse).
func isUnservedResource(err error) bool {
	status, ok := err.(apierrors.APIStatus)
	if !ok || status.Status().Code != http.StatusNotFound {
		return false
	}
	details := status.Status().Details
	if details == nil || details.Name == "" {
		return true
	}
	for _, cause := range details.Causes {
		if cause.Type == metav1.CauseTypeUnexpectedServerResponse {
			return true
		}
	}
	return false
}
