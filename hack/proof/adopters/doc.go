// SPDX-License-Identifier: Apache-2.0

// Package adopters has tests that fork other people's operators, unmodified and from the
// Go module proxy, and compare them with themselves on stock: TestOwnTests their own tests,
// by name, and TestLive two of them at work on a real API server while CRDs come late and
// change. operators.yaml lists the operators. In hack/proof:
//
//	go test ./adopters -v -timeout 0 -run TestOwnTests/JobSet -args -o results [-packages 12] [-servers]
//	go test ./adopters -v -timeout 0 -run TestLive/kro -args -o results
//
// What was found is kept in adopters.json in the folder -o, an entry for each operator, and
// docs/adopters.md is written from all of it: a run of a few leaves the others alone.
package adopters
