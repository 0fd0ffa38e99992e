// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// wantWithin waits for d and fails the test unless the call has returned nil by then.
func (w *waiting) wantWithin(t *testing.T, d time.Duration) {
	t.Helper()
	start := time.Now()
	select {
	case <-w.done:
	case <-time.After(d):
	}
	if !w.over() {
		t.Errorf("still waiting after %v", time.Since(start))
		w.cancel()
		<-w.done
	} else if w.err != nil {
		t.Errorf("WaitForKinds: %v", w.err)
	}
	w.cancel()
}

// wantStill fails the test if the call has returned.
func (w *waiting) wantStill(t *testing.T) {
	t.Helper()
	if w.over() {
		t.Errorf("returned after %v: %v", w.took, w.err)
	}
}

// A wait asks by itself, after a second at first and every 30 s in the end, and for as long
// as it takes.
func TestWaitForKindsPolls(t *testing.T) {
	for _, after := range []time.Duration{500 * time.Millisecond, 10 * time.Second, 10 * time.Minute, 3 * time.Hour} {
		t.Run(after.String(), func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
				known := schema.GroupVersionKind{Group: "example.com", Kind: "Later"} // without a version
				unknown := schema.GroupVersionKind{Group: "later.example.com", Kind: "Later"}
				w := waitFor(m, fooKind, newKind, known, unknown)
				time.Sleep(after)
				server.PutVersion(known.Group, fakeVersion("v2", "Later"))
				server.PutVersion(unknown.Group, fakeVersion("v1", "Later"))
				time.Sleep(40 * time.Second)
				w.wantStill(t)
				serve(server, newKind)
				w.wantWithin(t, noticed)
				if n, most := len(server.TakeRequests()), 80+9*int(after/(30*time.Second)); n > most {
					t.Errorf("%d requests", n)
				}
				time.Sleep(time.Hour)
				wantRequests(t, server, "afterwards")
			})
		})
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
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), newKind.Kind) {
				t.Errorf("%v", err)
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

// An event of the watch ends a wait at once. Until then the wait asks every 30 s: an
// APIService's resources come without an event.
func TestWaitForKindsWithWatch(t *testing.T) {
	watchInBubble(t, apiutil.DynamicRESTMapperOptions{}, nil,
		func(t *testing.T, server *fakeapi.Server, watched *watchServer, m *apiutil.DynamicRESTMapper) {
			w := waitFor(m, newKind)
			settled(t, server, m)
			time.Sleep(10 * time.Minute)
			if n := len(server.TakeRequests()); n < 10*2*2 || n > 10*3*3 { // 2 or 3 polls a minute of 2 or 3 requests
				t.Errorf("%d requests in 10 minutes", n)
			}
			serve(server, newKind)
			watched.lists[crdsPath].put("news")
			w.wantWithin(t, 1400*time.Millisecond)
		})
}

// keepResetting resets the group of a kind every half second, and looks it up.
func keepResetting(m *apiutil.DynamicRESTMapper, gvk schema.GroupVersionKind) (stop func()) {
	ended, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-ended:
				return
			case <-time.After(500 * time.Millisecond):
				m.ResetGroup(gvk.Group)
				_ = lookUp(m, gvk)
			}
		}
	}()
	return func() { close(ended); <-stopped }
}
