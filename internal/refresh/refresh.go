// SPDX-License-Identifier: Apache-2.0

// Package refresh works beside the lookups, and only inside Run: it refreshes at an interval, and when the API server's
// own lists of APIs change.
//
// Everything that needs a refresh fires one trigger, and one loop takes it. So no two refreshes run at once, and a
// burst of events costs a bounded number of reads. When Run returns, its goroutines have ended.
//
//	refresh.go    the loop that refreshes, by the interval and when the trigger was fired
//	      ↓
//	watch.go      a list and a watch of CRDs, or of APIServices, which fire it
//	      ↓
//	trigger.go    the trigger
package refresh

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/freshmapper/freshmapper/internal/discovery"
)

// Options say when to refresh. With neither interval nor watchers Run only waits.
type Options struct {
	Interval time.Duration // 0: no refresh by interval
	Watchers []*Watcher    // their events fire the trigger
}

const (
	// settle is the least time between the first event of a burst and the refresh. A CRD is served about 100 ms after
	// its first event; a later event fires the trigger again.
	settle = 200 * time.Millisecond
	// spread is the most that is added to settle, at random, because one event reaches every replica of a program at
	// the same moment.
	spread = 1100 * time.Millisecond
	// spacing is the least time between the starts of two refreshes for which the trigger was fired.
	spacing = time.Second
	// jitter is the part by which every other wait may be shorter, at random, so that replicas do not refresh in
	// lockstep. No wait is longer: users rely on the interval.
	jitter       = 0.1
	firstBackoff = time.Second
	// MaxBackoff is the longest pause after a refresh that has failed.
	MaxBackoff = 2 * time.Minute

	forever = time.Duration(math.MaxInt64)
)

// recheckDelays returns how long after the refresh for an event others follow it. The event may come before the
// document shows the change: if another replica of the API server serves the document, or if the event is about an
// APIService, whose own document is fetched up to a minute later. A recheck costs two 304s if nothing else has
// changed.
func recheckDelays() []time.Duration {
	return []time.Duration{2 * time.Second, 8 * time.Second, 20 * time.Second, lastRecheck}
}

// Run refreshes at once, and again and again until ctx ends. It returns when everything that it started has ended.
// Reads and watches end within a second after ctx, although a transport that ignores its context goes on. refresh
// returns an error if the server could not be read. Then Run calls it again after a backoff that grows from a second.
// After a success Run calls it again at the interval.
func Run(ctx context.Context, options Options, refresh func(context.Context) error) {
	if options.Interval == 0 {
		if len(options.Watchers) == 0 {
			<-ctx.Done()
			return
		}
		options.Interval = forever
	}
	t := newTrigger()
	var watchers sync.WaitGroup
	for _, w := range options.Watchers {
		watchers.Add(1)
		go func(w *Watcher) {
			defer watchers.Done()
			w.run(ctx, t)
		}(w)
	}
	loop(ctx, options.Interval, t, refresh)
	watchers.Wait()
}

// loop refreshes until ctx ends.
func loop(ctx context.Context, interval time.Duration, t *trigger, refresh func(context.Context) error) {
	backoff := newBackoff()
	var rechecks []time.Time
	for ctx.Err() == nil {
		started := time.Now()
		err := refresh(ctx)
		pause := remaining(shorten(interval), time.Since(started))
		if err == nil {
			backoff = newBackoff()
		} else {
			pause = min(pause, shorten(backoff.Step()))
		}
		rechecks = slices.DeleteFunc(rechecks, func(at time.Time) bool { return !at.After(started) })
		for _, at := range rechecks {
			pause = min(pause, max(time.Until(at), settle, spacing-time.Since(started)))
		}

		if !t.wait(ctx, pause) {
			continue
		}
		// The burst passes, and the last refresh began at least spacing ago.
		discovery.Sleep(ctx, max(settle, spacing-time.Since(started))+rand.N(spread))
		if t.take() {
			for _, delay := range recheckDelays() {
				rechecks = append(rechecks, time.Now().Add(delay))
			}
		}
	}
}

// newBackoff returns a backoff without jitter, because loop shortens every wait.
func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: firstBackoff, Factor: 2, Steps: 30, Cap: MaxBackoff}
}

// shorten makes a wait shorter by a random part, at most jitter.
func shorten(d time.Duration) time.Duration {
	return d - time.Duration(rand.Float64()*jitter*float64(d))
}

// remaining returns what remains of an interval after a refresh that took spent. The interval counts from the start of
// the refresh: the next one must find, within the interval, what this one has just missed. A slow server still gets a
// pause.
func remaining(interval, spent time.Duration) time.Duration {
	return max(interval-spent, min(interval, settle))
}
