// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing/iotest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Fault is a way of answering wrongly, or not at all.
//
// A fault ignores If-None-Match: it spoils the whole document, so a client that already
// knows the document meets the fault, too. A spoiled answer keeps the headers of the true
// one, including its ETag, as behind a proxy that damages bodies: a client must not
// remember the ETag of what it could not read.
type Fault struct {
	name    string
	times   int64 // 0: without end
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
// with the header of a form.
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

// Refused is a server that is not there.
func Refused() Fault {
	return always("Refused", func() (*http.Response, error) {
		return nil, connectionError("dial", "connect", syscall.ECONNREFUSED)
	})
}

// ResetMidBody sends half of the true body and resets the connection.
func ResetMidBody() Fault {
	return broken("ResetMidBody", connectionError("read", "read", syscall.ECONNRESET))
}

// Truncated sends half of the true body, with the Content-Length of all of it.
func Truncated() Fault { return broken("Truncated", io.ErrUnexpectedEOF) }

// broken sends the true answer up to the middle of the body, and then the error.
func broken(name string, err error) Fault {
	return altered(name, func(_ exchange, resp *http.Response) {
		half := io.LimitReader(resp.Body, resp.ContentLength/2)
		resp.Body = io.NopCloser(io.MultiReader(half, iotest.ErrReader(err)))
	})
}

// TruncatedClean sends half of the true body as if that were all.
func TruncatedClean() Fault {
	return altered("TruncatedClean", func(_ exchange, resp *http.Response) {
		resp.ContentLength /= 2
		resp.Body = io.NopCloser(io.LimitReader(resp.Body, resp.ContentLength))
	})
}

// Timeout never answers: it waits until the request's context ends.
func Timeout() Fault {
	return Fault{name: "Timeout", respond: func(e exchange) (*http.Response, error) {
		<-e.req.Context().Done()
		return nil, e.req.Context().Err()
	}}
}

// Late is the true answer, as of the time when the request arrived, after d.
func Late(d time.Duration) Fault {
	return Fault{name: "Late", respond: func(e exchange) (*http.Response, error) {
		if err := sleep(e.req.Context(), d); err != nil {
			return nil, err
		}
		return e.world.respond(e.req)
	}}
}

// SlowDrip sends the true body one byte each interval, and then white space for
// ever, until the request's context ends.
func SlowDrip(interval time.Duration) Fault {
	return altered("SlowDrip", func(e exchange, resp *http.Response) {
		setStream(resp, drip{e.req.Context(), interval, io.MultiReader(resp.Body, blanks{})})
	})
}

// Huge sends the true document in JSON, and n bytes of white space after it: valid, but too
// large. The bytes are made as they are read.
func Huge(n int64) Fault {
	return Fault{name: fmt.Sprintf("Huge(%d)", n), respond: func(e exchange) (*http.Response, error) {
		req := e.req.Clone(e.req.Context())
		req.Header.Set("Accept", e.form().json().contentType())
		resp, err := exchange{req, e.world}.honest()
		if err == nil {
			setStream(resp, io.MultiReader(resp.Body, io.LimitReader(blanks{}, n)))
		}
		return resp, err
	}}
}

func connectionError(op, syscallName string, err error) error {
	address := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 6443}
	return &net.OpError{Op: op, Net: "tcp", Addr: address, Err: os.NewSyscallError(syscallName, err)}
}

// drip reads one byte each interval.
type drip struct {
	ctx      context.Context
	interval time.Duration
	source   io.Reader
}

func (d drip) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := sleep(d.ctx, d.interval); err != nil {
		return 0, err
	}
	return d.source.Read(p[:1])
}

// blanks are white space without end.
type blanks struct{}

func (blanks) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// Status is an error of the API server itself: a metav1.Status. A positive
// retryAfter is in seconds.
func Status(code, retryAfter int) Fault {
	return Audited(
		always(
			fmt.Sprintf("Status(%d)", code),
			func() (*http.Response, error) { return statusResponse(code, retryAfter) },
		),
	)
}

// NotFound is the API server's own 404, for what it does not serve.
func NotFound() Fault {
	return Audited(
		Fault{name: "NotFound", respond: func(e exchange) (*http.Response, error) { return e.world.notFound() }},
	)
}

// LostRoute is the 404 of a gateway that has no route to the server: that of net/http, so of
// any Go program, and the text of a kube-apiserver's.
func LostRoute() Fault {
	return always(
		"LostRoute",
		func() (*http.Response, error) { return textResponse(http.StatusNotFound, "404 page not found\n"), nil },
	)
}

// LostService is the 404 of another API server, through whose proxy for services this one is
// reached, and which has no such service any more.
func LostService(name string) Fault {
	return Audited(always("LostService", func() (*http.Response, error) {
		return errorResponse(apierrors.NewNotFound(schema.GroupResource{Resource: "services"}, name))
	}))
}

// Audited is f as an answer of the API server itself, with the Audit-Id of its answers.
func Audited(f Fault) Fault {
	respond := f.respond
	f.respond = func(e exchange) (*http.Response, error) { return e.world.audited(respond(e)) }
	return f
}

// StatusText is an error of a proxy or load balancer: a page of HTML.
func StatusText(code int) Fault {
	return page(fmt.Sprintf("StatusText(%d)", code), code, http.StatusText(code))
}

// LoginPage is a page of HTML with code 200.
func LoginPage() Fault { return page("LoginPage", http.StatusOK, "Please sign in") }

func page(name string, code int, title string) Fault {
	const html = "<!DOCTYPE html>\n<html><head><title>%[1]s</title></head><body><h1>%[1]s</h1></body></html>\n"
	return always(name, func() (*http.Response, error) {
		return response(code, "text/html; charset=utf-8", fmt.Appendf(nil, html, title)), nil
	})
}

// Text is an answer in plain text, of a proxy before the server.
func Text(code int, text string) Fault {
	return always(
		fmt.Sprintf("Text(%d)", code),
		func() (*http.Response, error) { return textResponse(code, text), nil },
	)
}

// Empty is an answer without a body and without a Content-Type.
func Empty(code int) Fault { return empty(fmt.Sprintf("Empty(%d)", code), code) }

// Unexpected304 is a 304, whether the request has If-None-Match or not.
func Unexpected304() Fault { return empty("Unexpected304", http.StatusNotModified) }

func empty(name string, code int) Fault {
	return always(name, func() (*http.Response, error) { return response(code, "", nil), nil })
}

// Redirect sends the client to an absolute URL, whose host gives true answers.
func Redirect(to string) Fault {
	return Fault{name: "Redirect", respond: func(e exchange) (*http.Response, error) {
		if location, err := url.Parse(to); err == nil && host(e.req) == location.Host {
			return e.honest()
		}
		resp := response(http.StatusFound, "", nil)
		resp.Header.Set("Location", to)
		return resp, nil
	}}
}

// Empty200 is no body at all, with code 200.
func Empty200() Fault {
	return spoiled("Empty200", func(f form) (form, []byte) { return f, nil })
}

// EmptyObject is {}.
func EmptyObject() Fault {
	return spoiled("EmptyObject", func(f form) (form, []byte) { return f.json(), []byte("{}") })
}

// NotJSON is a text with the Content-Type of JSON.
func NotJSON() Fault {
	return spoiled("NotJSON", func(f form) (form, []byte) { return f.json(), []byte("upstream connect error") })
}

// GarbageProtobuf is the first bytes of a protobuf document and then noise,
// the same every time, whether or not the client asked for protobuf.
func GarbageProtobuf() Fault {
	return spoiled("GarbageProtobuf", func(f form) (form, []byte) {
		body := []byte(protobufMagic)
		noise := rand.New(rand.NewPCG(1, 2))
		for range 500 {
			body = append(body, byte(noise.Uint32()))
		}
		return form{version: f.version, protobuf: true}, body
	})
}

// WrongKind is a well-formed object of the right API group, and of another kind.
func WrongKind() Fault {
	return spoiled("WrongKind", func(f form) (form, []byte) {
		body, _ := encode(&corev1.PodList{ // which never fails
			TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "apidiscovery.k8s.io/v2"},
			Items:    []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "a-pod"}}},
		}, f.protobuf)
		return f, body
	})
}

// WrongContentType is the true document, called text/plain.
func WrongContentType() Fault {
	return altered(
		"WrongContentType",
		func(_ exchange, resp *http.Response) { resp.Header.Set("Content-Type", "text/plain") },
	)
}

// LieETag is the true document with the given ETag, which is sent as it is: it includes
// the quotes.
func LieETag(etag string) Fault {
	return altered("LieETag", func(_ exchange, resp *http.Response) { resp.Header.Set("ETag", etag) })
}

// NoETag is the true document without its ETag, as after a proxy that drops it.
func NoETag() Fault {
	return altered("NoETag", func(_ exchange, resp *http.Response) { resp.Header.Del("ETag") })
}

// EmptyGroupList is a well-formed document of the right kind without contents: no
// groups, versions or resources, depending on the path. It has its own ETag.
func EmptyGroupList() Fault {
	return Fault{name: "EmptyGroupList", respond: func(e exchange) (*http.Response, error) {
		return newWorld(nil, nil, e.world.forms).serve(e.target(), e.form(), "")
	}}
}

// NullItems is the same in JSON, with null for each empty list.
func NullItems() Fault {
	return Fault{name: "NullItems", respond: func(e exchange) (*http.Response, error) {
		resp, err := newWorld(nil, nil, e.world.forms).serve(e.target(), e.form().json(), "")
		if err != nil {
			return nil, err
		}
		body, err := io.ReadAll(resp.Body)
		setBody(resp, bytes.ReplaceAll(body, []byte("[]"), []byte("null")))
		return resp, err
	}}
}

// DuplicateGroups lists every group twice. It has its own ETag.
func DuplicateGroups() Fault {
	return Fault{name: "DuplicateGroups", respond: func(e exchange) (*http.Response, error) {
		twice := newWorld(slices.Concat(e.world.groups, e.world.groups), nil, e.world.forms)
		return exchange{e.req, twice}.honest()
	}}
}
