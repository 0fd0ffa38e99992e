// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// An answer to a read that began earlier is no news, whenever it comes. A read that the program's own
// limiter did not send says nothing of the server.
func TestReadsThatSayNothingOfHealth(t *testing.T) {
	failed, limited := errors.New("503"), fmt.Errorf("%w: limiter", discovery.ErrNotSent)
	for _, part := range []snapshot.Part{snapshot.PartDocument, snapshot.PartVersion} {
		h := health{}
		for _, read := range []struct {
			snapshot.Outcome
			want int // failures afterwards
		}{
			{snapshot.Outcome{Tick: 5}, 0}, {snapshot.Outcome{Tick: 3}, 0}, // the one that began last has ended first
			{snapshot.Outcome{Tick: 4, Err: failed}, 0}, {snapshot.Outcome{Tick: 6, Err: limited}, 0},
			{snapshot.Outcome{Tick: 7, Err: failed}, 1}, {snapshot.Outcome{Tick: 8, Err: limited}, 1},
			{snapshot.Outcome{Tick: 9}, 0},
		} {
			h = h.after(time.Now(), part, read.Outcome, 10*time.Minute)
			if got := h.document.failures + h.live.failures; got != read.want || (h.document.err != nil || h.live.err != nil) != (got > 0) {
				t.Errorf("part %v, after a read that began at %d and ended with %v: %d failures; want %d", part, read.Tick, read.Err, got, read.want)
			}
		}
	}
}

// A call that panics, or ends its goroutine as t.FailNow does, ends none of those behind it,
// and a call may add one. A panic is reported.
func TestQueueSurvivesItsCalls(t *testing.T) {
	var told []any
	handlers := utilruntime.PanicHandlers
	utilruntime.PanicHandlers = []func(context.Context, any){func(_ context.Context, p any) { told = append(told, p) }}
	defer func() { utilruntime.PanicHandlers = handlers }()
	for name, call := range map[string]func(){"panic": func() { panic("out of order") }, "exit": runtime.Goexit} {
		synctest.Test(t, func(t *testing.T) {
			var q queue
			made := 0
			q.Add(call)
			q.Add(func() { q.Add(func() { made++ }) })
			synctest.Wait()
			q.Add(func() { made++ })
			synctest.Wait()
			if made != 2 || q.running {
				t.Errorf("%s: %d calls of 2 were made, running %v", name, made, q.running)
			}
		})
	}
	if len(told) != 1 || told[0] != "out of order" {
		t.Errorf("panics reported: %v, want one", told)
	}
}

// Calls are made in their order, one at a time, and Add waits for none. Only so many wait: the
// oldest are dropped, but not the one under way.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queue
		var made []int
		slow := make(chan struct{})
		q.Add(func() { <-slow; made = append(made, -1) })
		synctest.Wait()
		for i := range 3 * mostQueued {
			q.Add(func() { made = append(made, i) })
		}
		if q.Waiting() != mostQueued {
			t.Errorf("%d calls wait; want %d", q.Waiting(), mostQueued)
		}
		close(slow)
		synctest.Wait()
		if len(made) != mostQueued+1 || made[0] != -1 || made[1] != 2*mostQueued || !slices.IsSorted(made) {
			t.Errorf("%d calls were made; want the one under way and the latest %d, in their order", len(made), mostQueued)
		}
		if q.running || q.calls != nil {
			t.Errorf("afterwards: running %v, %d calls left", q.running, len(q.calls))
		}
	})
}
