// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"io"
	"maps"
	"net/http"
	"sync/atomic"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// Token is the bearer token that Config and Client send: a secret that must
// not turn up in any error or log line.
const Token = "fake-secret-token"

// Config returns a configuration whose clients reach this server without a socket. It
// has no rate limit; a test of rate limits sets one.
func (s *Server) Config() *rest.Config {
	return &rest.Config{
		Host:        "http://fake.invalid",
		BearerToken: Token,
		QPS:         -1,
		Transport:   inMemory{s},
	}
}

// Client returns the HTTP client for Config. A request to any other host arrives here as
// well; Request.Host has that host.
func (s *Server) Client() *http.Client {
	return &http.Client{Transport: transport.NewBearerAuthRoundTripper(Token, inMemory{s})}
}

// inMemory is an http.RoundTripper that runs in the goroutine of its caller.
type inMemory struct{ server *Server }

func (t inMemory) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close()
	}
	return t.server.answer(req)
}

// ServeHTTP serves the same over HTTP/1.1. An answer that breaks ends its connection.
func (s *Server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	resp, err := s.answer(req)
	if err == nil {
		defer resp.Body.Close()
		maps.Copy(w.Header(), resp.Header)
		w.WriteHeader(resp.StatusCode)
		_, err = io.Copy(w, resp.Body)
	}
	if err == nil {
		return
	}
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}

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
