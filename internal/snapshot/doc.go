// SPDX-License-Identifier: Apache-2.0

// Package snapshot holds what one API server was last known to serve, and
// answers the seven lookups of meta.RESTMapper from it.
//
// The package is pure: it has no clock, I/O, lock, goroutine or logger. A Snapshot, a
// Group and a Table never change once made; With… and Reset… make a new Snapshot that
// shares every group that they did not touch. Any number of goroutines may read a
// Snapshot, and snapshots of different servers may share groups. One thing is added
// later, by lookups and atomically: an index that changes no answer.
//
// Every answer equals the one that k8s.io/client-go/restmapper.NewDiscoveryRESTMapper
// gives over the same groups in the same order: value, order, error type and error text.
// If that library's answer depends on Go's map order, we always return the same one of
// its answers.
package snapshot
