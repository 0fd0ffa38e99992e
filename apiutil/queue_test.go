// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

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
		if len(q.calls) != mostQueued {
			t.Errorf("%d calls wait", len(q.calls))
		}
		close(slow)
		synctest.Wait()
		if len(made) != mostQueued+1 || made[0] != -1 || made[1] != 2*mostQueued || !slices.IsSorted(made) {
			t.Errorf("%d calls made, from %v to %v", len(made), made[:2], made[len(made)-1])
		}
		if q.running || q.calls != nil {
			t.Errorf("running %v, %d calls left", q.running, len(q.calls))
		}
	})
}
