// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package reload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// tower is flights that take a second each and are logged.
type tower struct {
	ticks atomic.Uint64
	*flights
	mu      sync.Mutex // of what follows
	started []snapshot.Read
	flying  map[snapshot.Read]int
}

func newTower(t *testing.T) *tower {
	tw := &tower{flying: map[snapshot.Read]int{}}
	count := func(r snapshot.Read, by int) int {
		tw.mu.Lock()
		defer tw.mu.Unlock()
		if by > 0 {
			tw.started = append(tw.started, r)
		}
		if tw.flying[r] += by; tw.flying[r] > 1 {
			t.Errorf("two flights of %v", r)
		}
		return len(tw.started)
	}
	tw.flights = &flights{perform: func(f *flight) {
		number := count(f.read, 1)
		select {
		case <-time.After(time.Second):
			f.outcome.Err = fmt.Errorf("flight %d", number)
		case <-f.ctx.Done():
			f.outcome.Err = f.ctx.Err()
		}
		count(f.read, -1)
	}, tick: func() snapshot.Tick { return snapshot.Tick(tw.ticks.Add(1)) }}
	return tw
}

// ask asks for a read in the background and reports how long that took.
func (tw *tower) ask(r snapshot.Read) <-chan time.Duration {
	took, start := make(chan time.Duration, 1), time.Now()
	go func() {
		_, _ = tw.do(context.Background(), r, never, false)
		took <- time.Since(start)
	}()
	synctest.Wait()
	return took
}

func version(group, name string) snapshot.Read {
	return snapshot.Read{Part: snapshot.PartVersion, Group: group, Version: name}
}

// All callers that come before a flight starts share it. All that come after its start
// share the next one.
func TestFlightsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := newTower(t)
		var wg sync.WaitGroup
		join := func(want string) {
			for range 100 {
				wg.Go(func() {
					if f, err := tw.do(context.Background(), version("a", "v1"), never, false); err != nil || f.outcome.Err.Error() != want {
						t.Errorf("%v, want %s", err, want)
					}
				})
			}
			synctest.Wait()
		}
		wg.Go(func() { _, _ = tw.do(context.Background(), version("a", "v1"), never, false) })
		synctest.Wait()
		join("flight 2")
		time.Sleep(1500 * time.Millisecond)
		join("flight 3")
		wg.Wait()
		synctest.Wait()
		if len(tw.started) != 3 || tw.running != nil {
			t.Errorf("%d flights, %d still running or waiting", len(tw.started), len(tw.running))
		}
	})
}

// A waiter leaves when its own context ends, with the cause of that. The flight goes on
// for the others; a flight that has started goes on even for nobody.
func TestWaiterLeavesWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := newTower(t)
		reason := errors.New("changed its mind")
		ctx, cancel := context.WithCancelCause(context.Background())
		var wg sync.WaitGroup
		leave := func(r snapshot.Read) {
			wg.Go(func() {
				if _, err := tw.do(ctx, r, never, false); !errors.Is(err, reason) {
					t.Errorf("%v: %v", r, err)
				}
			})
			synctest.Wait()
		}
		under, shared := version("a", "v1"), version("a", "v2")
		leave(under)
		leave(under) // the next flight, which nobody will wait for
		other := tw.ask(shared)
		leave(shared)
		second := tw.ask(shared)
		time.Sleep(time.Millisecond)
		cancel(reason)
		wg.Wait()
		if first, last := <-other, <-second; first != time.Second || last != 2*time.Second {
			t.Errorf("the others waited %v and %v", first, last)
		}
		synctest.Wait()
		if want := []snapshot.Read{under, shared, shared}; !slices.Equal(tw.started, want) || tw.running != nil {
			t.Errorf("flown %v, %d still running or waiting", tw.started, len(tw.running))
		}
	})
}

// A caller who abandons a flight ends one that nobody else waits for, and returns when it has
// ended. One that others wait for goes on. Nobody joins one that is abandoned: its transport
// may take a while to stop, and the end of another caller's context is no answer.
func TestAbandonedFlightEnds(t *testing.T) {
	for name, test := range map[string]struct {
		asked  time.Duration // when another caller asks
		answer string
		ends   time.Duration // when the one who abandons it gets its error
	}{
		"alone":  {550 * time.Millisecond, "flight 2", 600 * time.Millisecond},
		"shared": {0, "flight 1", 500 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			tw := newTower(t)
			perform := tw.perform
			tw.perform = func(f *flight) {
				perform(f)
				time.Sleep(100 * time.Millisecond) // also if it was cancelled
			}
			ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
			defer cancel()
			start := time.Now()
			go func() {
				_, err := tw.do(ctx, version("a", "v1"), never, true)
				if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != test.ends {
					t.Errorf("%s: %v after %v", name, err, took)
				}
			}()
			time.Sleep(test.asked)
			synctest.Wait()
			if f, err := tw.do(context.Background(), version("a", "v1"), 0, false); err != nil || f.outcome.Err.Error() != test.answer {
				t.Errorf("%s: %v; want %s", name, f, test.answer)
			}
			synctest.Wait()
		})
	}
}
