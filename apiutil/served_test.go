// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/apiutil/served"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// What List returns belongs to the caller, and its error says which version could not be read.
func TestServedList(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		server.SetFault(fakeapi.At("/apis/other.example.com/v1"), fakeapi.Status(503, 0))
		_ = m.Refresh(t.Context(), otherKind.Group)
		for range 2 {
			all, err := served.List(t.Context(), m, "Node", "foo")
			if len(all.Kinds) != 2 || all.Generation != m.Generation() || !slices.Contains(all.Kinds[0].Verbs, "watch") {
				t.Fatalf("%+v; want Node, which can be watched, and Foo, of generation %d", all, m.Generation())
			}
			all.Kinds[0].Verbs[0], all.Kinds[0].Verbs[7] = "mine", "mine"
			var failed *apiutil.ErrResourceDiscoveryFailed
			if !errors.As(err, &failed) || (*failed)[otherKind.GroupVersion()] == nil {
				t.Errorf("error %v; want the version that fails", err)
			}
		}
	})
}

// The hint is there for an error in an error, and on the debug page; a lookup's own error is upstream's.
func TestNoMatchHint(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m := newMapper(t, newServer(fakeapi.Aggregated()), apiutil.DynamicRESTMapperOptions{})
		page, handler := httptest.NewRecorder(), m.DebugHandler()
		readAll(t, m)
		err := fmt.Errorf("wrapped: %w", lookUp(m, schema.GroupVersionKind{Group: "example.com", Version: "v3", Kind: "Foo"}))
		time.Sleep(time.Second)
		handler.ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/", nil))
		const text, hint = `wrapped: no matches for kind "Foo" in version "example.com/v3"`, "Foo: example.com/v1"
		if got := served.Hint(m, err); err.Error() != text || got != hint || served.Hint(m, errors.New("other")) != "" || !strings.Contains(page.Body.String(), hint) {
			t.Errorf("error %q, want %q; hint %q, want %q, here and on the debug page, and none for another error:\n%s", err, text, got, hint, page.Body)
		}
	})
}

// A run that returns nil by itself is logged, also if the Logger is not an option, but in the context. A
// panic reaches the caller.
func TestRunWhileEndsByItself(t *testing.T) {
	want := 1
	if strings.HasPrefix(reflect.TypeFor[apiutil.DynamicRESTMapper]().PkgPath(), "sigs.k8s.io/") {
		want = 0 // in the fork a mapper without one logs to ctrl.Log
	}
	inBubble(t, func(t *testing.T) {
		log, logger := newTestLog()
		m := newMapper(t, newServer(fakeapi.Aggregated()), apiutil.DynamicRESTMapperOptions{})
		_ = served.RunWhile(logr.NewContext(context.Background(), logger), m, func(context.Context) error { return nil }, fooKind)
		if lines := log.containing("RunWhile has ended"); len(lines) != want {
			t.Errorf("logged %q, want %d lines", lines, want)
		}
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if err := served.RunWhile(ended, m, func(context.Context) error { return errors.New("called") }, fooKind); err != nil {
			t.Errorf("it returns %v, want nil and no call: its context has ended before", err)
		}
		defer func() {
			if recover() != "from run" {
				t.Error("the panic did not reach the caller")
			}
		}()
		_ = served.RunWhile(context.Background(), m, func(context.Context) error { panic("from run") }, fooKind)
	})
}

// A controller is what RunWhile runs.
type controller struct {
	begun, ended atomic.Int32
	lingers      atomic.Int64          // how long after it was cancelled
	ends         atomic.Pointer[error] // with what, when it was cancelled
	quits        chan error            // it ends by itself
	returned     chan error            // what RunWhile has returned
	cancel       context.CancelFunc
}

var errRun = errors.New("failing")

// runResults are what it returns.
var runResults = map[string]error{
	"nil": nil, "failing": errRun, "canceled": context.Canceled, "both": fmt.Errorf("stopping: %w", errors.Join(context.Canceled, errRun)),
}

func runController(t *testing.T, m *apiutil.DynamicRESTMapper, gvks []schema.GroupVersionKind) *controller {
	ctx, cancel := context.WithCancel(context.Background())
	c := &controller{quits: make(chan error, 1), returned: make(chan error, 1), cancel: cancel}
	c.ends.Store(new(error))
	go func() {
		c.returned <- served.RunWhile(ctx, m, func(ctx context.Context) error {
			if c.begun.Add(1)-c.ended.Load() > 1 {
				t.Error("it runs twice at once")
			}
			defer c.ended.Add(1)
			select {
			case err := <-c.quits:
				return err
			case <-ctx.Done():
				time.Sleep(time.Duration(c.lingers.Load()))
				return *c.ends.Load()
			}
		}, gvks...)
	}()
	return c
}

type subscriber struct {
	changes <-chan []apiutil.APIChange
	cancel  context.CancelFunc
}

func subscribe(m *apiutil.DynamicRESTMapper) *subscriber {
	ctx, cancel := context.WithCancel(context.Background())
	return &subscriber{changes: m.Subscribe(ctx), cancel: cancel}
}

// take returns what has been sent by now as text, a line each; nil if nothing has been.
func (s *subscriber) take(t *testing.T) (lines []string) {
	t.Helper()
	synctest.Wait()
	var batch []apiutil.APIChange
	select {
	case batch = <-s.changes:
		if len(batch) == 0 {
			t.Error("an empty slice is sent, or the channel is closed")
		}
	default:
	}
	for _, change := range batch {
		line := fmt.Sprintf("%s %s", change.Type, mappingText(&change.Mapping))
		if verbs := strings.Join(change.Verbs, " "); verbs != "create delete deletecollection get list patch update watch" {
			line += ", to " + verbs
		}
		lines = append(lines, line)
	}
	return lines
}

// close ends the subscription and waits until the channel is closed.
func (s *subscriber) close(t *testing.T) {
	t.Helper()
	s.cancel()
	synctest.Wait()
	select {
	case batch, open := <-s.changes:
		if open {
			t.Errorf("%v was sent after the end", batch)
		}
	default:
		t.Error("the channel is still open")
	}
}

// What is sent belongs to the receiver, verbs included. Nothing is sent when the context has ended.
func TestSubscribersShareNothing(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		spoiler, other := subscribe(m), subscribe(m)
		spoiled := <-spoiler.changes
		want := fmt.Sprint(spoiled)
		for i := range spoiled {
			for j := range spoiled[i].Verbs {
				spoiled[i].Verbs[j] = "spoiled"
			}
			spoiled[i] = apiutil.APIChange{}
		}
		if got := fmt.Sprint(<-other.changes); got != want {
			t.Errorf("another one is sent %s; want %s", got, want)
		}
		spoiler.close(t)
		other.close(t)
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		for changes := range m.Subscribe(ended) {
			t.Errorf("sent after the end: %v", changes)
		}
	})
}

// A subscriber costs little while the server says the same, also one that has not taken what there is.
func TestSubscriberCostsLittleWhileNothingChanges(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := fakeapi.New(fakeapi.Typical(100, 1, 50)...)
		server.SetForms(fakeapi.Legacy())
		server.SetLatency(time.Millisecond)
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		s := subscribe(m)
		time.Sleep(time.Minute)
		for _, taken := range []bool{false, true} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if err := m.Refresh(context.Background()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 { // 5,000 kinds
				t.Errorf("a refresh allocates %d bytes, want 64 MiB at most; the slice is taken: %t", n, taken)
			}
			s.take(t)
		}
		s.cancel()
		synctest.Wait()
	})
}
