// SPDX-License-Identifier: Apache-2.0

// Package reload keeps the current snapshot and is the only one to replace it.
//
// Snapshot returns what is known with one atomic load. If that is not enough, Lookup
// makes the reads that are missing. Each is a flight: one read of the server for all
// callers that wait for the same thing.
//
//   - A flight can be joined only until it starts, so what it reads is never
//     older than the lookup that waits for it.
//   - Flights of one group run one after the other, those of several groups side by
//     side, and the one of the document beside them. Each read has the tick at which
//     it began, and the snapshot merges by ticks.
//   - No lock is held while a flight runs.
package reload
