// SPDX-License-Identifier: Apache-2.0

package refresh

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Options say when to refresh. With neither interval nor watchers Run only waits.
type Options struct {
	Interval time.Duration // 0: not by interval
	Watchers []*Watcher    // whose events ring
}

const (
	// settle is how long after the first ring of a burst the refresh begins. A CRD
	// is served some 100 ms after its first event; the event that says so rings again.
	settle = 200 * time.Millisecond
	// spacing is the least time between the starts of two refreshes that were rung for.
	spacing = time.Second

	// jitter is the part of every wait that may be left out, so that a fleet does
	// not beat in time. Nothing is added: the interval is what users rely on.
	jitter       = 0.1
	firstBackoff = time.Second
	mostBackoff  = 2 * time.Minute
)

// echoes are the pauses after which the ring of an event is answered again. The
// event may be ahead of the document: another replica of the API server serves
// that, or the event is about an APIService, whose own document is fetched up to a
// minute later. Where nothing else has changed each costs two 304s.
func echoes() []time.Duration {
	return []time.Duration{2 * time.Second, 6 * time.Second, 12 * time.Second, 50 * time.Second}
}

// Doorbell asks for a refresh. Any number of rings before it is answered count as one.
type Doorbell struct {
	rung  chan struct{}
	event atomic.Bool // of the rings that have not been answered one was of an event
}

// NewDoorbell makes a doorbell.
func NewDoorbell() *Doorbell { return &Doorbell{rung: make(chan struct{}, 1)} }

// Ring never blocks.
func (d *Doorbell) Ring() {
	select {
	case d.rung <- struct{}{}:
	default:
	}
}

// RingEvent is Ring because something came, changed or went just now.
func (d *Doorbell) RingEvent() {
	d.event.Store(true)
	d.Ring()
}

// Run refreshes until ctx ends, beginning at once, and returns when everything
// that it started has ended. refresh returns an error if the server could not be
// read; it is then called again after a backoff that grows from a second, and
// after the first success at the interval again.
func Run(ctx context.Context, options Options, refresh func(context.Context) error) {
	if options.Interval == 0 && len(options.Watchers) == 0 {
		<-ctx.Done()
		return
	}
	bell := NewDoorbell()
	var watchers sync.WaitGroup
	for _, w := range options.Watchers {
		watchers.Add(1)
		go func(w *Watcher) {
			defer watchers.Done()
			w.run(ctx, bell)
		}(w)
	}
	loop(ctx, options.Interval, bell, refresh)
	watchers.Wait()
}

func loop(ctx context.Context, interval time.Duration, bell *Doorbell, refresh func(context.Context) error) {
	backoff := newBackoff()
	var again []time.Duration // what is left of the echoes of the last ring
	for ctx.Err() == nil {
		started := time.Now()
		err := refresh(ctx)
		next := rest(shorten(interval), time.Since(started))
		if err == nil {
			backoff = newBackoff()
		} else if retry := shorten(backoff.Step()); interval == 0 || retry < next {
			next = retry
		}
		if len(again) > 0 && (next == 0 || again[0] < next) {
			next, again = again[0], again[1:]
		}
		if rung := sleep(ctx, next, bell.rung); rung {
			// Let the burst pass, and keep the distance to the refresh before.
			sleep(ctx, max(settle, spacing-time.Since(started)), nil)
			if bell.drain() {
				again = echoes()
			}
		}
	}
}

// newBackoff has no jitter: loop shortens every wait.
func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: firstBackoff, Factor: 2, Steps: 30, Cap: mostBackoff}
}

// shorten takes the jitter off a wait; a wait of 0 stays for ever.
func shorten(d time.Duration) time.Duration {
	return d - time.Duration(rand.Float64()*jitter*float64(d))
}

// rest is what is left of an interval that is counted from the start of a refresh,
// so that what a refresh has just missed is seen by the next within the interval.
// It leaves a server that takes longer than that a pause. An interval of 0 stays
// for ever.
func rest(interval, spent time.Duration) time.Duration {
	return max(interval-spent, min(interval, settle))
}

// sleep waits for d, for ever if that is 0, or until bell rings or ctx ends. It
// says whether the bell rang.
func sleep(ctx context.Context, d time.Duration, bell <-chan struct{}) (rung bool) {
	var after <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		after = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-after:
		return false
	case <-bell:
		return true
	}
}

// drain forgets rings that the refresh about to begin answers as well, and says
// whether one of all those that it answers was of an event.
func (d *Doorbell) drain() (event bool) {
	select {
	case <-d.rung:
	default:
	}
	return d.event.Swap(false)
}
