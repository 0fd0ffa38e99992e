// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/follow"
)

// followFoo returns a mapper that knows fooKind, as a client that follows it has it.
func followFoo(t *testing.T, server *fakeapi.Server) *follow.Mapper {
	t.Helper()
	m := follow.Of(newMapper(t, server, apiutil.DynamicRESTMapperOptions{MaxAge: -1}), false)
	if _, err := m.Mapping(fooKind); err != nil {
		t.Fatal(err)
	}
	server.TakeRequests()
	return m
}

// The result of a call is never older than the call: a call that arrives during a read
// waits for the next one. All calls that arrive share that next read.
func TestConfirmDuringRead(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := followFoo(t, server)
		server.SetLatency(time.Second)
		var all sync.WaitGroup
		confirm := func(want ...meta.RESTScopeName) {
			all.Go(func() {
				now, err := m.Confirm(context.Background(), fooKind, false)
				if err != nil || len(want) > 0 && now.Scope.Name() != want[0] {
					t.Errorf("%v, %v; want %s", now, err, want)
				}
			})
		}
		confirm()
		time.Sleep(900 * time.Millisecond)
		server.PutVersion(fooKind.Group, fakeVersion("v1", "Foo:cluster", "Bar"))
		for range 50 {
			confirm(meta.RESTScopeNameRoot)
		}
		all.Wait()
		if n := len(server.TakeRequests()); n > 2 {
			t.Errorf("%d requests for 51 calls", n)
		}
	})
}

// If discovery hangs, callers wait for 2 seconds, and those that come later not at all. One read
// is under way at a time. All get the same error, which says what hangs.
func TestConfirmBesideHangingDiscovery(t *testing.T) {
	const hangs = "example.com/v1 is not confirmed: a read of it has had no answer for 2s"
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := followFoo(t, server)
		server.SetFault(fakeapi.InGroup(fooKind.Group), fakeapi.Timeout())
		allAtOnce(20, func(int) {
			begun := time.Now()
			if now, err := m.Confirm(context.Background(), fooKind, false); err == nil || err.Error() != hangs {
				t.Errorf("%v, %v; want %q", now, err, hangs)
			}
			if took := time.Since(begun); took > 2*time.Second {
				t.Errorf("a contradiction waited %v", took)
			}
		})
		start := time.Now()
		for range 100 {
			if now, err := m.Confirm(context.Background(), fooKind, false); err == nil || err.Error() != hangs {
				t.Errorf("%v, %v; want %q", now, err, hangs)
			}
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("later contradictions waited %v", took)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := m.Confirm(ctx, fooKind, false); meta.IsNoMatchError(err) {
			t.Errorf("an outage is taken for an absence: %v", err)
		}
		time.Sleep(time.Minute) // for the requests to time out
		if n := len(server.TakeRequests()); n > 4 {
			t.Errorf("%d requests", n)
		}
	})
}

// The time for which a server owes an answer begins with the read that runs, and not with one
// that waits for it.
func TestConfirmOwedAnswer(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := followFoo(t, server)
		server.SetFault(fakeapi.InGroup(fooKind.Group), fakeapi.Timeout())
		for range 2 {
			go func() { _, _ = m.Confirm(context.Background(), fooKind, false) }()
			time.Sleep(1500 * time.Millisecond)
		}
		begun := time.Now()
		if _, err := m.Confirm(context.Background(), fooKind, false); err == nil || time.Since(begun) > 0 {
			t.Errorf("%v after %v; 3 s after the first", err, time.Since(begun))
		}
		time.Sleep(time.Minute) // for the requests to time out
	})
}
