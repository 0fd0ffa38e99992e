// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package reload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// All callers that come before a flight starts share it. All that come after its start
// share the next one.
func TestFlightsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := newTower(t)
		var wg sync.WaitGroup
		join := func(want string) {
			for range 100 {
				wg.Go(func() {
					if f, err := tw.do(context.Background(), version("a", "v1")); err != nil || f.outcome.Err.Error() != want {
						t.Errorf("%v, want %s", err, want)
					}
				})
			}
			synctest.Wait()
		}
		wg.Go(func() { _, _ = tw.do(context.Background(), version("a", "v1")) })
		synctest.Wait()
		join("flight 2")
		time.Sleep(1500 * time.Millisecond)
		join("flight 3")
		wg.Wait()
		synctest.Wait()
		if len(tw.started) != 3 || len(tw.waiting) != 0 {
			t.Errorf("%d flights, %d still waiting", len(tw.started), len(tw.waiting))
		}
	})
}

// Flights of one group take off in the order in which they were asked for.
func TestFlightsOfAGroupQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := newTower(t)
		tw.ask(version("a", "v1"))
		tw.ask(version("a", "v2"))
		third := tw.ask(version("a", "v3"))
		tw.ask(version("a", "v2"))
		wantTook(t, "the third", third, 3*time.Second)
		if !slices.Equal(tw.started, []string{"a/v1", "a/v2", "a/v3"}) {
			t.Errorf("flown %q", tw.started)
		}
	})
}

// Flights of many groups are side by side, but no more than so many at once.
func TestGroupsFlySideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := newTower(t)
		tw.takes = func(snapshot.Read) time.Duration { return slowAfter / 2 }
		var all []<-chan time.Duration
		for n := range 2*mostQuick + 1 {
			all = append(all, tw.ask(inGroup(n)))
		}
		for n, took := range all {
			wantTook(t, fmt.Sprint("flight ", n), took, time.Duration(n/mostQuick+1)*slowAfter/2)
		}
		if tw.most != mostQuick {
			t.Errorf("%d at once", tw.most)
		}
	})
}

// The document is read whatever groups do, one read of it or of half of it at a time.
func TestTheDocumentIsAlwaysFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := newTower(t)
		for n := range 2 * mostQuick {
			tw.ask(inGroup(n))
		}
		whole := tw.ask(snapshot.Read{Part: snapshot.PartDocument})
		core, named := tw.ask(snapshot.Read{Part: snapshot.PartCore}), tw.ask(snapshot.Read{Part: snapshot.PartNamed})
		wantTook(t, "the document", whole, time.Second)
		wantTook(t, "its core half", core, 2*time.Second)
		wantTook(t, "its named half", named, 3*time.Second)
		time.Sleep(time.Minute)
	})
}

// A group that hangs gives its place to others after a while; so many may. When
// more do, others wait until one of them ends.
func TestHangingGroupsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := newTower(t)
		tw.takes = func(r snapshot.Read) time.Duration {
			if r.Version == "quick" {
				return slowAfter / 10
			}
			return 30 * time.Second
		}
		for n := range mostQuick {
			tw.ask(inGroup(n))
		}
		first := tw.ask(version("b", "quick"))
		wantTook(t, "the first of others", first, slowAfter+slowAfter/10)
		wantTook(t, "the second", tw.ask(version("b", "quick")), slowAfter/10)
		for n := range mostSlow {
			tw.ask(inGroup(mostQuick + n))
		}
		if took := <-tw.ask(version("b", "quick")); took < 20*time.Second || took > 31*time.Second {
			t.Errorf("with %d groups hanging, which is all that may, others waited %v", mostQuick+mostSlow, took)
		}
		if tw.most != mostQuick+mostSlow {
			t.Errorf("%d at once", tw.most)
		}
		time.Sleep(time.Minute)
	})
}

// A group that got no answer the last time counts as slow until it is answered again. It
// holds up no other group, from the first moment.
func TestSlowLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := newTower(t)
		tw.takes = func(snapshot.Read) time.Duration { return slowAfter / 2 }
		tw.fails = unanswered
		for n := range mostSlow + 1 {
			<-tw.ask(inGroup(n))
		}
		if !tw.hanging()[lane{group: "g0"}] || tw.hanging()[lane{group: "b"}] {
			t.Error("the group that got no answer does not hang, or one that nobody asked for does")
		}
		tw.takes = func(r snapshot.Read) time.Duration {
			if r.Group == "b" {
				return slowAfter / 10
			}
			return 30 * time.Second
		}
		tw.fails = func(snapshot.Read) error { return nil }
		var hanging []<-chan time.Duration
		for n := range mostSlow + 1 {
			hanging = append(hanging, tw.ask(inGroup(n)))
		}
		wantTook(t, "another group", tw.ask(version("b", "v1")), slowAfter/10)
		for n, took := range hanging {
			wantTook(t, fmt.Sprint("group ", n), took, time.Duration(n/mostSlow+1)*30*time.Second)
		}
		if tw.hanging()[lane{group: "g0"}] {
			t.Error("a group that has answered hangs")
		}
	})
}

// A waiter leaves when its own context ends, with the cause of that. The flight goes on
// for the others; a flight that has started goes on even for nobody.
func TestLeavers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := newTower(t)
		reason := errors.New("changed its mind")
		ctx, cancel := context.WithCancelCause(context.Background())
		var wg sync.WaitGroup
		leave := func(version snapshot.Read) {
			wg.Go(func() {
				if _, err := tw.do(ctx, version); !errors.Is(err, reason) {
					t.Errorf("%v: %v", version, err)
				}
			})
			synctest.Wait()
		}
		leave(version("a", "under-way"))
		leave(version("a", "shared"))
		shared := tw.ask(version("a", "shared"))
		leave(version("a", "abandoned"))
		start := time.Now()
		cancel(reason)
		wg.Wait()
		if took := time.Since(start); took != 0 {
			t.Errorf("left after %v", took)
		}
		wantTook(t, "the shared one", shared, 2*time.Second)
		time.Sleep(time.Second)
		synctest.Wait()
		if !slices.Equal(tw.started, []string{"a/under-way", "a/shared"}) || len(tw.waiting) != 0 {
			t.Errorf("flown %v, %d still waiting", tw.started, len(tw.waiting))
		}
	})
}

// Somebody may ask again for a read that all others have given up.
func TestJoinAfterOthersLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := newTower(t)
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		tw.ask(version("a", "v1"))
		if _, err := tw.do(ctx, version("a", "v2")); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if f, err := tw.do(context.Background(), version("a", "v2")); err != nil || f.outcome.Err.Error() != "flight 2" {
			t.Error(err)
		}
	})
}

// A caller whose context has ended starts no flight.
func TestEndedBeforeItBegan(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	tw := newTower(t)
	for name, do := range map[string]func(context.Context, snapshot.Read) (*flight, error){"do": tw.do, "doWhile": tw.doWhile} {
		if _, err := do(ctx, version("a", "v1")); !errors.Is(err, context.Canceled) || len(tw.started) > 0 {
			t.Errorf("%s: %v, flown %q", name, err, tw.started)
		}
	}
}

// doWhile ends a flight that nobody else waits for, and returns when it has ended.
// One that others wait for goes on.
func TestDoWhile(t *testing.T) {
	for name, shared := range map[string]bool{"alone": false, "shared": true} {
		synctest.Test(t, func(t *testing.T) {
			tw := newTower(t)
			ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
			defer cancel()
			tw.ask(version("a", "v1"))
			start := time.Now()
			ended := make(chan error, 1)
			go func() {
				_, err := tw.doWhile(ctx, version("a", "v2"))
				ended <- err
			}()
			synctest.Wait()
			var other <-chan time.Duration
			if shared {
				other = tw.ask(version("a", "v2"))
			}
			if err := <-ended; !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 1500*time.Millisecond {
				t.Errorf("%s: %v after %v", name, err, time.Since(start))
			}
			tw.mu.Lock()
			flying := tw.now
			tw.mu.Unlock()
			if (flying > 0) != shared {
				t.Errorf("%s: %d flights are under way", name, flying)
			}
			if shared {
				wantTook(t, "the other", other, 2*time.Second)
			}
			if f, err := tw.do(context.Background(), version("a", "v3")); err != nil || f.outcome.Err.Error() != "flight 3" {
				t.Errorf("%s: the group is blocked: %v", name, err)
			}
		})
	}
}

// A refresh whose context ends while it waits gives up its place.
func TestRefreshGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tw := newTower(t)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		tw.ask(snapshot.Read{Part: snapshot.PartDocument})
		ended := make(chan error, 1)
		go func() { ended <- (&Reloader{flights: tw.flights}).Refresh(ctx) }()
		synctest.Wait()
		start := time.Now()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || time.Since(start) != 0 {
			t.Errorf("ended after %v with %v", time.Since(start), err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if len(tw.started) != 1 {
			t.Errorf("flown %q", tw.started)
		}
	})
}
