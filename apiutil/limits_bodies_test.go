// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// blanks is a body of 16 MiB of blanks that counts how much of it is read.
type blanks struct{ read *atomic.Int64 }

func (b blanks) Read(p []byte) (int, error) {
	if b.read.Load() >= 16<<20 {
		return 0, io.EOF
	}
	for i := range p {
		p[i] = ' '
	}
	b.read.Add(int64(len(p)))
	return len(p), nil
}

func (blanks) Close() error { return nil }

// The body of a 304 is not read.
func TestBodiesOf304AreNotRead(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	server := newServer(fakeapi.Aggregated())
	next, read, answers := server.Client().Transport, new(atomic.Int64), 0
	m := newMapperThrough(t, server, through(func(req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err == nil && resp.StatusCode == http.StatusNotModified {
			resp.Body = blanks{read}
			answers++
		}
		return resp, err
	}), apiutil.DynamicRESTMapperOptions{})
	wantServed(t, m, fooKind)
	m.Reset()
	wantServed(t, m, fooKind)
	if answers != 2 || read.Load() > 0 {
		t.Errorf("%d bytes of %d answers 304 were read", read.Load(), answers)
	}
}

// What the watch's lists, and refusals of its watches, may take up is bounded like
// what discovery reads; the stream of events, which is read bit by bit, is not.
func TestBodiesOfTheWatchAreBounded(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const limit = 64 << 10
	for name, test := range map[string]struct {
		watching bool // which requests are answered with a huge body
		code     int
	}{
		"lists":           {false, http.StatusOK},
		"refused watches": {true, http.StatusInternalServerError},
	} {
		server := newServer(fakeapi.Aggregated())
		watched, read, asked := newWatchServer(server), new(atomic.Int64), make(chan struct{}, 100)
		m := newMapperThrough(t, server, through(func(req *http.Request) (*http.Response, error) {
			watching := req.URL.Query().Get("watch") == "true"
			if req.URL.Path != crdsPath || test.watching && !watching {
				return watched.RoundTrip(req)
			}
			resp := jsonAnswer(req, test.code, nil)
			resp.Body, resp.ContentLength = blanks{read}, -1
			asked <- struct{}{}
			return resp, nil
		}), apiutil.DynamicRESTMapperOptions{WatchAPIs: true, MaxResponseBytes: limit})
		stop := startMapper(t, m)
		select {
		case <-asked:
		case <-time.After(10 * time.Second):
			t.Errorf("%s: none was asked for", name)
		}
		stop()
		if n := read.Load(); n > 4*limit {
			t.Errorf("%s: %d bytes were read", name, n)
		}
	}
}
