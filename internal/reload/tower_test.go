// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package reload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// A tower is flights that take a while and are logged.
type tower struct {
	*flights
	takes func(snapshot.Read) time.Duration
	fails func(snapshot.Read) error // may be nil

	mu      sync.Mutex // of what follows
	started []string
	inLane  map[lane]int
	now     int // how many fly
	most    int // of those outside the document's lane, ever
}

// newTower makes flights that take a second each.
func newTower(t *testing.T) *tower {
	tw := &tower{inLane: map[lane]int{}, takes: func(snapshot.Read) time.Duration { return time.Second }}
	tw.flights = newFlights(func(f *flight) {
		number := tw.starts(t, f)
		select {
		case <-time.After(tw.takes(f.read)):
			f.outcome.Err = fmt.Errorf("flight %d", number)
		case <-f.ctx.Done():
			f.outcome.Err = f.ctx.Err()
		}
		if tw.fails != nil {
			f.outcome.Err = tw.fails(f.read)
		}
		tw.ends(f)
	})
	return tw
}

func (tw *tower) starts(t *testing.T, f *flight) int {
	tw.mu.Lock()
	defer tw.mu.Unlock()
	l := laneOf(f.read)
	if tw.inLane[l]++; tw.inLane[l] > 1 {
		t.Errorf("two flights in the lane %v", l)
	}
	if !l.document {
		tw.now++
		tw.most = max(tw.most, tw.now)
	}
	tw.started = append(tw.started, name(f.read))
	return len(tw.started)
}

func (tw *tower) ends(f *flight) {
	tw.mu.Lock()
	defer tw.mu.Unlock()
	l := laneOf(f.read)
	if tw.inLane[l]--; !l.document {
		tw.now--
	}
}

// ask asks for a read in the background and reports how long that took.
func (tw *tower) ask(r snapshot.Read) <-chan time.Duration {
	took, start := make(chan time.Duration, 1), time.Now()
	go func() {
		_, _ = tw.do(context.Background(), r)
		took <- time.Since(start)
	}()
	synctest.Wait()
	return took
}

func name(r snapshot.Read) string {
	if r.Part != snapshot.PartVersion {
		return r.Part.String()
	}
	return r.Group + "/" + r.Version
}

func version(group, name string) snapshot.Read {
	return snapshot.Read{Part: snapshot.PartVersion, Group: group, Version: name}
}

// inGroup is a read of the group of that number.
func inGroup(n int) snapshot.Read { return version(fmt.Sprintf("g%d", n), "v1") }

// unanswered is how a read ends that gets no answer.
func unanswered(snapshot.Read) error { return &discovery.Error{Err: errors.New("refused")} }

// wantTook waits for what ask asked for.
func wantTook(t *testing.T, what string, took <-chan time.Duration, want time.Duration) {
	t.Helper()
	if got := <-took; got != want {
		t.Errorf("%s took %v, not %v", what, got, want)
	}
}
