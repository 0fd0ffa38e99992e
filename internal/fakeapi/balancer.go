// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"net/http"
	"sync/atomic"
)

// A Balancer is several servers behind one address: it returns the one that answers a
// request. It is an http.RoundTripper, for the client of a mapper.
type Balancer func(*http.Request) *Server

// RoundTrip implements http.RoundTripper.
func (b Balancer) RoundTrip(req *http.Request) (*http.Response, error) {
	return b(req).Client().Transport.RoundTrip(req)
}

// RoundRobin returns a Balancer that sends the first request to the first server, the
// next to the next, and after the last begins again.
func RoundRobin(servers ...*Server) Balancer {
	var requests atomic.Uint64
	return func(*http.Request) *Server {
		return servers[(requests.Add(1)-1)%uint64(len(servers))]
	}
}
