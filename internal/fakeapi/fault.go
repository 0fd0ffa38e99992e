// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
)

// A Fault is a way of answering wrongly, or not at all.
//
// A fault ignores If-None-Match: it spoils the whole document, so a client that already
// knows the document meets the fault, too. A spoiled answer keeps the headers of the true
// one, including its ETag, as behind a proxy that damages bodies: a client must not
// remember the ETag of what it could not read.
type Fault struct {
	name    string
	times   int64 // 0: for ever
	respond func(exchange) (*http.Response, error)
}

// String returns the fault's name, as in Request.Form.
func (f Fault) String() string { return f.name }

// Times returns f limited to the first n requests that match it, n > 0.
func Times(n int, f Fault) Fault {
	f.times = int64(n)
	return f
}

// Func returns any other fault. A response needs a body, which may be http.NoBody. An
// error is an error of the connection.
func Func(name string, respond func(*http.Request) (*http.Response, error)) Fault {
	return Fault{name: name, respond: func(e exchange) (*http.Response, error) { return respond(e.req) }}
}

// At matches requests for exactly one of the paths.
func At(paths ...string) func(*http.Request) bool {
	return func(req *http.Request) bool { return slices.Contains(paths, req.URL.Path) }
}

// Under matches requests for a path and for all below it.
func Under(path string) func(*http.Request) bool {
	path = strings.TrimSuffix(path, "/")
	return func(req *http.Request) bool {
		rest, ok := strings.CutPrefix(req.URL.Path, path)
		return ok && (rest == "" || rest[0] == '/')
	}
}

// InGroup matches requests for one of the groups, none of them the core group,
// and for their versions.
func InGroup(names ...string) func(*http.Request) bool {
	return func(req *http.Request) bool {
		return slices.ContainsFunc(names, func(name string) bool { return Under("/apis/" + name)(req) })
	}
}

// All matches every request.
func All() func(*http.Request) bool {
	return func(*http.Request) bool { return true }
}

// SetFault makes the matching requests fail until remove is called. If several faults
// match a request, the one set last applies.
func (s *Server) SetFault(match func(*http.Request) bool, f Fault) (remove func()) {
	set := &rule{match: match, fault: f}
	s.editRules(func(rules []*rule) []*rule { return append(rules, set) })
	return func() {
		s.editRules(func(rules []*rule) []*rule {
			return slices.DeleteFunc(rules, func(r *rule) bool { return r == set })
		})
	}
}

// ClearFaults removes all faults.
func (s *Server) ClearFaults() {
	s.editRules(func([]*rule) []*rule { return nil })
}

// editRules replaces the rules with a new slice: requests read the old one without the
// lock.
func (s *Server) editRules(edit func([]*rule) []*rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = edit(slices.Clone(s.rules))
}

type rule struct {
	match func(*http.Request) bool
	fault Fault
	used  atomic.Int64
}

// pickFault returns the fault for a request, or nil if it is answered truly.
func pickFault(rules []*rule, req *http.Request) *Fault {
	for _, r := range slices.Backward(rules) {
		if r.match(req) && r.take() {
			return &r.fault
		}
	}
	return nil
}

func (r *rule) take() bool {
	return r.fault.times == 0 || r.used.Add(1) <= r.fault.times
}

// An exchange is what a fault gets.
type exchange struct {
	req   *http.Request
	world *world
}

// honest returns the true answer to a client that knows nothing yet.
func (e exchange) honest() (*http.Response, error) {
	req := e.req.Clone(e.req.Context())
	req.Header.Del("If-None-Match")
	return e.world.respond(req)
}

// altered is a fault that changes the true answer.
func altered(name string, alter func(e exchange, resp *http.Response)) Fault {
	return Fault{name: name, respond: func(e exchange) (*http.Response, error) {
		resp, err := e.honest()
		if err == nil {
			alter(e, resp)
		}
		return resp, err
	}}
}

// spoiled is a fault that has code 200 and the true answer's other headers, but another body,
// which says that it is of a form.
func spoiled(name string, body func(f form) (form, []byte)) Fault {
	return altered(name, func(e exchange, resp *http.Response) {
		f, data := body(e.form())
		resp.Status, resp.StatusCode = "200 OK", http.StatusOK
		resp.Header.Set("Content-Type", f.contentType())
		setBody(resp, data)
	})
}

// always is a fault that gives the same answer to every request.
func always(name string, answer func() (*http.Response, error)) Fault {
	return Fault{name: name, respond: func(exchange) (*http.Response, error) { return answer() }}
}

func (e exchange) target() target {
	t, _ := parsePath(e.req.URL.Path)
	return t
}

// form returns the form that the client and the server agree on, or else legacy.
func (e exchange) form() form {
	f, _ := e.world.forms.negotiate(e.req.Header.Get("Accept"), e.target().root())
	return f
}
