// SPDX-License-Identifier: Apache-2.0

// Package snapshot holds what one API server was last known to serve, and
// answers the seven lookups of meta.RESTMapper from it.
//
// Pure: no clock, no I/O, no lock, no goroutine, no logger. A Snapshot, a Group
// and a Table never change once made; With… and Without… make a new Snapshot
// that shares every group it did not touch. Any number of goroutines may read
// one, and groups may be shared by snapshots of different servers. The one thing
// added later, by lookups and atomically, is an index that changes no answer.
//
// Every answer equals the one that
// k8s.io/client-go/restmapper.NewDiscoveryRESTMapper gives over the same groups
// in the same order: value, order, error type and error text. Where that
// library's answer depends on Go's map order, ours is one of its answers, always
// the same one.
package snapshot
