// SPDX-License-Identifier: Apache-2.0

// Package snapshot holds what one API server was last known to serve, and
// answers the seven lookups of meta.RESTMapper from it.
//
// The package is pure: it has no clock, I/O, lock, goroutine or logger. A Snapshot, a
// Group and a Table never change once made; With… and Reset make a new Snapshot that
// shares every group that they did not touch. Any number of goroutines may read a
// Snapshot, and snapshots of different servers may share groups. Two things are noted
// later, by lookups and atomically: an index, which changes no answer, and that a group is in use.
//
// Every answer equals the one that k8s.io/client-go/restmapper.NewDiscoveryRESTMapper
// gives over the same groups in the same order: value, order, error type and error text.
// If that library's answer depends on Go's map order, we always return the same one of
// its answers.
//
// A read takes a sequence number (Seq) when it begins, and so does a reset. Whatever has to be decided is a comparison
// of these numbers. For example, an answer is current if all that it rests on has a higher number than the last reset.
//
// What is known of a group has three owners:
//
//	Document   what the last document says of it; all mappers of the process share that
//	overlay    as of which live reads its versions are known, if there were any
//	Group      what lookups find: the document's own group, or one that merges both
//
// The files, in layers. Data flows up: each file uses only what stands below it:
//
//	lookup.go     the seven lookups
//	miss.go       the reads that a lookup still needs (R3)
//	diff.go       what changed between two snapshots
//	      ↓
//	answer.go     what a lookup finds, and which reads that needs to be current
//	      ↓
//	query.go      what a lookup looks for
//	refresh.go    the reads that a refresh makes (R5)
//	merge.go      how a read makes the next snapshot (R1, R2, R4)
//	      ↓
//	snapshot.go   what is known, and as of which read
//	document.go   groups in server order, and the document of a server
//	draft.go      a group while a read changes it
//	      ↓
//	names.go      the index of names: which groups may have one
//	read.go       a read, and how it has ended
//	group.go      sequence numbers, versions, a group, and its overlay
//	table.go      the resources of a version, and their verbs
package snapshot
