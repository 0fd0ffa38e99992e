// SPDX-License-Identifier: Apache-2.0

// Package reload keeps the current snapshot. No other package replaces it.
//
// Snapshot returns what is known with one atomic load. If that is not enough, Lookup makes
// the reads that it still needs. Each is a flight: one read of the server for all callers
// that wait for the same. Callers join it only until it starts, so what it reads is never older
// than their lookups. Each read has the tick at which it began; the snapshot merges by ticks, so
// nothing else orders flights. No lock is held while one runs.
package reload
