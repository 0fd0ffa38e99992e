// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package refresh

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

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

// With no interval a failure is tried again all the same.
func TestFailureWithoutInterval(t *testing.T) {
	r := &recorder{fails: true}
	inLoop(t, forever, r, func(t *testing.T, _ *Doorbell) {
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

// Without an interval and a watcher, Run only waits.
func TestRunRefreshesOnlyIfAsked(t *testing.T) {
	for name, options := range map[string]func() Options{
		"nothing":     func() Options { return Options{} },
		"an interval": func() Options { return Options{Interval: time.Minute} },
		"a watcher": func() Options {
			return Options{Watchers: []*Watcher{watcherOf(t, &watchAPI{watches: []answer{{}}}, unlogged)}}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, start := &recorder{}, time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			Run(ctx, options(), r.refresh)
			if took := time.Since(start); took != time.Hour || (r.count() == 0) != (name == "nothing") {
				t.Errorf("%s: %d refreshes in %v", name, r.count(), took)
			}
		})
	}
}
