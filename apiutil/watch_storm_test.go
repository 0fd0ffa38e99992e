// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A watchCloser is a gateway that opens watches, sends a line, and ends them at once.
type watchCloser struct {
	*watchServer
	line   []byte
	mended atomic.Bool
	asked  atomic.Int32 // lists and watches
}

func (c *watchCloser) RoundTrip(req *http.Request) (*http.Response, error) {
	if c.lists[req.URL.Path] != nil {
		c.asked.Add(1)
		if req.URL.Query().Get("watch") != "" && !c.mended.Load() {
			return jsonAnswer(req, http.StatusOK, c.line), nil
		}
	}
	return c.watchServer.RoundTrip(req)
}

// closerInBubble runs test with a mapper that has been watching through a gateway which
// closes streams, for 10 minutes.
func closerInBubble(
	t *testing.T, line []byte, interval time.Duration,
	test func(t *testing.T, server *fakeapi.Server, gateway *watchCloser, m *apiutil.DynamicRESTMapper),
) {
	t.Helper()
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		gateway := &watchCloser{watchServer: newWatchServer(server), line: line}
		m := newMapperThrough(t, server, gateway, apiutil.DynamicRESTMapperOptions{WatchAPIs: true, RefreshInterval: interval})
		defer startMapper(t, m)()
		time.Sleep(10 * time.Minute)
		server.TakeRequests()
		gateway.asked.Store(0)
		test(t, server, gateway, m)
	})
}

const watchFailure = `{"type":"ERROR","object":{"kind":"Status","code":500}}`

// However a watch ends at once, again and again, it costs less than a request in 4
// seconds.
func TestWatchThatEndsAtOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		line       string
		reads, own float64 // most requests a second
	}{
		"in order":       {"", 0, 0.12},
		"after an event": {string(eventLine("ADDED", objectMeta("news", 7))), 0.22, 0.12},
		"in a page":      {"<html>", 0.11, 0.11},
		"expired":        {`{"type":"ERROR","object":{"kind":"Status","code":410}}`, 0.11, 0.11},
		"in an error":    {watchFailure, 0.11, 0.11},
	} {
		t.Run(name, func(t *testing.T) {
			closerInBubble(t, []byte(tt.line), 0,
				func(t *testing.T, server *fakeapi.Server, gateway *watchCloser, _ *apiutil.DynamicRESTMapper) {
					time.Sleep(5 * time.Hour)
					const seconds = 5 * 3600
					reads, own := float64(len(server.TakeRequests()))/seconds, float64(gateway.asked.Load())/seconds
					if reads > tt.reads || own > tt.own {
						t.Errorf("%.3f discovery requests a second, and %.3f lists and watches; want at most %.2f and %.2f", reads, own, tt.reads, tt.own)
					}
				})
		})
	}
}

// Meanwhile the refreshes by interval go on.
func TestWatchThatEndsAtOnceAndInterval(t *testing.T) {
	closerInBubble(t, []byte(watchFailure), 10*time.Second,
		func(t *testing.T, server *fakeapi.Server, _ *watchCloser, m *apiutil.DynamicRESTMapper) {
			for range 20 {
				serve(server, newKind)
				time.Sleep(10*time.Second + time.Millisecond)
				server.TakeRequests()
				wantServed(t, m, newKind)
				wantRequests(t, server, "what the interval has found")
				server.Remove(newKind.Group)
				time.Sleep(10*time.Second + time.Millisecond)
			}
		})
}

// Even if watches end at once, a change is seen when the next one opens. If the document
// shows the change a minute later, it is seen by then or soon after, whether the watches
// stay open in the meantime or not.
func TestChangeWhileWatchesEndAtOnce(t *testing.T) {
	for name, mended := range map[string]time.Duration{"never": time.Hour, "at once": 0, "later": 30 * time.Second} {
		for _, lag := range []time.Duration{0, time.Minute} {
			t.Run("mended "+name+"/lag "+lag.String(), func(t *testing.T) {
				closerInBubble(t, []byte(watchFailure), 0,
					func(t *testing.T, server *fakeapi.Server, gateway *watchCloser, m *apiutil.DynamicRESTMapper) {
						server.SetLag(fakeapi.PartDocument, lag)
						groups := m.Status().Groups
						serve(server, newKind)
						gateway.lists[crdsPath].put("news")
						time.AfterFunc(mended, func() { gateway.mended.Store(true) })
						time.Sleep(62*time.Second + lag + lag/4) // a pause; and lateEcho
						if got := m.Status().Groups; got != groups+1 {
							t.Errorf("%d groups, %d before", got, groups)
						}
					})
			})
		}
	}
}

// Once a watch has been open for a while, all is as before the trouble.
func TestWatchStaysOpenAgain(t *testing.T) {
	closerInBubble(t, []byte(watchFailure), 0,
		func(t *testing.T, server *fakeapi.Server, gateway *watchCloser, m *apiutil.DynamicRESTMapper) {
			gateway.mended.Store(true)
			time.Sleep(3 * time.Minute) // a pause, and the late echo
			settled(t, server, m)
			list := gateway.lists[crdsPath]
			for range 3 {
				time.Sleep(time.Minute)
				wantRequests(t, server, "no event")
				serve(server, newKind)
				list.put("news")
				time.Sleep(1400 * time.Millisecond)
				wantRequests(t, server, "an event", "/api 304", "/apis 200")
				settleEchoes(t, server, "an event")
				server.Remove(newKind.Group)
				list.drop()
				time.Sleep(5 * time.Second) // a short pause, because that watch was steady
				if !m.Status().Watching {
					t.Error("not watching 5 seconds after a watch has ended")
				}
				list.remove("news")
				time.Sleep(2 * time.Minute)
				server.TakeRequests()
				synctest.Wait()
			}
		})
}
