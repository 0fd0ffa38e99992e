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
)

// A log of flights that take a second each. Only one is flown at a time, so it
// needs no lock of its own; the race detector tells if that is not so.
type flightLog struct {
	*flights
	flown    []string
	underway int
}

func newFlightLog(t *testing.T) *flightLog {
	log := &flightLog{}
	log.flights = newFlights(func(f *flight) {
		if log.underway++; log.underway != 1 {
			t.Errorf("%d flights at once", log.underway)
		}
		log.flown = append(log.flown, f.scope.version)
		time.Sleep(time.Second)
		log.underway--
		f.err = fmt.Errorf("flight %d", len(log.flown))
	}, nil)
	return log
}

func aVersion(name string) scope { return scope{kind: version, group: "example.com", version: name} }

// All who come before a flight starts share it; all who come after it has
// started share the next.
func TestFlightsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newFlightLog(t)
		var wg sync.WaitGroup
		join := func(want string) {
			for range 100 {
				wg.Go(func() {
					if _, err := log.do(context.Background(), aVersion("v1")); err.Error() != want {
						t.Errorf("got %v, want %s", err, want)
					}
				})
			}
			synctest.Wait()
		}
		wg.Go(func() { _, _ = log.do(context.Background(), aVersion("v1")) })
		synctest.Wait()
		join("flight 2")
		time.Sleep(1500 * time.Millisecond)
		join("flight 3")
		wg.Wait()
		if len(log.flown) != 3 || len(log.waiting) != 0 {
			t.Errorf("%d flights, %d still waiting", len(log.flown), len(log.waiting))
		}
	})
}

// Flights for different scopes take off in the order in which they were asked for.
func TestFlightsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newFlightLog(t)
		var wg sync.WaitGroup
		start := time.Now()
		for _, name := range []string{"v1", "v2", "v3", "v2", "v3"} {
			wg.Go(func() { _, _ = log.do(context.Background(), aVersion(name)) })
			synctest.Wait()
		}
		wg.Wait()
		if took := time.Since(start); took != 3*time.Second || !slices.Equal(log.flown, []string{"v1", "v2", "v3"}) {
			t.Errorf("flown %v in %v", log.flown, took)
		}
	})
}

// A waiter leaves when its own context ends, with the reason that it was given.
// The flight goes on for the others, and for nobody if it is under way.
func TestLeavers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newFlightLog(t)
		reason := errors.New("changed its mind")
		ctx, cancel := context.WithCancelCause(context.Background())
		var wg sync.WaitGroup
		leave := func(name string) {
			wg.Go(func() {
				if _, err := log.do(ctx, aVersion(name)); !errors.Is(err, reason) {
					t.Errorf("%s: %v", name, err)
				}
			})
			synctest.Wait()
		}
		leave("under way")
		leave("shared")
		wg.Go(func() {
			if _, err := log.do(context.Background(), aVersion("shared")); err.Error() != "flight 2" {
				t.Error(err)
			}
		})
		leave("abandoned")
		start := time.Now()
		cancel(reason)
		synctest.Wait()
		if took := time.Since(start); took != 0 {
			t.Errorf("left after %v", took)
		}
		wg.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		if !slices.Equal(log.flown, []string{"under way", "shared"}) || len(log.waiting) != 0 {
			t.Errorf("flown %v, %d still waiting", log.flown, len(log.waiting))
		}
	})
}

// Somebody may join a flight that all others have left, as long as it waits.
func TestJoinAfterOthersLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newFlightLog(t)
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = log.do(context.Background(), aVersion("v1")) })
		synctest.Wait()
		if _, err := log.do(ctx, aVersion("v2")); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if _, err := log.do(context.Background(), aVersion("v2")); err.Error() != "flight 2" {
			t.Error(err)
		}
		wg.Wait()
	})
}

// The report of a flight comes when its waiters have been let go and the next
// flight can start, so it may itself wait for a flight.
func TestReportMayFly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fs *flights
		reports := 0
		fs = newFlights(func(f *flight) {
			time.Sleep(time.Second)
			f.report = &Report{Reason: f.scope.version}
		}, func(r Report) {
			if reports++; r.Reason == "v1" {
				_, _ = fs.do(context.Background(), aVersion("v2"))
			}
		})
		_, _ = fs.do(context.Background(), aVersion("v1"))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if reports != 2 {
			t.Errorf("%d reports", reports)
		}
	})
}

// Reports are made in the order of the flights, however long one takes, and keep
// no flight waiting.
func TestReportsAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reports []string // written by one report at a time, or the race detector tells
		fs := newFlights(func(f *flight) {
			f.report = &Report{Reason: f.scope.version}
		}, func(r Report) {
			if r.Reason == "v1" {
				time.Sleep(time.Minute)
			}
			reports = append(reports, r.Reason)
		})
		start, last := time.Now(), (*flight)(nil)
		for _, name := range []string{"v1", "v2", "v3"} {
			last = fs.join(context.Background(), aVersion(name))
			<-last.done
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("flights waited %v for a report", took)
		}
		<-last.reported
		if !slices.Equal(reports, []string{"v1", "v2", "v3"}) {
			t.Errorf("reports in the order %q", reports)
		}
	})
}

// A group that does not answer keeps the others waiting for one flight, and not
// for all that are waiting for it.
func TestFlightsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newFlightLog(t)
		var wg sync.WaitGroup
		ask := func(s scope) {
			wg.Go(func() { _, _ = log.do(context.Background(), s) })
			synctest.Wait()
		}
		for _, name := range []string{"v1", "v2", "v3", "v4"} {
			ask(aVersion(name))
		}
		ask(scope{kind: version, group: "other.example.com", version: "other"})
		ask(scope{kind: bulk, version: "bulk"})
		ask(scope{kind: group, group: "other.example.com", version: "other's group"})
		wg.Wait()
		if want := []string{"v1", "other", "v2", "bulk", "v3", "other's group", "v4"}; !slices.Equal(log.flown, want) {
			t.Errorf("flown %q, want %q", log.flown, want)
		}
	})
}

// A refresh whose context ends while it waits gives up its place.
func TestRefreshGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newFlightLog(t)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() { _, _ = log.do(context.Background(), aVersion("v1")) }()
		synctest.Wait()
		ended := make(chan error, 1)
		go func() { ended <- (&Reloader{flights: log.flights}).Refresh(ctx) }()
		synctest.Wait()
		start := time.Now()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || time.Since(start) != 0 {
			t.Errorf("ended after %v with %v", time.Since(start), err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if len(log.flown) != 1 {
			t.Errorf("flown %q", log.flown)
		}
	})
}
