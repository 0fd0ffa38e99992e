// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package refresh

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

// A recorder is a refresh that notes when it was called. A call lasts for takes, and fails while fails is set.
type recorder struct {
	takes time.Duration
	fails atomic.Bool

	mu     sync.Mutex
	starts []time.Time
}

func (r *recorder) refresh(ctx context.Context) error {
	r.mu.Lock()
	r.starts = append(r.starts, time.Now())
	r.mu.Unlock()
	select {
	case <-time.After(r.takes):
	case <-ctx.Done():
	}
	if r.fails.Load() {
		return errors.New("failing")
	}
	return nil
}

// since returns how long after start each refresh after the first one began.
func (r *recorder) since(start time.Time) (all []time.Duration) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.starts[1:] {
		all = append(all, s.Sub(start))
	}
	return all
}

// inLoop runs the loop in a bubble while test rings, after the first refresh.
func inLoop(t *testing.T, interval time.Duration, r *recorder, test func(t *testing.T, bell *Doorbell, start time.Time)) {
	t.Helper()
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		bell, ended := NewDoorbell(), make(chan struct{})
		go func() {
			defer close(ended)
			loop(ctx, interval, bell, r.refresh)
		}()
		time.Sleep(r.takes + time.Nanosecond)
		if interval == forever && !r.fails.Load() {
			time.Sleep(time.Hour)
		}
		if early := r.since(time.Now()); len(early) > 0 {
			t.Errorf("nobody has rung, and there were %d refreshes beside the first", len(early))
		}
		test(t, bell, time.Now())
		cancel()
		<-ended
	})
}

// A ring is answered 200 ms later, or up to 1.1 s after that, and once for several; the answer to the next one keeps a
// distance of a second. A ring while a refresh is under way may be about what that has missed.
func TestRingIsAnsweredOnceAndSoon(t *testing.T) {
	for name, test := range map[string]struct{ takes, pause, answer time.Duration }{
		"at once":          {0, 0, spacing},
		"during a refresh": {3 * time.Second, time.Second, 3*time.Second + settle},
		"later":            {0, 10 * time.Second, 10*time.Second + settle},
	} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{takes: test.takes}
			inLoop(t, forever, r, func(t *testing.T, bell *Doorbell, start time.Time) {
				bell.Ring()
				for len(r.since(start)) == 0 {
					time.Sleep(time.Millisecond)
				}
				answered := time.Since(start)
				time.Sleep(test.pause)
				bell.Ring()
				bell.Ring()
				time.Sleep(time.Hour)
				got, want := r.since(start), []time.Duration{settle, answered + test.answer}
				if !slices.EqualFunc(got, want, func(got, want time.Duration) bool { return got > want-2*time.Millisecond && got <= want+spread }) {
					t.Errorf("after the first ring, refreshes began after %v; want %v, and each %v later at most", got, want, spread)
				}
			})
		})
	}
}

// An interval counts from the beginning of a refresh.
func TestIntervalsAreKept(t *testing.T) {
	r := &recorder{takes: 20 * time.Second}
	inLoop(t, time.Minute, r, func(t *testing.T, _ *Doorbell, start time.Time) {
		time.Sleep(time.Hour)
		if n := len(r.since(start)); n < 60 {
			t.Errorf("%d refreshes in an hour, want one a minute at least", n)
		}
	})
}

// Whatever rings, and whenever: events, their echoes, the interval and watches that open again
// do not make two refreshes within a second, or at once, and the last ring is answered. A failure is
// tried again a tenth sooner at most.
func TestRefreshesKeepTheirDistance(t *testing.T) {
	for name, test := range map[string]struct {
		takes, interval, pause time.Duration // pause is the longest between two rings
		fails                  bool
	}{
		"now and then":     {0, forever, 3 * time.Second, false},
		"with an interval": {0, time.Minute, 3 * time.Second, false},
		"a burst":          {0, forever, 240 * time.Millisecond, false},
		"slow":             {400 * time.Millisecond, forever, 240 * time.Millisecond, false},
		"slower":           {5 * time.Second, forever, 240 * time.Millisecond, false},
		"failing":          {0, forever, 240 * time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			r, least := &recorder{takes: test.takes}, max(spacing, test.takes)
			if test.fails {
				least = firstBackoff * 9 / 10
			}
			r.fails.Store(test.fails)
			inLoop(t, test.interval, r, func(t *testing.T, bell *Doorbell, start time.Time) {
				for range 500 {
					if test.pause > spacing && rand.IntN(2) == 0 {
						bell.RingEvent()
					} else {
						bell.Ring() // without an echo that would answer the last one
					}
					time.Sleep(rand.N(test.pause))
				}
				last := time.Since(start)
				r.fails.Store(false)
				time.Sleep(15 * time.Second)
				times := r.since(start)
				for i := 1; i < len(times); i++ {
					if gap := times[i] - times[i-1]; gap < least {
						t.Errorf("%v between two refreshes, the second after %v; want at least %v", gap, times[i], least)
					}
				}
				if n := len(times); n < 5 || test.pause > spacing && n < 200 {
					t.Errorf("%d refreshes for 500 rings up to %v apart: some were not answered", n, test.pause)
				} else if times[n-1] < last-test.pause {
					t.Errorf("the last refresh began after %v, and the last ring came after %v: it is not answered", times[n-1], last)
				}
			})
		})
	}
}
