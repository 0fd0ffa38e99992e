// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

func TestStartRunsOnlyOnce(t *testing.T) {
	for _, opts := range []apiutil.DynamicRESTMapperOptions{{}, {RefreshInterval: time.Minute}} {
		eachServer(t, func(t *testing.T, server *fakeapi.Server) {
			m := newMapper(t, server, opts)
			stop := startMapper(t, m)
			synctest.Wait()
			if err := m.Start(context.Background()); err == nil || m.NeedLeaderElection() {
				t.Errorf("Start is not told that the mapper runs already, or waits for leader election: %v", err)
			}
			stop()
			if err := m.Start(context.Background()); err == nil {
				t.Error("Start is not told that the mapper has run")
			}
			ended, end := context.WithCancel(context.Background())
			end()
			server.TakeRequests()
			if err := newMapper(t, server, opts).Start(ended); err != nil {
				t.Errorf("Start with a context that has ended: %v", err)
			}
			wantRequests(t, server, "with a context that has ended")
		})
	}
}

// defaultMaxAge is the MaxAge of a mapper without options.
const defaultMaxAge = 30 * time.Second

// Hits all the time, from many goroutines, wait for nothing and refresh once each MaxAge.
func TestBusyMapperRefreshesOnceEachMaxAge(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		const ages = 10
		isOther := func(r fakeapi.Request) bool { return r.Path != "/apis" }
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		server.SetLatency(latency)
		server.TakeRequests()
		for start := time.Now(); time.Since(start) < ages*defaultMaxAge; time.Sleep(defaultMaxAge / 100) {
			if took := allAtOnce(8, func(int) { wantServed(t, m, fooKind) }); took > 0 {
				t.Errorf("hits took %v", took)
			}
		}
		if n := len(slices.DeleteFunc(server.TakeRequests(), isOther)); n < ages-2 || n > ages+1 {
			t.Errorf("%d refreshes in %d times MaxAge", n, ages)
		}
	})
}

// Start cancels its read however its context ends, and that is no failure of the server.
func TestStartUntilADeadline(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute})
		server.SetFault(fakeapi.All(), fakeapi.Timeout())
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := m.Start(ctx); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if status := m.Status(); status.ConsecutiveFailures > 0 {
			t.Errorf("%+v", status)
		}
	})
}
