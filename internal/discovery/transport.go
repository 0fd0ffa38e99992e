// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/freshmapper/freshmapper/internal/share"
)

// exchange is a request as it was sent, and the answer to it: client-go's REST client hides
// most of that. It travels in the request's context and is written before RoundTrip
// returns.
type exchange struct {
	watch  bool // it is a watch's
	began  bool // the request was handed to the program's transport
	code   int  // 0: no answer
	etag   string
	sent   []string      // credentials, in the forms in which a server may repeat them
	caller share.Key     // see callerOf
	body   []byte        // all of it, within the bound; nil if it broke off
	stream io.ReadCloser // instead of that, if a watch succeeds: without a bound
}

type exchangeKey struct{}

// roundTripper fills in the exchange of a request.
type roundTripper struct {
	next      http.RoundTripper
	maxBytes  int64
	requested func(path string, code int) // may be nil
}

// RoundTrip implements http.RoundTripper. client-go gets no body: it bounds none, logs why
// it could not be read, and drops that of a failure if it does not know the type.
func (rt *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	seen, ok := req.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		return nil, errors.New("this transport is only for reads of a Client")
	}
	*seen = exchange{watch: seen.watch, began: true, sent: sentBy(req)}
	resp, err := rt.next.RoundTrip(req)
	if err == nil && resp == nil {
		err = errNoResponse
	}
	if err == nil {
		seen.code, seen.etag = resp.StatusCode, strongETag(resp.Header)
	}
	if rt.requested != nil {
		rt.requested(req.URL.Path, seen.code)
	}
	if err != nil {
		return nil, err
	}
	if resp.Request != nil {
		req = resp.Request // as it was sent: transports below this package add credentials
	}
	seen.sent, seen.caller = sentBy(req), callerOf(req)
	body := resp.Body
	if body == nil { // http.Client forgives that, too
		body = http.NoBody
	}
	if seen.watch && seen.code >= 200 && seen.code <= 299 {
		seen.stream = body
	} else {
		defer body.Close()
		// Others have no body. That of a 101 is the connection, which may stay open.
		if seen.code >= 200 && seen.code != http.StatusNotModified {
			room := min(max(resp.ContentLength, 0), 1<<20) // a length is only a claim
			all := bytes.NewBuffer(make([]byte, 0, room+bytes.MinRead))
			if _, err := all.ReadFrom(http.MaxBytesReader(nil, body, rt.maxBytes)); err != nil {
				return nil, err
			}
			seen.body = all.Bytes()
		}
	}
	own := *resp
	own.Body, own.ContentLength = http.NoBody, 0
	return &own, nil
}

// strongETag returns the ETag in the form that the API server recognises, or "". The
// server compares byte by byte and knows only strong ETags (apiserver
// pkg/endpoints/discovery/aggregated/etag.go), but a proxy that compresses makes them
// weak. A long one is dropped: it would be kept, and a server may refuse the request that
// sends it back.
func strongETag(header http.Header) string {
	etag := strings.TrimPrefix(header.Get("ETag"), "W/")
	if len(etag) < 2 || len(etag) > maxETag || etag[0] != '"' || etag[len(etag)-1] != '"' {
		return ""
	}
	return etag
}

// sameHost refuses redirects to another host: client-go's transport adds the
// credentials to every request, redirected ones included.
func sameHost(next func(*http.Request, []*http.Request) error) func(*http.Request, []*http.Request) error {
	return func(req *http.Request, via []*http.Request) error {
		from, to := via[0].URL, req.URL
		if to.Host != from.Host || from.Scheme == "https" && to.Scheme != "https" {
			return fmt.Errorf("the server redirects to another host (%s://%s), which is not followed", to.Scheme, to.Host)
		}
		if next != nil {
			return next(req, via)
		}
		if len(via) >= maxRedirects {
			return fmt.Errorf("stopped after %d redirects", maxRedirects)
		}
		return nil
	}
}

const maxRedirects = 10 // as net/http's default

var (
	// errGoexit is the error of a request whose transport has called runtime.Goexit, as the
	// FailNow of a test does.
	errGoexit = errors.New("the HTTP transport has ended its goroutine")
	// errAbandoned is the error of a request that goes on after its context has ended.
	errAbandoned = errors.New("the HTTP transport does not stop when the request is cancelled")
)

// abandonAfter is how long after its context a request may take to end.
const abandonAfter = 500 * time.Millisecond

// outcome is what a call of send has returned.
type outcome[T any] struct {
	value T
	err   error
}

// Guarded calls send, which runs code of the user: transports, and a rate limiter. Reads
// are made on goroutines of the mapper, where no caller can recover from a panic, as
// controller-runtime does around a reconciler. So Guarded returns an error if send panics
// or ends its goroutine. A panic is logged with its stack.
//
// It does not wait much longer than until ctx ends. If it returns errAbandoned, send goes
// on, and the caller must not use what send uses.
func Guarded[T any](ctx context.Context, send func() (T, error)) (T, error) {
	ended := make(chan outcome[T], 1)
	go func() {
		o := outcome[T]{err: errGoexit}
		defer func() {
			if p := recover(); p != nil {
				o.err = fmt.Errorf("the HTTP transport panicked: %v", p)
				for _, handle := range utilruntime.PanicHandlers {
					handle(ctx, p)
				}
			}
			ended <- o
		}()
		o.value, o.err = send()
	}()
	select {
	case o := <-ended:
		return o.value, o.err
	case <-ctx.Done():
	}
	timer := time.NewTimer(abandonAfter)
	defer timer.Stop()
	select {
	case o := <-ended:
		return o.value, o.err
	case <-timer.C:
		return *new(T), errAbandoned
	}
}
