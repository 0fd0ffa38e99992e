// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A stuckBody cannot be cancelled. What is nil does not get stuck.
type stuckBody struct {
	io.ReadCloser
	read, closed <-chan struct{}
}

func (b stuckBody) Read(p []byte) (int, error) {
	if b.read != nil {
		<-b.read
	}
	return b.ReadCloser.Read(p)
}

func (b stuckBody) Close() error {
	if b.closed != nil {
		<-b.closed
	}
	return b.ReadCloser.Close()
}

// whileStuck runs test with a mapper whose lists or watches get stuck, those that begin
// within lasting, until an hour has passed: their transport cannot be cancelled. Where says
// what gets stuck: the opening, or reading and closing of the body. Start ends all the same,
// and a watch that opens later is closed.
func whileStuck(t *testing.T, where string, lasting time.Duration, test func(t *testing.T, server *fakeapi.Server, crds *watchedList, m *apiutil.DynamicRESTMapper)) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		watched, free := newWatchServer(server), make(chan struct{})
		time.AfterFunc(time.Hour, func() { close(free) })
		until := time.Now().Add(lasting)
		verb, part, _ := strings.Cut(where, " ")
		m := newMapperThrough(t, server, through(func(req *http.Request) (*http.Response, error) {
			resp, err := watched.RoundTrip(req)
			if watched.lists[req.URL.Path] == nil || verbOf(req) != verb || time.Now().After(until) {
				return resp, err
			}
			body := stuckBody{ReadCloser: resp.Body}
			if part == "" {
				<-free
			}
			if strings.Contains(part, "reading") {
				body.read = free
			}
			if strings.Contains(part, "closing") {
				body.closed = free
			}
			resp.Body = body
			return resp, err
		}), apiutil.DynamicRESTMapperOptions{WatchAPIs: true})
		stop := startMapper(t, m)
		test(t, server, watched.lists[crdsPath], m)
		start := time.Now()
		stop()
		if took := time.Since(start); took > time.Second {
			t.Errorf("Start returned %v after its context ended", took)
		}
		if m.Status().Watching {
			t.Error("watching after Start has returned")
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		for path, list := range watched.lists {
			if n := list.watches(); n != 0 {
				t.Errorf("%d watches left open at %s", n, path)
			}
		}
	})
}

// When its context ends, Start gives up what is stuck. An opening that is stuck is given up
// after RequestTimeout, and a body soon after the watch should have ended.
func TestStuckWatch(t *testing.T) {
	for _, where := range []string{"list", "list reading", "watch", "watch reading", "watch closing", "watch reading and closing"} {
		t.Run(where, func(t *testing.T) {
			whileStuck(t, where, time.Hour, func(*testing.T, *fakeapi.Server, *watchedList, *apiutil.DynamicRESTMapper) {
				time.Sleep(20 * time.Second)
			})
			whileStuck(t, where, time.Minute, func(t *testing.T, server *fakeapi.Server, crds *watchedList, m *apiutil.DynamicRESTMapper) {
				time.Sleep(15 * time.Minute)
				wantWatching(t, server, crds, m)
			})
		})
	}
}

// wantWatching fails the test unless an event is answered soon.
func wantWatching(t *testing.T, server *fakeapi.Server, list *watchedList, m *apiutil.DynamicRESTMapper) {
	t.Helper()
	time.Sleep(5 * time.Second)
	if !m.Status().Watching {
		t.Error("not watching")
	}
	serve(server, newKind)
	list.put("news")
	time.Sleep(2400 * time.Millisecond) // 1.3 s, and one more if a refresh has just begun
	server.TakeRequests()
	wantServed(t, m, newKind)
	wantRequests(t, server, "what the watch has found")
}
