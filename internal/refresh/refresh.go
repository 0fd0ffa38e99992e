// SPDX-License-Identifier: Apache-2.0

// Package refresh works beside the lookups, and only inside Run: it refreshes at an
// interval, and when the API server's own lists of APIs change.
//
// Everything that needs a refresh rings one doorbell. One loop answers it, so no two
// refreshes run at once, and a burst of events costs a bounded number of reads. When Run
// returns, its goroutines have ended.
//
//	watch.go      who rings: a list and a watch of CRDs, or of APIServices
//	      ↓
//	refresh.go    the doorbell, and the loop that answers it; so does the interval
package refresh

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Options say when to refresh. With neither interval nor watchers Run only waits.
type Options struct {
	Interval time.Duration // 0: no refresh by interval
	Watchers []*Watcher    // their events ring the doorbell
}

const (
	// settle is the least time between the first ring of a burst and the refresh. A CRD
	// is served some 100 ms after its first event; a later event rings again.
	settle = 200 * time.Millisecond
	// spread is the most that is added to settle, at random, because one event rings at
	// every replica of a program at the same moment.
	spread = 1100 * time.Millisecond
	// spacing is the least time between the starts of two refreshes that rings caused.
	spacing = time.Second
	// jitter is the part by which every other wait may be shorter, at random, so that
	// replicas do not refresh in lockstep. No wait is longer: users rely on the interval.
	jitter       = 0.1
	firstBackoff = time.Second
	// MostBackoff is the longest pause after a refresh that has failed.
	MostBackoff = 2 * time.Minute

	forever = time.Duration(math.MaxInt64)
)

// echoes returns how long after its answer an event is answered again. It may come before
// the document shows the change. That happens if another replica of the API server serves
// the document, or if the event is about an APIService, whose own document is fetched up to
// a minute later. An echo costs two 304s if nothing else has changed.
func echoes() []time.Duration {
	return []time.Duration{2 * time.Second, 8 * time.Second, 20 * time.Second, 70 * time.Second}
}

// Doorbell asks for a refresh. Any number of rings before it is answered count as one.
type Doorbell struct {
	rung  chan struct{}
	event atomic.Bool // one of the rings that are not answered yet was for an event
}

// NewDoorbell makes a doorbell.
func NewDoorbell() *Doorbell { return &Doorbell{rung: make(chan struct{}, 1)} }

// Ring asks for a refresh. It never blocks.
func (d *Doorbell) Ring() {
	select {
	case d.rung <- struct{}{}:
	default:
	}
}

// RingEvent is Ring for an event: something has just come, changed or gone.
func (d *Doorbell) RingEvent() {
	d.event.Store(true)
	d.Ring()
}

// Run refreshes at once, and again and again until ctx ends. It returns when everything
// that it started has ended. Reads and watches end within a second after ctx, although a
// transport that ignores its context goes on. refresh returns an error if the server could
// not be read. Then Run calls it again after a backoff that grows from a second. After a
// success Run calls it again at the interval.
func Run(ctx context.Context, options Options, refresh func(context.Context) error) {
	if options.Interval == 0 {
		if len(options.Watchers) == 0 {
			<-ctx.Done()
			return
		}
		options.Interval = forever
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
	var again []time.Time // when events are answered again
	for ctx.Err() == nil {
		started := time.Now()
		err := refresh(ctx)
		next := rest(shorten(interval), time.Since(started))
		if err == nil {
			backoff = newBackoff()
		} else {
			next = min(next, shorten(backoff.Step()))
		}
		again = slices.DeleteFunc(again, func(echo time.Time) bool { return !echo.After(started) })
		for _, echo := range again {
			next = min(next, max(time.Until(echo), settle, spacing-time.Since(started)))
		}
		if rung := sleep(ctx, next, bell.rung); rung {
			// Let the burst pass, and keep spacing from the last refresh.
			sleep(ctx, max(settle, spacing-time.Since(started))+rand.N(spread), nil)
			if bell.drain() {
				for _, later := range echoes() {
					again = append(again, time.Now().Add(later))
				}
			}
		}
	}
}

// newBackoff returns a backoff without jitter, because loop shortens every wait.
func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: firstBackoff, Factor: 2, Steps: 30, Cap: MostBackoff}
}

// shorten makes a wait shorter by a random part, at most jitter.
func shorten(d time.Duration) time.Duration {
	return d - time.Duration(rand.Float64()*jitter*float64(d))
}

// rest returns what is left of an interval after a refresh that took spent. The interval
// counts from the start of the refresh: the next refresh must find, within the interval,
// what this one has just missed. A slow server still gets a pause.
func rest(interval, spent time.Duration) time.Duration {
	return max(interval-spent, min(interval, settle))
}

// sleep waits for d, until bell rings, or until ctx ends. It reports whether the bell rang.
func sleep(ctx context.Context, d time.Duration, bell <-chan struct{}) (rung bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-bell:
		return true
	}
	return false
}

// drain forgets the rings that the next refresh answers. It reports whether one of them
// was for an event.
func (d *Doorbell) drain() (event bool) {
	select {
	case <-d.rung:
	default:
	}
	return d.event.Swap(false)
}
