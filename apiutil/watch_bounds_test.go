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

// A generated body is made while it is read: the start, then more(0), more(1) and
// so on for as long as there is some. Then it ends; or blocks, if it is a stream's.
type generated struct {
	pending string
	more    func(n int) string
	n       int
	read    *atomic.Int64
	stream  *http.Request // nil: it ends
}

func (g *generated) Read(p []byte) (int, error) {
	for g.pending == "" {
		if g.pending = g.more(g.n); g.pending == "" {
			break
		}
		g.n++
	}
	if g.pending == "" && g.stream == nil {
		return 0, io.EOF
	}
	if g.pending == "" {
		<-g.stream.Context().Done()
		return 0, g.stream.Context().Err()
	}
	n := copy(p, g.pending)
	g.pending = g.pending[n:]
	g.read.Add(int64(n))
	return n, nil
}

func (*generated) Close() error { return nil }

// watchGenerated starts a mapper whose lists and watches of CRDs have these
// bodies, waits, and hands over how much has been read of them and how the heap
// has grown since then: what is live, and all that was ever allocated.
func watchGenerated(t *testing.T, list, watch func(req *http.Request) *generated, check func(server *fakeapi.Server, read, live, all int64, watching bool)) {
	t.Helper()
	inBubble(t, func(t *testing.T) {
		server, read := newServer(fakeapi.Aggregated()), new(atomic.Int64)
		watched := newWatchServer(server)
		m := newMapperThrough(t, server, through(func(req *http.Request) (*http.Response, error) {
			body := list
			if req.URL.Query().Get("watch") == "true" {
				body = watch
			}
			if req.URL.Path != crdsPath || body == nil {
				return watched.RoundTrip(req)
			}
			resp, b := jsonAnswer(req, http.StatusOK, nil), body(req)
			b.read = read
			resp.Body, resp.ContentLength = b, -1
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

func heap() (live, all int64) {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc), int64(stats.TotalAlloc)
}

// A list takes no more memory than its bound, however many objects are in it. One that is
// larger is refused. The heap counts the garbage of all tries.
func TestWatchOfHugeList(t *testing.T) {
	const kind, meta = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1",`, `"metadata":{"resourceVersion":"1"},"items":[`
	for name, size := range map[string]int{"beyond the bound": 8 << 20, "within the bound": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			list := func(*http.Request) *generated {
				return &generated{pending: kind + meta, more: func(n int) string {
					switch last := size / (3 << 10); {
					case n < last:
						return strings.Repeat("{},", 1<<10)
					case n == last:
						return "{}]}"
					}
					return ""
				}}
			}
			watchGenerated(t, list, nil, func(_ *fakeapi.Server, read, live, all int64, watching bool) {
				t.Logf("%d KiB read, %d KiB live, %d KiB allocated in all", read>>10, live>>10, all>>10)
				if watching != (size < 2<<20) || live > 1<<20 || all > 12*read {
					t.Errorf("%d bytes were allocated, %d are kept; watching: %v", all, live, watching)
				}
			})
		})
	}
}

// A stream of events that never ends leaves the heap as it is, and costs neither a
// busy processor nor more than a refresh a second.
func TestWatchOfEndlessEvents(t *testing.T) {
	watch := func(req *http.Request) *generated {
		return &generated{stream: req, more: func(n int) string {
			return string(eventLine("ADDED", objectMeta(fmt.Sprintf("crd%d", n), n+2)))
		}}
	}
	watchGenerated(t, nil, watch, func(server *fakeapi.Server, read, live, _ int64, watching bool) {
		requests := len(server.TakeRequests())
		t.Logf("%d KiB read and %d discovery requests in 10 seconds, %d KiB live", read>>10, requests, live>>10)
		if live > 4<<20 || !watching {
			t.Errorf("%d bytes are kept", live)
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

// When its context ends, Start gives up a list or a watch whose transport does not stop.
// A watch that opens later is closed.
func TestStartEndsBesideStuckWatch(t *testing.T) {
	type stuck = func(req *http.Request, next http.RoundTripper, free <-chan struct{}) (*http.Response, error)
	opening := func(verb string) stuck {
		return func(req *http.Request, next http.RoundTripper, free <-chan struct{}) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if (req.URL.Query().Get("watch") == "") == (verb == "list") {
				<-free
			}
			return resp, err
		}
	}
	body := func(read, closed bool) stuck {
		return func(req *http.Request, next http.RoundTripper, free <-chan struct{}) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil && read {
				resp.Body = stuckBody{ReadCloser: resp.Body, read: free}
			}
			if err == nil && closed {
				resp.Body = stuckBody{ReadCloser: resp.Body, closed: free}
			}
			return resp, err
		}
	}
	for name, transport := range map[string]stuck{
		"list": opening("list"), "watch": opening("watch"), "reading": body(true, false), "closing": body(false, true), "reading and closing": body(true, true),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				server := newServer(fakeapi.Aggregated())
				watched, free := newWatchServer(server), make(chan struct{})
				m := newMapperThrough(t, server, through(func(req *http.Request) (*http.Response, error) {
					if watched.lists[req.URL.Path] != nil {
						return transport(req, watched, free)
					}
					return watched.RoundTrip(req)
				}), apiutil.DynamicRESTMapperOptions{WatchAPIs: true, RefreshInterval: time.Minute})
				time.AfterFunc(time.Hour, func() { close(free) })
				stop := startMapper(t, m)
				time.Sleep(20 * time.Second)
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
		})
	}
}

// An opening that gets stuck is given up after RequestTimeout, and tried again. A body
// that gets stuck is given up soon after the watch should have ended.
func TestStuckWatchIsOpenedAgain(t *testing.T) {
	for name, opens := range map[string]bool{"opening": false, "reading": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				server := newServer(fakeapi.Aggregated())
				watched, free := newWatchServer(server), make(chan struct{})
				time.AfterFunc(time.Hour, func() { close(free) })
				until := time.Now().Add(time.Minute)
				m := newMapperThrough(t, server, through(func(req *http.Request) (*http.Response, error) {
					resp, err := watched.RoundTrip(req)
					if watched.lists[req.URL.Path] == nil || time.Now().After(until) || req.URL.Query().Get("watch") == "" {
						return resp, err
					}
					if !opens {
						<-free
					}
					resp.Body = stuckBody{ReadCloser: resp.Body, read: free}
					return resp, err
				}), apiutil.DynamicRESTMapperOptions{WatchAPIs: true})
				stop := startMapper(t, m)
				time.Sleep(15 * time.Minute)
				wantWatching(t, server, watched.lists[crdsPath], m)
				stop()
				time.Sleep(2 * time.Hour)
			})
		})
	}
}
