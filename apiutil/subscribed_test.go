// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

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
		if verbs := strings.Join(change.Verbs, " "); verbs != "create delete deletecollection get list patch update watch" {
			text += ", to " + verbs
		}
		lines = append(lines, fmt.Sprintf("%s %s", change.Type, text))
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

// A subscriber costs little while the server says the same, however many reads say so, and
// whether the subscriber has taken what there is or not.
func TestSubscriberCostsLittleWhileNothingChanges(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := fakeapi.New(fakeapi.Typical(100, 1, 50)...)
		server.SetForms(fakeapi.Legacy())
		server.SetLatency(time.Millisecond)
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		s := subscribe(m)
		time.Sleep(time.Minute)
		refresh := func() uint64 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if err := m.Refresh(context.Background()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			runtime.ReadMemStats(&after)
			return after.TotalAlloc - before.TotalAlloc
		}
		unread := refresh()
		s.take(t)
		if read := refresh(); max(unread, read) > 64<<20 { // 5,000 kinds
			t.Errorf("a refresh allocates %d bytes before the slice is taken, and %d after", unread, read)
		}
		s.cancel()
		synctest.Wait()
	})
}
