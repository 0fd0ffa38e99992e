// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"io"
	"net/http"
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
