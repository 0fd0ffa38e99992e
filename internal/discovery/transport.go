// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// exchange is what client-go's REST client hides of a response. It travels in
// the request's context and is written before RoundTrip returns.
type exchange struct {
	conditional bool // If-None-Match was sent
	notModified bool
	etag        string
	code        int
}

type exchangeKey struct{}

func withExchange(ctx context.Context, e *exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{}, e)
}

// roundTripper lets 304 and the validators through client-go's REST client, which
// takes every answer but 200 to 206 for a failure, and bounds every body.
type roundTripper struct {
	next      http.RoundTripper
	maxBytes  int64
	requested func(path string, code int) // may be nil
}

// RoundTrip implements http.RoundTripper.
func (rt *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := rt.next.RoundTrip(req)
	if rt.requested != nil {
		rt.requested(req.URL.Path, codeOf(resp))
	}
	if err != nil {
		return nil, err
	}
	e, _ := req.Context().Value(exchangeKey{}).(*exchange)
	if e == nil {
		return resp, nil
	}
	e.code, e.etag = resp.StatusCode, strongETag(resp.Header)
	if resp.StatusCode == http.StatusNotModified {
		return rt.asOK(resp, e)
	}
	resp.Body = &boundedBody{ReadCloser: resp.Body, left: rt.maxBytes, max: rt.maxBytes}
	return resp, nil
}

func codeOf(resp *http.Response) int {
	if resp == nil {
		return 0
	}
	return resp.StatusCode
}

// asOK makes an empty 200 of a 304 that was asked for.
func (rt *roundTripper) asOK(resp *http.Response, e *exchange) (*http.Response, error) {
	if !e.conditional {
		resp.Body.Close()
		return nil, errUnexpected304
	}
	e.notModified = true
	ok := *resp
	ok.StatusCode, ok.Status = http.StatusOK, "200 OK"
	return &ok, nil
}

// WrappedRoundTripper lets client-go's helpers look through (k8s.io/apimachinery/pkg/util/net).
func (rt *roundTripper) WrappedRoundTripper() http.RoundTripper { return rt.next }

// strongETag returns a validator that the API server recognises. It compares
// byte by byte and knows strong ones only (apiserver
// pkg/endpoints/discovery/aggregated/etag.go); a proxy that compresses makes a
// weak one of it.
func strongETag(header http.Header) string {
	etag := strings.TrimPrefix(header.Get("ETag"), "W/")
	if len(etag) < 2 || etag[0] != '"' || etag[len(etag)-1] != '"' {
		return ""
	}
	return etag
}

// boundedBody fails once a server has sent more than it may.
type boundedBody struct {
	io.ReadCloser
	left, max int64
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("the response is larger than the limit of %d bytes (MaxResponseBytes)", b.max)
	}
	return n, err
}

// sameHost refuses redirects to another host: client-go's transport adds the
// credentials to every request it is given, the redirected ones too.
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
