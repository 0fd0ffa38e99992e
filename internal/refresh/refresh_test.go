// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package refresh

import (
	"context"
	"errors"
	"math/rand/v2"
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

// loopTest is a loop that runs, after its first refresh.
type loopTest struct {
	*trigger
	*recorder
	start time.Time
}

// after returns how long after the start each refresh began.
func (l *loopTest) after() []time.Duration { return l.since(l.start) }

// inLoop runs the loop in a bubble while test fires the trigger.
func inLoop(t *testing.T, interval time.Duration, r *recorder, test func(t *testing.T, l *loopTest)) {
	t.Helper()
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		l := &loopTest{trigger: newTrigger(), recorder: r}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			loop(ctx, interval, l.trigger, r.refresh)
		}()
		time.Sleep(r.takes + time.Nanosecond)
		if interval == forever && !r.fails.Load() {
			time.Sleep(time.Hour)
		}
		if early := r.since(time.Now()); len(early) > 0 {
			t.Errorf("nobody has fired the trigger, and there were %d refreshes beside the first", len(early))
		}

		l.start = time.Now()
		test(t, l)

		cancel()
		<-ended
	})
}

// A refresh follows the trigger 200 ms later, or up to 1.1 s after that, once for several; the next one keeps a
// distance of a second.
func TestTriggerIsTakenOnceAndSoon(t *testing.T) {
	inLoop(t, forever, &recorder{}, func(t *testing.T, l *loopTest) {
		first := l.fireAndAwait()

		l.fire()
		l.fire()
		time.Sleep(time.Hour)

		l.refreshed(t, first, first+spacing)
	})
}

// When the trigger is fired while a refresh is under way, that may have missed something. So another one follows.
func TestTriggerDuringARefresh(t *testing.T) {
	takes := 3 * time.Second
	inLoop(t, forever, &recorder{takes: takes}, func(t *testing.T, l *loopTest) {
		first := l.fireAndAwait()

		time.Sleep(time.Second)
		l.fire()
		time.Sleep(time.Hour)

		l.refreshed(t, first, first+takes+settle)
	})
}

// A trigger that is fired much later than the last refresh waits for nothing but the burst.
func TestTriggerAfterAPause(t *testing.T) {
	inLoop(t, forever, &recorder{}, func(t *testing.T, l *loopTest) {
		first := l.fireAndAwait()

		time.Sleep(10 * time.Second)
		l.fire()
		time.Sleep(time.Hour)

		l.refreshed(t, first, first+10*time.Second+settle)
	})
}

// The document may show an event late. So the refresh for it is followed by others, up to 70 seconds later.
func TestEventIsRechecked(t *testing.T) {
	inLoop(t, forever, &recorder{}, func(t *testing.T, l *loopTest) {
		l.fireForEvent()
		time.Sleep(time.Hour)

		got := l.after()
		delays := recheckDelays()
		if len(got) != 1+len(delays) {
			t.Fatalf("refreshes began after %v, want one and then %v later", got, delays)
		}
		for i, delay := range delays {
			if at := got[0] + delay; got[i+1] != at {
				t.Errorf("a refresh began after %v, want %v: %v after the first", got[i+1], at, delay)
			}
		}
	})
}

// fireAndAwait fires the trigger, and returns when after that a refresh has begun.
func (l *loopTest) fireAndAwait() time.Duration {
	l.fire()
	for len(l.after()) == 0 {
		time.Sleep(time.Millisecond)
	}
	return time.Since(l.start)
}

// refreshed fails the test unless there were two refreshes, after these times or up to spread later. The first one is
// known to the millisecond.
func (l *loopTest) refreshed(t *testing.T, first, second time.Duration) {
	t.Helper()
	got := l.after()
	if len(got) != 2 {
		t.Fatalf("refreshes began after %v, want two", got)
	}
	const precision = 2 * time.Millisecond
	if first < settle-precision || first > settle+spread+precision {
		t.Errorf("the first refresh began after %v; want %v, and %v later at most", first, settle, spread)
	}
	if got[1] < second-precision || got[1] > second+spread {
		t.Errorf("the second refresh began after %v; want %v, and %v later at most", got[1], second, spread)
	}
}

// An interval counts from the beginning of a refresh.
func TestIntervalsAreKept(t *testing.T) {
	inLoop(t, time.Minute, &recorder{takes: 20 * time.Second}, func(t *testing.T, l *loopTest) {
		time.Sleep(24 * time.Hour)
		times := l.after()
		if n := len(times); n < 24*60 {
			t.Errorf("%d refreshes in a day, want one a minute at least", n)
		}
		for i := 1; i < len(times); i++ {
			if gap := times[i] - times[i-1]; gap > time.Minute {
				t.Errorf("%v between two refreshes, the second after %v; want a minute at most", gap, times[i])
			}
		}
	})
}

// Refreshes keep a distance of a second, whatever fires the trigger: events, their rechecks, the interval and watches
// that open again. What was fired last is answered, too. A failure is tried again a tenth sooner at most.
func TestRefreshesKeepTheirDistance(t *testing.T) {
	now := 3 * time.Second          // the longest pause between two events
	burst := 240 * time.Millisecond // likewise

	t.Run("now and then", func(t *testing.T) { keepsDistance(t, forever, now, &recorder{}) })
	t.Run("with an interval", func(t *testing.T) { keepsDistance(t, time.Minute, now, &recorder{}) })
	t.Run("a burst", func(t *testing.T) { keepsDistance(t, forever, burst, &recorder{}) })
	t.Run("slow", func(t *testing.T) { keepsDistance(t, forever, burst, &recorder{takes: 400 * time.Millisecond}) })
	t.Run("slower", func(t *testing.T) { keepsDistance(t, forever, burst, &recorder{takes: 5 * time.Second}) })
	t.Run("failing", func(t *testing.T) {
		failing := &recorder{}
		failing.fails.Store(true)
		keepsDistance(t, forever, burst, failing)
	})
}

// keepsDistance fires the trigger 500 times, with pauses up to the given one.
func keepsDistance(t *testing.T, interval, pause time.Duration, r *recorder) {
	t.Helper()
	least := max(spacing, r.takes)
	if r.fails.Load() {
		least = firstBackoff * 9 / 10
	}
	rare := pause > spacing
	inLoop(t, interval, r, func(t *testing.T, l *loopTest) {
		for range 500 {
			if rare && rand.IntN(2) == 0 {
				l.fireForEvent()
			} else {
				l.fire() // without a recheck that would answer the last one
			}
			time.Sleep(rand.N(pause))
		}
		last := time.Since(l.start)
		r.fails.Store(false)
		time.Sleep(15 * time.Second)

		times := l.after()
		for i := 1; i < len(times); i++ {
			if gap := times[i] - times[i-1]; gap < least {
				t.Errorf("%v between two refreshes, the second after %v; want at least %v", gap, times[i], least)
			}
		}
		enough := 5
		if rare {
			enough = 200
		}
		if len(times) < enough {
			t.Fatalf("%d refreshes for 500 events up to %v apart, want %d at least", len(times), pause, enough)
		}
		if end := times[len(times)-1]; end < last-pause {
			t.Errorf("the last refresh began after %v, and the last event came after %v: it is not answered", end, last)
		}
	})
}
