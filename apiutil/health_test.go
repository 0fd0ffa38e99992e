// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Health has two sorts of reads, the document and live ones. Each is ended by its own
// success only, and an answer to a read that began earlier is no news, whenever it comes.
func TestEachSortOfReadHasItsOwnHealth(t *testing.T) {
	const document, live = snapshot.PartDocument, snapshot.PartVersion
	answered, refused := errors.New("503"), &net.OpError{Op: "dial", Err: errors.New("refused")}
	limited := fmt.Errorf("%w: limiter", discovery.ErrNotSent)
	type read struct {
		part  snapshot.Part
		err   error
		wait  time.Duration
		began snapshot.Tick // 0: after the one before
	}
	for name, test := range map[string]struct {
		reads []read
		want  string // failures in a row of the document and of live reads, and for how long
	}{
		"nothing was read":             {nil, "0, 0"},
		"a success":                    {[]read{{document, nil, 1, 0}}, "0, 0"},
		"the document fails":           {[]read{{document, answered, 1, 0}}, "1 for 0s, 0"},
		"a version fails":              {[]read{{live, answered, 1, 0}}, "0, 1 for 0s"},
		"a version, no connection":     {[]read{{live, refused, 1, 0}}, "0, 1 for 0s"},
		"in a row":                     {[]read{{document, answered, 1, 0}, {document, answered, time.Minute, 0}}, "2 for 1m0s, 0"},
		"a good version hides nothing": {[]read{{document, answered, 1, 0}, {live, nil, 1, 0}, {document, answered, time.Minute, 0}}, "2 for 1m0.000000001s, 0"},
		"a good document ends it":      {[]read{{document, answered, 1, 0}, {live, answered, 1, 0}, {document, nil, 1, 0}}, "0, 1 for 1ns"},
		"an hour apart":                {[]read{{document, answered, 1, 0}, {document, answered, time.Hour, 0}}, "1 for 0s, 0"},
		"a success between":            {[]read{{document, answered, 1, 0}, {document, nil, 1, 0}, {document, answered, 1, 0}}, "1 for 0s, 0"},
		"the program's own limiter":    {[]read{{document, limited, 1, 0}, {live, limited, 1, 0}}, "0, 0"},
		"a failure that is late":       {[]read{{live, nil, 1, 5}, {live, nil, 1, 3}, {live, answered, 1, 4}}, "0, 0"},
		"a failure after two answers":  {[]read{{live, nil, 1, 5}, {live, nil, 1, 3}, {live, answered, 1, 6}}, "0, 1 for 0s"},
	} {
		var h health
		now := time.Unix(1000, 0)
		for i, r := range test.reads {
			now = now.Add(r.wait)
			h = h.after(now, r.part, snapshot.Outcome{Tick: cmp.Or(r.began, snapshot.Tick(i+1)), Err: r.err}, 10*time.Minute)
		}
		text := func(r reads) string {
			if (r.err != nil) != (r.failures > 0) || r.failingSince.IsZero() != (r.failures == 0) {
				t.Errorf("%s: the error, the number and the time of failures contradict each other: %+v", name, r)
			}
			if r.failures == 0 {
				return "0"
			}
			return fmt.Sprintf("%d for %v", r.failures, now.Sub(r.failingSince))
		}
		if got := text(h.document) + ", " + text(h.live); got != test.want {
			t.Errorf("%s: failures of the document and of live reads: %s; want %s", name, got, test.want)
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
		if want := []int{-1, 2 * mostQueued}; len(made) != mostQueued+1 || !slices.Equal(made[:2], want) || !slices.IsSorted(made) {
			t.Errorf("%d calls were made; want the one under way and the latest %d, in their order", len(made), mostQueued)
		}
		if q.running || q.calls != nil {
			t.Errorf("afterwards: running %v, %d calls left", q.running, len(q.calls))
		}
	})
}
