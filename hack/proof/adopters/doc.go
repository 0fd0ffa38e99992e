// SPDX-License-Identifier: Apache-2.0

// Package adopters forks other people's operators, unmodified and from the Go
// module proxy, and compares fork and stock. TestOwnTests compares the results of
// the operators' own tests, by name. TestLive compares two operators at work on a
// real API server, while CRDs come late and change. operators.yaml lists the
// operators. In hack/proof:
//
//	go test ./adopters -v -timeout 0 -run TestOwnTests/JobSet -args -o results [-packages 12] [-servers]
//	go test ./adopters -v -timeout 0 -run TestLive/kro -args -o results
//
// The results are kept in adopters.json in the folder -o, with an entry for each
// operator, and docs/adopters.md is written from all entries. So a run of a few
// operators leaves the others as they are.
package adopters
