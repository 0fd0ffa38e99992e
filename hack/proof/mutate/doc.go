// SPDX-License-Identifier: Apache-2.0

// Package mutate has a test that changes the engine in many places, one at a time, and shows
// how many of the changes the engine's own tests catch. In hack/proof:
//
//	go test ./mutate -v -timeout 0 -args -n 200 [-seed 1] [-only REGEXP] [-o results]
//
// All changes are built into one copy of the code (go test -overlay; the files stay as
// they are), each behind a condition that the environment variable MUTANT makes true.
// So a change costs no compiler, and the tests are the same with and without it.
//
// What no test can catch is listed in equivalent.json, with the reason.
package mutate
