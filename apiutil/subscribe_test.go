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

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/fakeapi/bubble"
)

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
	bubble.Run(t, func(t *testing.T) {
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
