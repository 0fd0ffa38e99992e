// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A read that began before the reset does not answer a lookup after it, even if
// it ends later.
func TestResetDuringRead(t *testing.T) {
	for name, reset := range lifeResets {
		t.Run(name, func(t *testing.T) {
			lifeBothModes(t, func(t *testing.T, server *fakeapi.Server) {
				m := newFakeMapper(t, server, apiutil.DynamicRESTMapperOptions{})
				lifeReadAll(t, m)
				server.SetLatency(time.Second)
				for _, read := range []func() error{
					func() error { return lifeAsk(m, lifeNew) },
					func() error { _, err := m.RESTMapping(lifeNew.GroupKind()); return err },
					func() error { absent := lifeFoo; absent.Kind = "Absent"; return lifeAsk(m, absent) },
					func() error { m.Reset(); return lifeAsk(m, lifeFoo) },
					func() error { m.ResetGroup(lifeFoo.Group); return lifeAsk(m, lifeFoo) },
				} {
					for during := 100 * time.Millisecond; during < 5*time.Second; during += 500 * time.Millisecond {
						done := make(chan error, 1)
						go func() { done <- read() }()
						time.Sleep(during)
						server.PutVersion("example.com", fakeVersion("v1", "Bar"))
						reset(m)
						lifeWantAbsent(t, m, lifeFoo)
						<-done
						server.PutVersion("example.com", fakeVersion("v1", "Foo", "Bar"))
						reset(m)
						lifeWantServed(t, m, lifeFoo)
					}
				}
			})
		})
	}
}

// Reset does not wait for the server.
func TestResetDoesNotWait(t *testing.T) {
	for name, reset := range lifeResets {
		t.Run(name, func(t *testing.T) {
			lifeBothModes(t, func(t *testing.T, server *fakeapi.Server) {
				m := newFakeMapper(t, server, apiutil.DynamicRESTMapperOptions{})
				lifeReadAll(t, m)
				server.SetFault(fakeapi.All(), fakeapi.Timeout())
				start := time.Now()
				reset(m)
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_, err := m.RESTMappingWithContext(ctx, lifeFoo.GroupKind(), "v1")
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				reset(m)
				if took := time.Since(start); took != time.Second {
					t.Errorf("took %v", took)
				}
				time.Sleep(time.Minute) // until the request has timed out
			})
		})
	}
}

// A refresh settles the resets before it.
func TestRefreshSettlesResets(t *testing.T) {
	lifeBubble(t, func(t *testing.T) {
		server := lifeServer(fakeapi.Aggregated())
		m := newFakeMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute})
		stop := lifeStart(t, m)
		defer stop()
		time.Sleep(time.Second)
		m.Reset()
		m.ResetGroup(lifeFoo.Group)
		server.Remove(lifeOther.Group)
		time.Sleep(70 * time.Second)
		server.TakeRequests()
		lifeWantServed(t, m, lifeFoo, lifeBar)
		lifeWantRequests(t, server, "hits after a refresh")
		lifeWantAbsent(t, m, lifeOther)
	})
}
