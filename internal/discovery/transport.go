// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/freshmapper/freshmapper/internal/share"
)

// exchange holds what client-go's REST client hides of a response. It travels in the
// request's context and is written before RoundTrip returns.
type exchange struct {
	conditional bool // If-None-Match was sent
	began       bool // the request was handed to the program's transport
	notModified bool
	etag        string
	code        int
	notFound    bytes.Buffer // the beginning of the body of a 404
	sent        []string     // credentials, in the forms in which a server may repeat them
	caller      share.Key    // see callerOf
}

type exchangeKey struct{}

func withExchange(ctx context.Context, e *exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{}, e)
}

// roundTripper gets 304 and the validators through client-go's REST client, which takes
// every answer but 200 to 206 for a failure. It also bounds every body.
type roundTripper struct {
	next      http.RoundTripper
	maxBytes  int64
	requested func(path string, code int) // may be nil
}

// RoundTrip implements http.RoundTripper.
func (rt *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	e, _ := req.Context().Value(exchangeKey{}).(*exchange)
	if e != nil {
		e.began = true
	}
	resp, err := roundTrip(rt.next, req)
	if rt.requested != nil {
		rt.requested(req.URL.Path, codeOf(resp))
	}
	if err != nil {
		return nil, err
	}
	if e == nil {
		return resp, nil
	}
	e.code, e.etag = resp.StatusCode, strongETag(resp.Header)
	e.sent, e.caller = sentBy(resp, req), callerOf(sentRequest(resp, req))
	if resp.StatusCode == http.StatusNotModified {
		return asOK(resp, e)
	}
	resp.Body = bounded(resp.Body, rt.maxBytes)
	if e.code == http.StatusNotFound {
		e.notFound.Reset()
		resp.Body = &keptBody{ReadCloser: resp.Body, kept: &e.notFound}
	}
	return resp, nil
}

// roundTrip is next.RoundTrip, but forgives what http.Client forgives: a response without
// a body, and none at all, which is an error.
func roundTrip(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	resp, err := next.RoundTrip(req)
	switch {
	case err != nil:
		return nil, err
	case resp == nil:
		return nil, errNoResponse
	case resp.Body == nil:
		resp.Body = http.NoBody
	}
	return resp, nil
}

func codeOf(resp *http.Response) int {
	if resp == nil {
		return 0
	}
	return resp.StatusCode
}

// asOK makes an empty 200 from a 304 to a request with a validator. If the 304 has a
// body, the body is closed and not read.
func asOK(resp *http.Response, e *exchange) (*http.Response, error) {
	resp.Body.Close()
	if !e.conditional {
		return nil, errUnexpected304
	}
	e.notModified = true
	ok := *resp
	ok.StatusCode, ok.Status = http.StatusOK, "200 OK"
	ok.Body, ok.ContentLength = http.NoBody, 0
	return &ok, nil
}

// WrappedRoundTripper lets client-go's helpers look through (k8s.io/apimachinery/pkg/util/net).
func (rt *roundTripper) WrappedRoundTripper() http.RoundTripper { return rt.next }

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

// keptBody keeps the beginning of a body while it is read, because client-go drops bodies
// of a type that it does not know.
type keptBody struct {
	io.ReadCloser
	kept *bytes.Buffer
}

// mostKept is more bytes than the metav1.Status of a path that is not served has.
const mostKept = 16 << 10

// Read implements io.Reader.
func (b *keptBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.kept.Write(p[:min(n, max(0, mostKept-b.kept.Len()))])
	return n, err
}

// boundedBody fails once a server has sent more than it may.
type boundedBody struct {
	io.ReadCloser
	left, max int64
}

func bounded(body io.ReadCloser, limit int64) io.ReadCloser {
	return &boundedBody{ReadCloser: body, left: limit, max: limit}
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	if int64(len(p))-1 > b.left { // not left+1, which may be too large for an int64
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("the response is larger than the limit of %d bytes (MaxResponseBytes)", b.max)
	}
	return n, err
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
