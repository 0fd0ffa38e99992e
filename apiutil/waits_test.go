// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
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

// A wait asks by itself, every 30 s in the end, for as long as it takes and no longer.
func TestWaitForKindsPolls(t *testing.T) {
	for _, after := range []time.Duration{500 * time.Millisecond, 10 * time.Second, 3 * time.Hour} {
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

// A subscriber keeps what it is sent.
type subscriber struct {
	changes <-chan []apiutil.APIChange
	cancel  context.CancelFunc
	kinds   map[schema.GroupVersionKind]string // the mappings of what is served, as text
}

func subscribe(m *apiutil.DynamicRESTMapper) *subscriber {
	ctx, cancel := context.WithCancel(context.Background())
	return &subscriber{changes: m.Subscribe(ctx), cancel: cancel, kinds: map[schema.GroupVersionKind]string{}}
}

// take returns what has been sent by now as text, a line each; nil if nothing has been.
func (s *subscriber) take(t *testing.T) []string {
	t.Helper()
	synctest.Wait()
	select {
	case batch, open := <-s.changes:
		if !open {
			t.Error("the channel is closed")
		}
		return s.apply(t, batch)
	default:
		return nil
	}
}

// apply takes over a batch, which must be a difference to what was sent before.
func (s *subscriber) apply(t *testing.T, batch []apiutil.APIChange) []string {
	t.Helper()
	if len(batch) == 0 {
		t.Error("an empty batch")
	}
	var lines []string
	removing := true
	for _, change := range batch {
		gvk, text := change.Mapping.GroupVersionKind, mappingText(&change.Mapping)
		before, known := s.kinds[gvk]
		switch change.Type {
		case apiutil.APIAdded, apiutil.APIChanged:
			if removing = false; known != (change.Type == apiutil.APIChanged) {
				t.Errorf("%s of %s, which was %q", change.Type, gvk, before)
			}
			s.kinds[gvk] = text
		case apiutil.APIRemoved:
			if !known || !removing || text != before {
				t.Errorf("removal of %q, which was %q; or after an addition", text, before)
			}
			delete(s.kinds, gvk)
		default:
			t.Errorf("a change of type %q", change.Type)
		}
		lines = append(lines, fmt.Sprintf("%s %s", change.Type, text))
	}
	return lines
}

func (s *subscriber) want(t *testing.T, what string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, s.take(t)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
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

// The channel is closed when the context ends, whatever goes on.
func TestSubscriptionEndsWithItsContext(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		pending := subscribe(m) // is never received from
		synctest.Wait()
		pending.cancel()
		synctest.Wait()
		for range pending.changes {
			t.Error("sent after the end")
		}
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		for range m.Subscribe(ended) {
			t.Error("sent after the end")
		}
		server.SetLatency(time.Second)
		reading := subscribe(m)
		synctest.Wait()
		reading.close(t)
		time.Sleep(time.Minute)
	})
}

// What is sent belongs to the receiver, verbs included.
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
			t.Errorf("at first: %s; want %s", got, want)
		}
		spoiler.close(t)
		other.close(t)
	})
}
