// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"math"
	"sync/atomic"
	"time"
)

// age is the one clock of freshness: when the last refresh has succeeded. It decides when
// the mapper is due to confirm what it knows: stale-while-revalidate, as in RFC 5861. Its
// timer refers only to the flag that it sets, so it keeps no mapper alive. It runs from the
// first read on; after it has fired, from the end of the next refresh on.
type age struct {
	most       time.Duration // 0 or less: never
	due, stale *atomic.Bool  // a confirmation has to begin; the last one is too old
	timer      *time.Timer
}

func newAge(most time.Duration) *age {
	due, stale := new(atomic.Bool), new(atomic.Bool)
	timer := time.AfterFunc(math.MaxInt64, func() { due.Store(true); stale.Store(true) })
	timer.Stop()
	return &age{most: most, due: due, stale: stale, timer: timer}
}

// next makes the next confirmation due after so many times MaxAge: once after a refresh, or
// the first read, and twice after a refresh that has failed. That pause does not grow
// further, because what is known gets as old as the pause.
func (a *age) next(times time.Duration) {
	if a.most > 0 {
		a.due.Store(false)
		a.stale.Store(times > 1)
		a.timer.Reset(times * a.most)
	}
}

// Due reports whether a confirmation is due: MaxAge has passed since the last one. It
// costs one atomic load.
func (r *Reloader) Due() bool { return r.age.due.Load() }

// Stale reports whether the last confirmation was more than MaxAge ago, whatever is under way.
func (r *Reloader) Stale() bool { return r.age.stale.Load() }

// RefreshIfDue starts a refresh in the background if one is due, and returns at once. The
// refresh ends by the timeouts of its requests.
func (r *Reloader) RefreshIfDue() {
	if !r.age.due.CompareAndSwap(true, false) {
		return
	}
	go func() {
		if r.Refresh(context.Background()) != nil {
			r.age.next(2)
		}
	}()
}
