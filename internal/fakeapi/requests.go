// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
)

// A Request is a request to the server, and how it was answered.
type Request struct {
	Method, Host, Path                 string // Path has no query
	Accept, IfNoneMatch, Authorization string

	// Verb is what a request wants of objects, in RBAC's words, or "" if it is for what is served.
	Verb string

	// Code is the status of the answer, 0 if there is none.
	Code int

	// Form is the form of the answer: "v2+protobuf", "v2+json", "v2beta1+protobuf",
	// "v2beta1+json", "legacy", "legacy+protobuf", the code of an answer that
	// is not 200, or the name of the fault.
	Form string

	// BodyBytes is how much of the answer's body the client has read so far.
	BodyBytes int
}

// String returns a line such as "GET /apis  v2+protobuf 200" or "GET /apis  304".
func (r Request) String() string {
	line := r.Method + " " + r.Path + "  " + r.Form
	switch code := strconv.Itoa(r.Code); {
	case r.Code == 0 && r.Form == "":
		return line + "no answer"
	case r.Code == 0 || r.Form == code:
		return line
	default:
		return line + " " + code
	}
}

// Requests lists the requests in the order of their arrival.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list()
}

// list is Requests. s.mu is held.
func (s *Server) list() []Request {
	list := make([]Request, 0, len(s.requests))
	for _, r := range s.requests {
		r.request.BodyBytes = int(r.read.Load())
		list = append(list, r.request)
	}
	return list
}

// TakeRequests lists the requests and forgets them.
func (s *Server) TakeRequests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.list()
	s.requests = nil
	return list
}

// A record is a request under way: the server's mutex guards the first field.
type record struct {
	request Request
	read    atomic.Int64
}

// note notes a request that has arrived.
func (s *Server) note(req *http.Request, fault *Fault) *record {
	r := &record{request: Request{
		Method:        req.Method,
		Host:          host(req),
		Path:          req.URL.Path,
		Verb:          verbOf(req),
		Accept:        req.Header.Get("Accept"),
		IfNoneMatch:   req.Header.Get("If-None-Match"),
		Authorization: req.Header.Get("Authorization"),
	}}
	if fault != nil {
		r.request.Form = fault.name
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	return r
}

// complete notes how a request was answered.
func (s *Server) complete(r *record, resp *http.Response) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.request.Code = resp.StatusCode
	if r.request.Form != "" {
		return
	}
	r.request.Form = strconv.Itoa(resp.StatusCode)
	if f, ok := parseForm(resp.Header.Get("Content-Type")); ok && resp.StatusCode == http.StatusOK &&
		r.request.Verb == "" {
		r.request.Form = f.String()
	}
}

// host returns the host of a request. On the client's side it may be in the URL alone,
// on the server's side it never is.
func host(req *http.Request) string {
	if req.Host != "" {
		return req.Host
	}
	return req.URL.Host
}

type countingBody struct {
	io.ReadCloser
	read *atomic.Int64
}

func (b countingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read.Add(int64(n))
	return n, err
}
