// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package refresh

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A watcher that runs again has nothing in common with what its last run gave up.
func TestWatcherRunsAgainBesideStuckOne(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	synctest.Test(t, func(t *testing.T) {
		api, free := &watchAPI{watches: []answer{{}}}, make(chan struct{})
		until := time.Now().Add(time.Minute)
		w := watcherOf(t, transport(func(req *http.Request) (*http.Response, error) {
			if time.Now().Before(until) {
				<-free
			}
			return api.RoundTrip(req)
		}), unlogged)
		run := func(d time.Duration) {
			ctx, cancel := context.WithTimeout(context.Background(), d)
			defer cancel()
			start := time.Now()
			Run(ctx, Options{Watchers: []*Watcher{w}}, func(context.Context) error { return nil })
			if took := time.Since(start) - d; took > time.Second {
				t.Errorf("returned %v after ctx ended", took)
			}
		}
		run(10 * time.Second)
		time.Sleep(time.Minute)
		time.AfterFunc(10*time.Second, func() {
			close(free)
			synctest.Wait()
			if !w.Watching() {
				t.Error("not watching, after what the first run gave up has ended")
			}
		})
		run(time.Minute)
	})
}
