// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// The document no longer has the kind, and the live read that should confirm that fails.
// The failure changes the snapshot, but that is no reason to read again at once.
func TestRunWhileServedDoubtIsPaced(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: 5 * time.Second})
		defer startMapper(t, m)()
		ctx, cancel := context.WithCancel(context.Background())
		canceled, returned := make(chan struct{}), make(chan error, 1)
		go func() {
			returned <- m.RunWhileServed(ctx, func(ctx context.Context) error {
				<-ctx.Done()
				close(canceled)
				return ctx.Err()
			}, fooKind)
		}()
		time.Sleep(10 * time.Second)

		server.SetLatency(10 * time.Millisecond)
		heal := server.SetFault(fakeapi.At("/apis/example.com/v1"), fakeapi.Status(503, 0))
		server.PutVersion("example.com", fakeVersion("v1", "Bar"))
		server.TakeRequests()
		time.Sleep(time.Minute)
		if n := len(server.TakeRequests()); n > 60 {
			t.Errorf("%d requests in a minute of doubt; want those of 12 refreshes and a few more", n)
		}
		heal()
		select {
		case <-canceled:
		case <-time.After(mostDoubt):
			t.Errorf("run goes on %v after the server can say that the kind has gone", mostDoubt)
		}
		cancel()
		if err := <-returned; err != nil {
			t.Error(err)
		}
	})
}

// Kinds of one version cost one request, as often as RunWhileServed asks.
func TestRunWhileServedAsksOnceAVersion(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		ctx, cancel := context.WithCancel(context.Background())
		returned := make(chan error, 1)
		go func() {
			returned <- m.RunWhileServed(ctx, func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			}, fooKind, barKind)
		}()
		time.Sleep(10 * time.Second)
		server.TakeRequests()
		time.Sleep(mostDoubt)
		if requests := server.TakeRequests(); len(requests) != 1 {
			t.Errorf("requests %v", requests)
		}
		cancel()
		if err := <-returned; err != nil {
			t.Error(err)
		}
	})
}

const mostDoubt = 31 * time.Second // as often as RunWhileServed asks in the end

// F9: a kind that goes is noticed just as soon if the group of another kind hangs.
func TestRunWhileServedBesideAKindThatHangs(t *testing.T) {
	besideAKindThatHangs(t, func(_ *fakeapi.Server, _ *apiutil.DynamicRESTMapper, c *controller) {
		time.Sleep(mostDoubt)
		c.want(t, 1, 1)
	})
}

// The same, if both seem to have gone.
func TestRunWhileServedBesideADoubtThatHangs(t *testing.T) {
	besideAKindThatHangs(t, func(server *fakeapi.Server, m *apiutil.DynamicRESTMapper, c *controller) {
		server.PutVersion(otherKind.Group, fakeVersion("v1", "Unlike"))
		if err := m.Refresh(context.Background()); err != nil {
			t.Error(err)
		}
		c.want(t, 1, 1)
	})
}

// besideAKindThatHangs runs a controller of two kinds: the group of one hangs, and the
// other has gone.
func besideAKindThatHangs(t *testing.T, test func(*fakeapi.Server, *apiutil.DynamicRESTMapper, *controller)) {
	t.Helper()
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		c := runController(m, otherKind, fooKind)
		server.SetFault(fakeapi.InGroup(otherKind.Group), fakeapi.Timeout())
		server.PutVersion(fooKind.Group, fakeVersion("v1", "Bar"))
		test(server, m, c)
		c.cancel()
		if err := <-c.returned; err != nil {
			t.Error(err)
		}
	})
}
