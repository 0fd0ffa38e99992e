// SPDX-License-Identifier: Apache-2.0

// Package reload keeps the current snapshot and is the only one to replace it.
//
// Reading what is known takes one atomic load (Snapshot). If that is not enough,
// Lookup makes the reads that the snapshot says are missing. Each is a flight: one
// read of the server on behalf of all who wait for the same thing.
//
//   - A flight can be joined only until it starts, so what it reads is never
//     older than the lookup that waits for it.
//   - Flights of one group run one after the other, those of several groups side by
//     side, and that of the document beside them. Each read carries the tick at
//     which it began, and the snapshot merges by it.
//   - No lock is held while a flight runs.
package reload
