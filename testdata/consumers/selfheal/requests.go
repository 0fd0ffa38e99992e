// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"sync/atomic"
)

// requests counts the requests of the program to the API server. Its count method fits
// rest.Config.Wrap.
type requests struct{ n atomic.Int64 }

func (r *requests) count(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		r.n.Add(1)
		return next.RoundTrip(req)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
