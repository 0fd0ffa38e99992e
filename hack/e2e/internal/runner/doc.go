// SPDX-License-Identifier: Apache-2.0

// Package runner runs one program twice against a real API server, built once
// with stock controller-runtime and once with the fork, and writes down how
// each fared while kinds came and went.
//
// It knows nothing of any one program: Build makes the two binaries, StartServer
// a server, Server the changes to it, Start a process, and Result is what a
// replay leaves for hack/e2e/table to print.
package runner
