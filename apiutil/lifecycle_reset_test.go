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
	for name, reset := range waysToReset {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
				readAll(t, m)
				server.SetLatency(time.Second)
				for _, read := range []func() error{
					func() error { return lookUp(m, newKind) },
					func() error { _, err := m.RESTMapping(newKind.GroupKind()); return err },
					func() error { absent := fooKind; absent.Kind = "Absent"; return lookUp(m, absent) },
					func() error { m.Reset(); return lookUp(m, fooKind) },
					func() error { m.ResetGroup(fooKind.Group); return lookUp(m, fooKind) },
				} {
					for during := 100 * time.Millisecond; during < 5*time.Second; during += 500 * time.Millisecond {
						done := make(chan error, 1)
						go func() { done <- read() }()
						time.Sleep(during)
						server.PutVersion("example.com", fakeVersion("v1", "Bar"))
						reset(m)
						wantAbsent(t, m, fooKind)
						<-done
						server.PutVersion("example.com", fakeVersion("v1", "Foo", "Bar"))
						reset(m)
						wantServed(t, m, fooKind)
					}
				}
			})
		})
	}
}

// Reset does not wait for the server.
func TestResetDoesNotWait(t *testing.T) {
	for name, reset := range waysToReset {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
				readAll(t, m)
				server.SetFault(fakeapi.All(), fakeapi.Timeout())
				start := time.Now()
				reset(m)
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_, err := m.RESTMappingWithContext(ctx, fooKind.GroupKind(), "v1")
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
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute})
		stop := startMapper(t, m)
		defer stop()
		time.Sleep(time.Second)
		m.Reset()
		m.ResetGroup(fooKind.Group)
		server.Remove(otherKind.Group)
		time.Sleep(70 * time.Second)
		server.TakeRequests()
		wantServed(t, m, fooKind, barKind)
		wantRequests(t, server, "hits after a refresh")
		wantAbsent(t, m, otherKind)
	})
}
