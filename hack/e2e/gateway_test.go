// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// Gateway is a proxy in front of a server. It records the requests. All requests that it forwards have an administrator's rights.
type Gateway struct {
	server *httptest.Server
	proxy  http.Handler

	mu    sync.Mutex
	calls []Call
}

// Call is a request that was answered.
type Call struct {
	Method, Path string
	Code         int
	Begun, Ended time.Time
}

// isDiscovery reports whether a call asked what the server serves.
func (c Call) isDiscovery() bool {
	parts := strings.Split(strings.Trim(c.Path, "/"), "/")
	return parts[0] == "api" && len(parts) <= 2 || parts[0] == "apis" && len(parts) <= 3
}

// newGateway makes a gateway to a server, which ends with the test.
func newGateway(t *testing.T, s *Server) *Gateway {
	t.Helper()
	cfg := s.plane.Servers[0].Config()
	target, err := url.Parse(cfg.Host)
	must(t, err)
	transport, err := rest.TransportFor(cfg)
	must(t, err)
	g := &Gateway{proxy: &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport,
		ErrorLog:  log.New(io.Discard, "", 0), // clients give up on purpose
	}}
	g.server = httptest.NewServer(g)
	t.Cleanup(g.server.Close)
	return g
}

// kubeconfig leads through the gateway.
func (g *Gateway) kubeconfig() []byte { return kubeconfig("server: "+g.server.URL, "") }

// Calls returns the calls that began after since and for which wanted returns true,
// in the order in which they ended.
func (g *Gateway) Calls(since time.Time, wanted func(Call) bool) []Call {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(g.calls), func(c Call) bool { return c.Begun.Before(since) || !wanted(c) })
}

// ServeHTTP forwards a request, and records it.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	call := Call{Method: req.Method, Path: req.URL.Path, Begun: time.Now(), Code: http.StatusOK}
	defer func() {
		call.Ended = time.Now()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.calls = append(g.calls, call)
	}()
	g.proxy.ServeHTTP(&statusWriter{ResponseWriter: w, code: &call.Code}, req)
}

type statusWriter struct {
	http.ResponseWriter
	code *int
}

func (w *statusWriter) WriteHeader(code int) {
	*w.code = code
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
