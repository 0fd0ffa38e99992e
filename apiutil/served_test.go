// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
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

// A waiting is a call of WaitForKinds under way.
type waiting struct {
	began  time.Time
	cancel context.CancelFunc
	done   chan struct{}
	err    error // once done is closed
	took   time.Duration
}

func waitFor(m *apiutil.DynamicRESTMapper, gvks ...schema.GroupVersionKind) *waiting {
	ctx, cancel := context.WithCancel(context.Background())
	w := &waiting{began: time.Now(), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.err = m.WaitForKinds(ctx, gvks...)
		w.took = time.Since(w.began)
	}()
	synctest.Wait()
	return w
}

func (w *waiting) over() bool {
	synctest.Wait()
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

func TestWaitForKindsEndsWithContext(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		server.SetLatency(2 * time.Second) // so that it ends in a request, too
		for _, d := range []time.Duration{time.Second, 3*time.Second + time.Millisecond, time.Minute} {
			start := time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), d)
			err := m.WaitForKinds(ctx, newKind, otherKind)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), newKind.Kind) || strings.Contains(err.Error(), "failed") {
				t.Errorf("%v; want the kind and the end of the context, and no failure: the server answers", err)
			}
			if took := time.Since(start); took != d {
				t.Errorf("returned after %v, its context ended after %v", took, d)
			}
		}
		w := waitFor(m, newKind)
		w.cancel()
		if <-w.done; !errors.Is(w.err, context.Canceled) {
			t.Errorf("%v", w.err)
		}
		cause := errors.New("the reason")
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(cause)
		if err := m.WaitForKinds(ctx, newKind); !errors.Is(err, cause) {
			t.Errorf("%v; want the cause of the context's end", err)
		}
		time.Sleep(time.Minute)
	})
}

// The error names why a kind could not be found, even if only one version failed.
func TestWaitForKindsSaysWhatFailed(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		serve(server, newKind)
		path := "/apis/" + newKind.Group + "/" + newKind.Version
		server.SetFault(fakeapi.At(path), fakeapi.Status(503, 0))
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		missing := newKind
		missing.Kind = "Absent"
		if err := m.WaitForKinds(ctx, missing); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "503") {
			t.Errorf("%v", err)
		}
	})
}

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

// A run that returns nil by itself is logged once, with a Logger or without, and
// no other end is.
func TestRunWhileServedLogsSilentEnd(t *testing.T) {
	ended := func(context.Context) error { return nil }
	failed := func(context.Context) error { return errors.New("failed") }
	withoutLogger := 1
	if strings.HasPrefix(reflect.TypeFor[apiutil.DynamicRESTMapper]().PkgPath(), "sigs.k8s.io/") {
		withoutLogger = 0 // in the fork a mapper without one logs to ctrl.Log
	}
	for name, test := range map[string]struct {
		option bool // the Logger is an option, and not in the context
		run    func(context.Context) error
		want   int
	}{
		"nil":                   {true, ended, 1},
		"nil, without a Logger": {false, ended, withoutLogger},
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
