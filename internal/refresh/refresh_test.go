// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package refresh

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
)

// A recorder is a refresh that notes when it was called. A call lasts for takes, and
// fails while fails is set.
type recorder struct {
	takes time.Duration

	mu     sync.Mutex
	fails  bool
	starts []time.Time
	now    int // calls under way
	twice  bool
}

func (r *recorder) refresh(ctx context.Context) error {
	r.mu.Lock()
	r.starts = append(r.starts, time.Now())
	r.now++
	r.twice = r.twice || r.now > 1
	fails := r.fails
	r.mu.Unlock()
	select {
	case <-time.After(r.takes):
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now--
	if fails {
		return errors.New("failing")
	}
	return nil
}

func (r *recorder) fail(fails bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fails = fails
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.starts)
}

// since returns how long after start each refresh after the first one began.
func (r *recorder) since(start time.Time) []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []time.Duration
	for _, s := range r.starts[1:] {
		all = append(all, s.Sub(start))
	}
	return all
}

// inLoop runs the loop in a bubble while test rings. It begins when the first
// refresh is over.
func inLoop(t *testing.T, interval time.Duration, r *recorder, test func(t *testing.T, bell *Doorbell)) {
	t.Helper()
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		bell, ended := NewDoorbell(), make(chan struct{})
		go func() {
			defer close(ended)
			loop(ctx, interval, bell, r.refresh)
		}()
		time.Sleep(r.takes)
		synctest.Wait()
		if n := r.count(); n != 1 {
			t.Errorf("%d refreshes at the beginning", n)
		}
		test(t, bell)
		cancel()
		<-ended
		if r.twice {
			t.Error("two refreshes at once")
		}
	})
}

// A ring is answered 200 ms later, or up to 1.1 s after that; the answer to the next
// one keeps a distance of a second.
func TestRing(t *testing.T) {
	r := &recorder{}
	inLoop(t, 0, r, func(t *testing.T, bell *Doorbell) {
		time.Sleep(time.Hour)
		start := time.Now()
		bell.Ring()
		answered := awaitRefresh(r)
		bell.Ring()
		time.Sleep(10*time.Second + answered)
		bell.Ring()
		time.Sleep(time.Hour)
		wantTimes(t, r.since(start), settle, answered+spacing, 10*time.Second+2*answered+settle)
	})
}

// awaitRefresh waits for the next refresh and returns how long that took.
func awaitRefresh(r *recorder) time.Duration {
	start := time.Now()
	for n := r.count(); r.count() == n; {
		time.Sleep(time.Millisecond)
	}
	return time.Since(start)
}

// wantTimes compares the times of refreshes with the first moments at which they
// may have begun; those that were rung for may be late by spread.
func wantTimes(t *testing.T, got []time.Duration, want ...time.Duration) {
	t.Helper()
	if !slices.EqualFunc(got, want, func(got, want time.Duration) bool {
		return got > want-2*time.Millisecond && got <= want+spread
	}) {
		t.Errorf("refreshes after %v; want %v, and %v later at most", got, want, spread)
	}
}

// One event rings at every replica of a fleet. They do not answer in the same moment.
func TestAnswersAreSpread(t *testing.T) {
	var tenths [11]int
	for range 200 {
		r := &recorder{}
		inLoop(t, 0, r, func(t *testing.T, bell *Doorbell) {
			time.Sleep(time.Hour)
			bell.RingEvent()
			answered := awaitRefresh(r)
			tenths[min((answered-settle)*10/spread, 10)]++
		})
	}
	for n, answers := range tenths[:10] {
		if answers > 45 { // 20 are to be expected; more than 45 one run in a million
			t.Errorf("%d of 200 answers in part %d of 10: %v", answers, n+1, tenths)
		}
	}
}

// Whatever rings, and whenever: events, their echoes and watches that open again do
// not make two refreshes within a second.
func TestRefreshesKeepTheirDistance(t *testing.T) {
	r := &recorder{}
	inLoop(t, 0, r, func(t *testing.T, bell *Doorbell) {
		time.Sleep(time.Hour)
		start := time.Now()
		for range 500 {
			if rand.IntN(2) == 0 {
				bell.RingEvent()
			} else {
				bell.Ring()
			}
			time.Sleep(rand.N(3 * time.Second))
		}
		times := r.since(start)
		for i := 1; i < len(times); i++ {
			if gap := times[i] - times[i-1]; gap < spacing {
				t.Errorf("%v between two refreshes, the second after %v", gap, times[i])
			}
		}
		if len(times) < 200 {
			t.Errorf("only %d refreshes", len(times))
		}
	})
}

// Rings that come before the answer begins are one.
func TestRingsBeforeTheAnswer(t *testing.T) {
	r := &recorder{}
	inLoop(t, 0, r, func(t *testing.T, bell *Doorbell) {
		time.Sleep(time.Hour)
		start := time.Now()
		for range 190 {
			bell.Ring()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Hour)
		wantTimes(t, r.since(start), settle)
	})
}

// A ring while a refresh is under way may be about what that has missed.
func TestRingDuringRefresh(t *testing.T) {
	r := &recorder{takes: 3 * time.Second}
	inLoop(t, 0, r, func(t *testing.T, bell *Doorbell) {
		time.Sleep(time.Hour)
		start := time.Now()
		bell.Ring()
		answered := awaitRefresh(r)
		time.Sleep(time.Second)
		bell.Ring()
		bell.Ring()
		time.Sleep(time.Hour)
		wantTimes(t, r.since(start), settle, answered+r.takes+settle)
	})
}

// 500 events in a minute cost a refresh a second, and the last one is answered.
func TestBurst(t *testing.T) {
	for name, r := range map[string]*recorder{
		"fast": {}, "slow": {takes: 400 * time.Millisecond}, "slower": {takes: 5 * time.Second}, "failing": {fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			inLoop(t, 0, r, func(t *testing.T, bell *Doorbell) {
				start := time.Now()
				for range 500 {
					bell.Ring()
					time.Sleep(time.Minute / 500)
				}
				last := time.Since(start)
				time.Sleep(2 * time.Second)
				if n := r.count(); n > 62 || n < 5 {
					t.Errorf("%d refreshes", n)
				}
				r.fail(false)
				time.Sleep(10 * time.Second)
				times := r.since(start)
				if times[len(times)-1] < last-2*time.Second {
					t.Errorf("the last ring, after %v, was not answered: %v", last, times)
				}
			})
		})
	}
}

// Rings neither stop the interval nor are lost to it.
func TestRingsBetweenIntervals(t *testing.T) {
	r := &recorder{}
	inLoop(t, time.Minute, r, func(t *testing.T, bell *Doorbell) {
		start := time.Now()
		time.Sleep(30 * time.Second)
		bell.Ring()
		time.Sleep(10 * time.Minute)
		times := r.since(start)
		if times[0] < 30*time.Second+settle || times[0] > 30*time.Second+settle+spread {
			t.Errorf("the ring was answered after %v", times[0])
		}
		for i := 1; i < len(times); i++ {
			if gap := times[i] - times[i-1]; gap < 54*time.Second || gap > time.Minute {
				t.Errorf("%v after %v", gap, times[i-1])
			}
		}
		if len(times) < 9 {
			t.Errorf("refreshes after %v", times)
		}
	})
}

// The document may show the change of an event late: each event is answered again for
// more than a minute. A watch that opens is no event.
func TestEchoes(t *testing.T) {
	r := &recorder{}
	inLoop(t, 0, r, func(t *testing.T, bell *Doorbell) {
		time.Sleep(time.Hour)
		start := time.Now()
		bell.RingEvent()
		const later = 15 * time.Second // so that no two refreshes are less than spacing apart, whatever is random
		time.Sleep(later)
		bell.RingEvent()
		bell.Ring()
		time.Sleep(time.Hour)
		want := []time.Duration{settle, settle + later}
		for _, echo := range []time.Duration{2 * time.Second, 8 * time.Second, 20 * time.Second, 70 * time.Second} {
			want = append(want, settle+echo, settle+later+echo)
		}
		slices.Sort(want)
		wantTimes(t, r.since(start), want...)
	})
}

// A ring that is of no event takes nothing from the echoes of one, whenever it comes.
func TestEchoesBesideRings(t *testing.T) {
	for _, ring := range []time.Duration{4 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute} {
		t.Run(ring.String(), func(t *testing.T) {
			r := &recorder{}
			inLoop(t, 0, r, func(t *testing.T, bell *Doorbell) {
				time.Sleep(time.Hour)
				start := time.Now()
				bell.RingEvent()
				answered := awaitRefresh(r)
				time.Sleep(ring)
				bell.Ring()
				time.Sleep(time.Hour)
				want := []time.Duration{settle, answered + ring + settle}
				for _, echo := range []time.Duration{2 * time.Second, 8 * time.Second, 20 * time.Second, 70 * time.Second} {
					want = append(want, answered+echo)
				}
				slices.Sort(want)
				wantTimes(t, r.since(start), want...)
			})
		})
	}
}

// Echoes that come due while a refresh is under way are one, and it leaves the
// server a pause.
func TestEchoesOfSlowServer(t *testing.T) {
	r := &recorder{takes: 10 * time.Second}
	inLoop(t, 0, r, func(t *testing.T, bell *Doorbell) {
		time.Sleep(time.Hour)
		start := time.Now()
		bell.RingEvent()
		time.Sleep(time.Hour)
		second := settle + 10*time.Second + settle
		wantTimes(t, r.since(start), settle, second, second+10*time.Second+settle, settle+70*time.Second)
	})
}

// Run does not wait for a refresh that does not return though ctx has ended.
func TestRunEndsBesideSlowRefresh(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Minute, cancel)
		start := time.Now()
		Run(ctx, Options{Interval: time.Second}, func(context.Context) error { time.Sleep(time.Hour); return nil })
		if took := time.Since(start); took > time.Minute+3*time.Second {
			t.Errorf("returned %v after ctx ended", took-time.Minute)
		}
		time.Sleep(time.Hour) // the refresh ends by itself
	})
}

// If the interval is shorter, there are no echoes.
func TestEchoesWithInterval(t *testing.T) {
	r := &recorder{}
	inLoop(t, time.Second, r, func(t *testing.T, bell *Doorbell) {
		start := time.Now()
		bell.RingEvent()
		time.Sleep(2 * time.Minute)
		times := r.since(start)
		for i := 2; i < len(times); i++ {
			if gap := times[i] - times[i-1]; gap < 900*time.Millisecond || gap > time.Second {
				t.Errorf("%v after %v", gap, times[i-1])
			}
		}
	})
}

// With no interval a failure is tried again all the same.
func TestFailureWithoutInterval(t *testing.T) {
	r := &recorder{fails: true}
	inLoop(t, 0, r, func(t *testing.T, _ *Doorbell) {
		time.Sleep(10 * time.Minute)
		if n := r.count(); n < 9 || n > 12 {
			t.Errorf("%d tries in 10 minutes", n)
		}
		r.fail(false)
		time.Sleep(3 * time.Minute)
		n := r.count()
		time.Sleep(24 * time.Hour)
		if r.count() != n {
			t.Errorf("%d refreshes that nobody asked for", r.count()-n)
		}
	})
}

func TestRunEndsWhileWaiting(t *testing.T) {
	for name, during := range map[string]time.Duration{"refresh": 0, "interval": 2 * time.Second, "settling": 5100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			synctest.Test(t, func(t *testing.T) {
				r := &recorder{takes: time.Second}
				ctx, cancel := context.WithCancel(context.Background())
				bell, ended := NewDoorbell(), make(chan struct{})
				go func() {
					defer close(ended)
					loop(ctx, time.Minute, bell, r.refresh)
				}()
				time.AfterFunc(5*time.Second, bell.Ring)
				time.Sleep(during)
				start := time.Now()
				cancel()
				<-ended
				if took := time.Since(start); took > 0 {
					t.Errorf("took %v to end", took)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

func TestRunWithoutOptionsOnlyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		start := time.Now()
		Run(ctx, Options{}, r.refresh)
		if took := time.Since(start); took != time.Hour || r.count() != 0 {
			t.Errorf("%d refreshes in %v", r.count(), took)
		}
	})
}

// An interval, or a watcher, is enough to refresh.
func TestRunWithOneOption(t *testing.T) {
	for name, watches := range map[string]bool{"an interval": false, "a watcher": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				options := Options{Interval: time.Minute}
				if watches {
					options = Options{Watchers: []*Watcher{watcherOf(t, &watchAPI{watches: []answer{{}}}, logr.Discard)}}
				}
				r := &recorder{}
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				Run(ctx, options, r.refresh)
				if r.count() == 0 {
					t.Error("no refresh")
				}
			})
		})
	}
}

func TestRingNeverBlocks(t *testing.T) {
	bell := NewDoorbell()
	for range 1000 {
		bell.Ring()
	}
	bell.drain()
	select {
	case <-bell.rung:
		t.Error("rings pile up")
	default:
	}
	bell.drain()
}
