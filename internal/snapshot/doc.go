// SPDX-License-Identifier: Apache-2.0

// Package snapshot holds what one API server was last known to serve, and
// answers the seven lookups of meta.RESTMapper from it.
//
// The package is pure: it has no clock, I/O, lock, goroutine or logger. A Snapshot, a
// Group and a Table never change once made; With… and Reset… make a new Snapshot that
// shares every group that they did not touch. Any number of goroutines may read a
// Snapshot, and snapshots of different servers may share groups. One thing is added
// later, by lookups and atomically: an index that changes no answer, and that a group is in use.
//
// Every answer equals the one that k8s.io/client-go/restmapper.NewDiscoveryRESTMapper
// gives over the same groups in the same order: value, order, error type and error text.
// If that library's answer depends on Go's map order, we always return the same one of
// its answers.
//
// The files, in layers. Data flows up: each file uses only what stands below it:
//
//	lookup.go     the seven lookups
//	miss.go       the reads that a lookup still needs (R3)
//	diff.go       what changed between two snapshots
//	      ↓
//	answer.go     what a lookup finds, and what that lacks to be current
//	      ↓
//	query.go      what a lookup looks for
//	refresh.go    the reads that a refresh makes (R5)
//	merge.go      how a read makes the next snapshot (R1, R2, R4)
//	      ↓
//	snapshot.go   what is known, and whether it is current
//	document.go   groups in server order, and the document of a server
//	      ↓
//	names.go      the index of names: which groups may have one
//	read.go       a read, and how it has ended
//	group.go      sequence numbers, versions, a group, and what lies over the document's
//	table.go      the resources of a version, and their verbs
package snapshot
