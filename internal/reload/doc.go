// SPDX-License-Identifier: Apache-2.0

// Package reload keeps the current snapshot and is the only one to replace it.
//
// Reading what is known takes one atomic load (Snapshot). Whoever finds that it
// is not enough calls Read, which joins or starts a flight: one read of the
// server on behalf of all who wait for the same thing.
//
//   - A flight can be joined only until it starts, so what it reads is never
//     older than the lookup that waits for it.
//   - Flights run one at a time. A read that began earlier has therefore also
//     ended earlier, and cannot overwrite what a later one found; and the
//     caller's http.Client never sees two requests at once.
//   - No lock is held while a flight runs.
package reload
