// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
		to := io.Writer(w)
		if resp.ContentLength < 0 {
			to = stream{w, http.NewResponseController(w)}
			_, _ = to.Write(nil) // so that the client has the header
		}
		_, err = io.Copy(to, resp.Body)
	}
	if err == nil {
		return
	}
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}

// A stream sends each part of a body at once: that of a watch has no end.
type stream struct {
	io.Writer
	*http.ResponseController
}

func (s stream) Write(p []byte) (int, error) {
	n, err := s.Writer.Write(p)
	return n, errors.Join(err, s.Flush())
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

// response returns a complete answer, which a fault may change.
func response(code int, contentType string, body []byte) *http.Response {
	resp := &http.Response{
		Status:     strconv.Itoa(code) + " " + http.StatusText(code),
		StatusCode: code,
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
		Header:     http.Header{"Cache-Control": {"no-cache, private"}},
	}
	if contentType != "" {
		resp.Header.Set("Content-Type", contentType)
	}
	setBody(resp, body)
	return resp
}

func setBody(resp *http.Response, body []byte) {
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.ContentLength = int64(len(body))
}

// setStream sets a body whose length is not known beforehand.
func setStream(resp *http.Response, body io.Reader) {
	resp.Body = io.NopCloser(body)
	resp.ContentLength = -1
}

// textResponse returns an error of a handler that does not belong to the API machinery.
func textResponse(code int, text string) *http.Response {
	resp := response(code, "text/plain; charset=utf-8", []byte(text))
	resp.Header.Set("X-Content-Type-Options", "nosniff")
	return resp
}

// statusResponse returns an error as the API machinery writes it. A positive
// retryAfter is in seconds.
func statusResponse(code, retryAfter int) (*http.Response, error) {
	resp, err := errorResponse(
		apierrors.NewGenericServerResponse(code, "get", schema.GroupResource{}, "", "", retryAfter, false),
	)
	if err == nil && retryAfter > 0 {
		resp.Header.Set("Retry-After", strconv.Itoa(retryAfter))
	}
	return resp, err
}

func errorResponse(e *apierrors.StatusError) (*http.Response, error) {
	status := e.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return jsonResponse(int(status.Code), &status)
}

// jsonResponse returns an object of the API machinery in JSON.
func jsonResponse(code int, o runtime.Object) (*http.Response, error) {
	body, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	return response(code, jsonType, append(body, '\n')), nil
}
