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

func TestRunWhileServedReturns(t *testing.T) {
	failure := errors.New("failing")
	both := fmt.Errorf("stopping: %w", errors.Join(context.Canceled, failure))
	for _, test := range []struct {
		ends   string // why run ends: by itself, because the kind is gone, or because all ends
		result error  // of run
		again  bool   // run is called again when the kind is back
		want   error
	}{
		{ends: "itself"},
		{ends: "itself", result: failure, want: failure},
		{ends: "itself", result: context.Canceled, want: context.Canceled},
		{ends: "kind", again: true},
		{ends: "kind", result: context.Canceled, again: true},
		{ends: "kind", result: failure, want: failure},
		{ends: "kind", result: both, want: failure},
		{ends: "all"},
		{ends: "all", result: context.Canceled},
		{ends: "all", result: failure},
	} {
		t.Run(fmt.Sprint(test.ends, test.result), func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				c := runController(newMapper(t, server, apiutil.DynamicRESTMapperOptions{}), fooKind)
				c.behave(time.Second, test.result)
				time.Sleep(time.Minute)
				switch test.ends {
				case "itself":
					c.fails <- test.result
				case "kind":
					server.Remove(fooKind.Group)
					time.Sleep(noticed)
				}
				if test.again {
					serve(server, fooKind)
					time.Sleep(noticed)
					c.want(t, 2, 1)
				}
				c.wantReturn(t, test.ends == "all" || test.again, test.want)
				c.want(t, c.ended.Load(), c.begun.Load())
			})
		})
	}
}

// RunWhileServed returns nil if all ends before run has begun, and does not hide a panic.
func TestRunWhileServedWithoutRun(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m := newMapper(t, newServer(fakeapi.Aggregated()), apiutil.DynamicRESTMapperOptions{})
		c := runController(m, newKind)
		time.Sleep(time.Minute)
		c.wantReturn(t, true, nil)
		c.want(t, 0, 0)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		wantServed(t, m, fooKind)
		if err := m.RunWhileServed(ctx, func(context.Context) error { return errors.New("it was run") }, fooKind); err != nil {
			t.Error(err)
		}
		defer func() {
			if recover() != "from run" {
				t.Error("the panic did not reach the caller")
			}
		}()
		_ = m.RunWhileServed(context.Background(), func(context.Context) error { panic("from run") }, fooKind)
	})
}

// The document no longer has the kind, and the live read that should confirm that fails.
// The failure changes the snapshot, but that is no reason to read again at once.
func TestRunWhileServedDoubtIsPaced(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: 5 * time.Second})
		defer startMapper(t, m)()
		c := runController(m, fooKind)
		time.Sleep(10 * time.Second)
		server.SetLatency(10 * time.Millisecond)
		heal := server.SetFault(fakeapi.At("/apis/example.com/v1"), fakeapi.Status(503, 0))
		server.PutVersion("example.com", fakeVersion("v1", "Bar"))
		server.TakeRequests()
		time.Sleep(time.Minute)
		if n := len(server.TakeRequests()); n > 60 {
			t.Errorf("%d requests in a minute of doubt; want those of 12 refreshes and a few more", n)
		}
		c.want(t, 1, 0)
		heal()
		time.Sleep(noticed)
		c.want(t, 1, 1)
		c.wantReturn(t, true, nil)
	})
}

// Kinds of one version cost one request, as often as RunWhileServed asks. Other verbs are no
// reason to stop what runs: only its kind, scope and resource are.
func TestRunWhileServedAsksOnceAVersion(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		c := runController(m, fooKind, barKind)
		time.Sleep(10 * time.Second)
		server.TakeRequests()
		time.Sleep(noticed)
		wantRequests(t, server, "30 seconds", "/apis/example.com/v1 200")
		other := fakeVersion("v1", "Foo", "Bar")
		other.Resources[0].Verbs = []string{"delete", "get", "list", "watch"}
		server.PutVersion("example.com", other)
		if err := m.Refresh(context.Background()); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * noticed)
		c.want(t, 1, 0)
		c.wantReturn(t, true, nil)
	})
}

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
		changing := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
				m.ResetGroup(otherKind.Group)
				_ = lookUp(m, otherKind)
			}
		}
		changing(5 * time.Minute)
		c.want(t, 1, 0)
		server.Remove(fooKind.Group)
		changing(noticed)
		c.want(t, 1, 1)
		serve(server, fooKind)
		changing(noticed)
		c.want(t, 2, 1)
		c.wantReturn(t, true, nil)
	})
}
