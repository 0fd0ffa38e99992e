// SPDX-License-Identifier: Apache-2.0

// Package reload keeps the current snapshot. No other package replaces it.
//
// Snapshot returns what is known with one atomic load. If that is not enough, Lookup
// makes the missing reads. Each is a flight: one read of the server for all callers that
// wait for the same thing.
//
//   - Callers can join a flight only until it starts, so what it reads is never older
//     than the lookups that wait for it.
//   - Flights of one group run one after the other. Flights of several groups run side by
//     side, and that of the document beside them. Each read has the tick at which it
//     began, and the snapshot merges by ticks.
//   - No lock is held while a flight runs.
package reload
