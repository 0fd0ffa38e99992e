// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"math"
	"sync/atomic"
	"time"
)

// age is the one clock of freshness: it counts from the last refresh that succeeded. It decides when the mapper is due
// to confirm what it knows: stale-while-revalidate, as in RFC 5861. It runs from the first read on; after it has fired,
// from the end of the next refresh on.
type age struct {
	maxAge time.Duration // 0 or less: what is known needs no confirmation
	timer  *time.Timer   // refers only to the flags that it sets, so it keeps no mapper in memory

	due   *atomic.Bool // a confirmation has to begin
	stale *atomic.Bool // the last confirmation was more than maxAge ago, whatever is under way
}

func newAge(maxAge time.Duration) *age {
	due := new(atomic.Bool)
	stale := new(atomic.Bool)
	timer := time.AfterFunc(math.MaxInt64, func() {
		due.Store(true)
		stale.Store(true)
	})
	timer.Stop()
	return &age{maxAge: maxAge, due: due, stale: stale, timer: timer}
}

// limited reports whether what is known has to be confirmed at all.
func (a *age) limited() bool { return a.maxAge > 0 }

// confirmed starts the clock anew: after a refresh that has succeeded, and at the first read.
func (a *age) confirmed() {
	if a.limited() {
		a.due.Store(false)
		a.stale.Store(false)
		a.timer.Reset(a.maxAge)
	}
}

// failed makes the next confirmation due after twice maxAge, because a refresh has failed. That pause does not grow
// further: what is known gets as old as the pause.
func (a *age) failed() {
	if a.limited() {
		a.due.Store(false)
		a.stale.Store(true)
		a.timer.Reset(2 * a.maxAge)
	}
}

// Due reports whether a confirmation is due: MaxAge has passed since the last one. It costs one atomic load.
func (r *Reloader) Due() bool { return r.age.due.Load() }

// Stale reports whether the last confirmation was more than MaxAge ago, whatever is under way.
func (r *Reloader) Stale() bool { return r.age.stale.Load() }

// NoteAllRead notes that everything that is served was read by reads that began after a time.
func (r *Reloader) NoteAllRead(began time.Time) { r.allRead.Store(&began) }

// AllRead returns when the reads began that last confirmed everything that is known, or the zero time.
func (r *Reloader) AllRead() time.Time {
	if last := r.allRead.Load(); last != nil {
		return *last
	}
	return time.Time{}
}

// Outdated reports whether that was more than MaxAge ago.
func (r *Reloader) Outdated() bool { return r.age.limited() && time.Since(r.AllRead()) >= r.age.maxAge }
