// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A refresh that is abandoned in the middle proves nothing about what it has not read.
func TestStoppedRefreshFailsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Legacy())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute})
		readAll(t, m)
		server.SetLatency(time.Second)
		stop := startMapper(t, m)
		time.Sleep(2500 * time.Millisecond)
		stop()
		if failed := m.Status().FailedGroupVersions; len(failed) > 0 {
			t.Errorf("failed: %v", failed)
		}
	})
}

func TestStartTwice(t *testing.T) {
	for name, opts := range map[string]apiutil.DynamicRESTMapperOptions{"idle": {}, "interval": {RefreshInterval: time.Minute}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				m := newMapper(t, newServer(fakeapi.Aggregated()), opts)
				stop := startMapper(t, m)
				synctest.Wait()
				if err := m.Start(context.Background()); err == nil {
					t.Error("Start is not told that the mapper runs already")
				}
				stop()
				if err := m.Start(context.Background()); err == nil {
					t.Error("Start is not told that the mapper has run")
				}
			})
		})
	}
}

func TestStartWithoutOptionsWaits(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		start := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		if err := m.Start(ctx); err != nil || time.Since(start) != time.Hour {
			t.Errorf("Start returned %v after %v", err, time.Since(start))
		}
		wantRequests(t, server, "Start without options")
		if m.NeedLeaderElection() {
			t.Error("Start would wait for leader election")
		}
	})
}

func TestStartWithEndedContext(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute})
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := m.Start(ctx); err != nil {
			t.Error(err)
		}
		wantRequests(t, server, "Start after the end")
	})
}

// When its context ends, Start abandons its own request at once.
func TestStartEndsInRequest(t *testing.T) {
	for name, fault := range map[string]fakeapi.Fault{"timeout": fakeapi.Timeout(), "slow drip": fakeapi.SlowDrip(time.Second)} {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute})
				server.SetFault(fakeapi.All(), fault)
				stop := startMapper(t, m)
				time.Sleep(10 * time.Second)
				if len(server.Requests()) == 0 {
					t.Error("no request is under way")
				}
				start := time.Now()
				stop()
				if took := time.Since(start); took > 0 {
					t.Errorf("Start returned %v after its context ended", took)
				}
				status := m.Status()
				if status.ConsecutiveFailures != 0 || status.LastError != nil {
					t.Errorf("a request that was given up counts as a failure: %+v", status)
				}
			})
		})
	}
}

// It does not wait for the request of a lookup either, which goes on.
func TestStartEndsWhileLookupReads(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute})
		server.SetLatency(10 * time.Second)
		found := make(chan error)
		go func() { found <- lookUp(m, fooKind) }()
		synctest.Wait()
		stop := startMapper(t, m)
		time.Sleep(time.Second)
		start := time.Now()
		stop()
		if took := time.Since(start); took > 0 {
			t.Errorf("Start returned %v after its context ended", took)
		}
		if err := <-found; err != nil {
			t.Errorf("the lookup: %v", err)
		}
	})
}
