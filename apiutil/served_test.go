// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A controller is what RunWhileServed runs in these tests.
type controller struct {
	begun, now, ended atomic.Int32
	twice             atomic.Bool

	mu       sync.Mutex
	lingers  time.Duration // after it was cancelled
	result   error         // what it returns when it was cancelled
	fails    chan error    // makes it return by itself
	returned chan error    // what RunWhileServed has returned
	cancel   context.CancelFunc
}

func runController(m *apiutil.DynamicRESTMapper, gvks ...schema.GroupVersionKind) *controller {
	c := &controller{fails: make(chan error), returned: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	go func() { c.returned <- m.RunWhileServed(ctx, c.run, gvks...) }()
	synctest.Wait()
	return c
}

func (c *controller) run(ctx context.Context) error {
	c.begun.Add(1)
	if c.now.Add(1) > 1 {
		c.twice.Store(true)
	}
	defer c.ended.Add(1)
	defer c.now.Add(-1)
	select {
	case err := <-c.fails:
		return err
	case <-ctx.Done():
		c.mu.Lock()
		lingers, result := c.lingers, c.result
		c.mu.Unlock()
		time.Sleep(lingers)
		return result
	}
}

func (c *controller) behave(lingers time.Duration, result error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lingers, c.result = lingers, result
}

func (c *controller) want(t *testing.T, begun, ended int32) {
	t.Helper()
	synctest.Wait()
	if c.begun.Load() != begun || c.ended.Load() != ended {
		t.Errorf("begun %d times and ended %d times; want %d and %d", c.begun.Load(), c.ended.Load(), begun, ended)
	}
}

// wantReturn cancels, unless the call has returned by itself, and compares its result.
func (c *controller) wantReturn(t *testing.T, cancel bool, want error) {
	t.Helper()
	if cancel {
		c.cancel()
	}
	select {
	case err := <-c.returned:
		if !errors.Is(err, want) {
			t.Errorf("RunWhileServed returned %v; want %v", err, want)
		}
	case <-time.After(time.Hour):
		t.Error("RunWhileServed does not return")
		c.cancel()
		<-c.returned
	}
	if c.now.Load() != 0 {
		t.Error("RunWhileServed returned before what it runs")
	}
	if c.twice.Load() {
		t.Error("run twice at once")
	}
	c.cancel()
}

// On its own the mapper asks every 30 seconds, or a tenth more.
const noticed = 34 * time.Second

// RunWhileServed waits for run, however long that takes to end, and never calls it twice
// at once.
func TestRunWhileServedWaitsForRun(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		c := runController(m, fooKind)
		c.behave(10*time.Minute, nil)
		c.want(t, 1, 0)
		server.Remove(fooKind.Group)
		time.Sleep(noticed)
		serve(server, fooKind)
		time.Sleep(5 * time.Minute)
		c.want(t, 1, 0)
		time.Sleep(6 * time.Minute)
		c.want(t, 2, 1)
		start := time.Now()
		c.wantReturn(t, true, nil)
		if took := time.Since(start); took != 10*time.Minute {
			t.Errorf("RunWhileServed returned %v after its context ended", took)
		}
	})
}

func TestRunWhileServedReturnsErrors(t *testing.T) {
	failure := errors.New("failing")
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		for _, own := range []error{nil, failure, context.Canceled} {
			m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
			c := runController(m, fooKind)
			time.Sleep(time.Minute)
			c.fails <- own
			c.wantReturn(t, false, own)
			c.want(t, 1, 1)
		}

		// After it was cancelled, because a kind has gone.
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		c := runController(m, fooKind)
		c.behave(time.Second, context.Canceled)
		server.Remove(fooKind.Group)
		time.Sleep(noticed)
		serve(server, fooKind)
		time.Sleep(noticed)
		c.want(t, 2, 1)
		c.behave(time.Second, failure)
		server.Remove(fooKind.Group)
		c.wantReturn(t, false, failure)

		// Because everything ends.
		serve(server, fooKind)
		for _, result := range []error{nil, context.Canceled, failure} {
			c := runController(newMapper(t, server, apiutil.DynamicRESTMapperOptions{}), fooKind)
			c.behave(time.Second, result)
			time.Sleep(time.Minute)
			c.wantReturn(t, true, nil)
			c.want(t, 1, 1)
		}

		// Before it began.
		c = runController(newMapper(t, server, apiutil.DynamicRESTMapperOptions{}), newKind)
		time.Sleep(time.Minute)
		c.wantReturn(t, true, nil)
		c.want(t, 0, 0)
	})
}

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

// A run that returns nil by itself is logged once, with a Logger or without, and
// no other end is.
func TestRunWhileServedLogsSilentEnd(t *testing.T) {
	ended := func(context.Context) error { return nil }
	failed := func(context.Context) error { return errors.New("failed") }
	for name, test := range map[string]struct {
		option bool // the Logger is an option, and not in the context
		run    func(context.Context) error
		want   int
	}{
		"nil":                   {true, ended, 1},
		"nil, without a Logger": {false, ended, 1},
		"an error":              {true, failed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				var out bytes.Buffer
				logger := funcr.New(func(_, args string) { out.WriteString(args + "\n") }, funcr.Options{})
				ctx, opts := logr.NewContext(context.Background(), logger), apiutil.DynamicRESTMapperOptions{}
				if test.option {
					ctx, opts = context.Background(), apiutil.DynamicRESTMapperOptions{Logger: logger}
				}
				m := newMapper(t, server, opts)
				_ = m.RunWhileServed(ctx, test.run, fooKind) // what it returns is tested elsewhere
				if n := strings.Count(out.String(), "RunWhileServed has ended"); n != test.want {
					t.Errorf("logged %d times:\n%s", n, &out)
				}
			})
		})
	}
}

// That a kind has gone is noticed even if other APIs change all the time.
func TestRunWhileServedAmongChanges(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		c := runController(m, fooKind)
		stop := keepResetting(m, otherKind)
		time.Sleep(5 * time.Minute)
		c.want(t, 1, 0)
		server.Remove(fooKind.Group)
		time.Sleep(noticed)
		c.want(t, 1, 1)
		serve(server, fooKind)
		time.Sleep(noticed)
		c.want(t, 2, 1)
		stop()
		c.wantReturn(t, true, nil)
	})
}

// RunWhileServed in rare cases: see the names.
func TestRunWhileServedEdges(t *testing.T) {
	serve := func(t *testing.T, run func(*apiutil.DynamicRESTMapper, *fakeapi.Server, context.Context, context.CancelFunc)) {
		inBubble(t, func(t *testing.T) {
			server := newServer(fakeapi.Aggregated())
			m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Second})
			stop := startMapper(t, m)
			defer stop()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			run(m, server, ctx, cancel)
		})
	}
	until := func(result func(error) error) func(context.Context) error {
		return func(ctx context.Context) error { <-ctx.Done(); return result(ctx.Err()) }
	}
	t.Run("its own error beside the cancellation", func(t *testing.T) {
		serve(t, func(m *apiutil.DynamicRESTMapper, server *fakeapi.Server, ctx context.Context, _ context.CancelFunc) {
			own := errors.New("could not flush")
			time.AfterFunc(time.Minute, func() { server.Remove("example.com") })
			err := m.RunWhileServed(ctx, until(func(err error) error { return fmt.Errorf("stopping: %w", errors.Join(err, own)) }), fooKind)
			if !errors.Is(err, own) {
				t.Errorf("returned %v", err)
			}
		})
	})
	t.Run("ctx has ended", func(t *testing.T) {
		serve(t, func(m *apiutil.DynamicRESTMapper, _ *fakeapi.Server, ctx context.Context, cancel context.CancelFunc) {
			wantServed(t, m, fooKind)
			cancel()
			err := m.RunWhileServed(ctx, func(context.Context) error { return errors.New("it was run") }, fooKind)
			if err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("run panics", func(t *testing.T) {
		serve(t, func(m *apiutil.DynamicRESTMapper, _ *fakeapi.Server, ctx context.Context, _ context.CancelFunc) {
			defer func() {
				if recover() != "from run" {
					t.Error("the panic did not reach the caller")
				}
			}()
			_ = m.RunWhileServed(ctx, func(context.Context) error { panic("from run") }, fooKind)
		})
	})
}
