// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// watchCounted starts a mapper whose lists or watches of CRDs have the bodies that body
// makes. After 10 seconds it hands over how much has been read of them, and how the heap
// has grown since then: what is live, and all that was ever allocated.
func watchCounted(t *testing.T, verb string, body func() io.Reader, check func(server *fakeapi.Server, read, live, all int64, watching bool)) {
	t.Helper()
	inBubble(t, func(t *testing.T) {
		server, read := newServer(fakeapi.Aggregated()), new(atomic.Int64)
		watched := newWatchServer(server)
		m := newMapperThrough(t, server, through(func(req *http.Request) (*http.Response, error) {
			if req.URL.Path != crdsPath || verbOf(req) != verb {
				return watched.RoundTrip(req)
			}
			resp := jsonAnswer(req, http.StatusOK, nil)
			resp.Body, resp.ContentLength = io.NopCloser(counted{body(), read, req.Context().Done()}), -1
			return resp, nil
		}), apiutil.DynamicRESTMapperOptions{WatchAPIs: true})
		wantServed(t, m, fooKind)
		live, all := heap()
		stop := startMapper(t, m)
		time.Sleep(10 * time.Second)
		watching := m.Status().Watching
		liveNow, allNow := heap()
		check(server, read.Load(), liveNow-live, allNow-all, watching)
		stop()
	})
}

// counted counts what is read of a body until that is closed.
type counted struct {
	io.Reader
	read   *atomic.Int64
	closed <-chan struct{}
}

func (c counted) Read(p []byte) (int, error) {
	select {
	case <-c.closed:
		return 0, io.EOF
	default:
	}
	n, err := c.Reader.Read(p)
	c.read.Add(int64(n))
	return n, err
}

func heap() (live, all int64) {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc), int64(stats.TotalAlloc)
}

// A list takes no more memory than its bound, however many objects are in it. One that is
// larger is refused. The heap counts the garbage of all tries.
func TestWatchOfHugeList(t *testing.T) {
	for name, size := range map[string]int{"beyond the bound": 8 << 20, "within the bound": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			list := `{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"1"},"items":[` + strings.Repeat("{},", size/3) + "{}]}"
			watchCounted(t, "list", func() io.Reader { return strings.NewReader(list) }, func(_ *fakeapi.Server, read, live, all int64, watching bool) {
				t.Logf("%d KiB read, %d KiB live, %d KiB allocated in all", read>>10, live>>10, all>>10)
				if watching != (size < 2<<20) || live > 1<<20 || all > 12*read {
					t.Errorf("%d bytes were allocated, %d are kept; watching: %v", all, live, watching)
				}
			})
		})
	}
}

// endlessEvents is a stream of ever new events.
type endlessEvents struct {
	n       int
	pending []byte
}

func (e *endlessEvents) Read(p []byte) (int, error) {
	if len(e.pending) == 0 {
		e.n++
		e.pending = []byte(eventLine("ADDED", fmt.Sprintf("crd%d", e.n), e.n+1))
	}
	n := copy(p, e.pending)
	e.pending = e.pending[n:]
	return n, nil
}

// A stream of events that never ends leaves the heap as it is, and costs neither a
// busy processor nor more than a refresh a second.
func TestWatchOfEndlessEvents(t *testing.T) {
	watchCounted(t, "watch", func() io.Reader { return &endlessEvents{} }, func(server *fakeapi.Server, read, live, _ int64, watching bool) {
		requests := len(server.TakeRequests())
		t.Logf("%d KiB read and %d discovery requests in 10 seconds, %d KiB live", read>>10, requests, live>>10)
		if live > 4<<20 || !watching {
			t.Errorf("%d bytes are kept; watching: %v", live, watching)
		}
		if read < 100<<10 || read > 64<<20 {
			t.Errorf("%d bytes were read", read)
		}
		if requests > 2*13 {
			t.Errorf("%d discovery requests", requests)
		}
	})
}

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
