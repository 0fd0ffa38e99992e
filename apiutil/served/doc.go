// SPDX-License-Identifier: Apache-2.0

// Package served answers whether an API server serves a kind, now or as soon as it does.
//
//   - To decide once, when the program starts, which controllers it has: Is.
//   - To see everything that is served, or to find a kind of which only the name is known: List.
//   - To wait until a CustomResourceDefinition is installed: Wait.
//   - To run something only while its kinds are served: RunWhile.
//   - To tell a person where the kind of a "no match" error is served instead: Hint.
//
// All of them ask through an *apiutil.DynamicRESTMapper, and share what they read with its lookups and with each other.
// A kind that is not served is an answer, never an error. If the server cannot be read, that is an error, and
// never the answer that a kind is not served.
//
// A manager or a cluster that was made by package fresh, or with the patched controller-runtime, returns its mapper
// from GetRESTMapper:
//
//	mapper := mgr.GetRESTMapper().(*apiutil.DynamicRESTMapper)
package served
