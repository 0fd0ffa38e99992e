// SPDX-License-Identifier: Apache-2.0

package refresh

import (
	"context"
	"sync/atomic"
	"time"
)

// lastRecheck is how long after an event the last refresh for it follows.
const lastRecheck = 70 * time.Second

// trigger asks for a refresh. It counts once, however often it is fired before it is taken.
type trigger struct {
	fired    chan struct{} // has room for one
	forEvent atomic.Bool   // it was fired for an event since it was last taken
}

func newTrigger() *trigger { return &trigger{fired: make(chan struct{}, 1)} }

// fire asks for a refresh. It never blocks.
func (t *trigger) fire() {
	select {
	case t.fired <- struct{}{}:
	default:
	}
}

// fireForEvent is fire for an event: an API was just installed, changed or removed.
func (t *trigger) fireForEvent() {
	t.forEvent.Store(true)
	t.fire()
}

// wait waits until the trigger is fired, for as long as most, or until ctx ends. It reports whether it was fired.
func (t *trigger) wait(ctx context.Context, most time.Duration) (fired bool) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-t.fired:
		return true
	case <-timer.C:
		return false
	case <-ctx.Done():
		return false
	}
}

// take takes what was fired so far, because a refresh begins. It reports whether that was for an event.
func (t *trigger) take() (forEvent bool) {
	select {
	case <-t.fired:
	default:
	}
	return t.forEvent.Swap(false)
}
