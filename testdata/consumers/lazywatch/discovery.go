// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"strings"
	"sync/atomic"
)

// discoveryRequests counts the requests that ask an API server what it serves.
// Its count method fits rest.Config.Wrap.
type discoveryRequests struct{ n atomic.Int64 }

func (d *discoveryRequests) made() int64 { return d.n.Load() }

func (d *discoveryRequests) count(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if isDiscovery(req.URL.Path) {
			d.n.Add(1)
		}
		return next.RoundTrip(req)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// isDiscovery reports whether path is /api, /api/v1, /apis, /apis/<group> or
// /apis/<group>/<version>: longer paths are of resources.
func isDiscovery(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch parts[0] {
	case "api":
		return len(parts) <= 2
	case "apis":
		return len(parts) <= 3
	}
	return false
}
