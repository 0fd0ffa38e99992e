// SPDX-License-Identifier: Apache-2.0

package engine

import "slices"

// AnyError reports whether is returns true for any error in the tree of err. errors.As
// would find only the first of a type.
func AnyError(err error, is func(error) bool) bool {
	if err == nil || is(err) {
		return err != nil
	}
	switch err := err.(type) { //nolint:errorlint // This is what walks the tree.
	case interface{ Unwrap() error }:
		return AnyError(err.Unwrap(), is)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(err.Unwrap(), func(err error) bool { return AnyError(err, is) })
	case interface{ Errors() []error }: // apimachinery's util/errors.Aggregate
		return slices.ContainsFunc(err.Errors(), func(err error) bool { return AnyError(err, is) })
	}
	return false
}
