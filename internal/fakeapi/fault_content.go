// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Status is an error of the API server itself: a metav1.Status. A positive
// retryAfter is in seconds.
func Status(code, retryAfter int) Fault {
	return Fault{name: fmt.Sprintf("Status(%d)", code), respond: func(exchange) (*http.Response, error) {
		return statusResponse(code, retryAfter)
	}}
}

// StatusText is an error of a proxy or load balancer: a page of HTML.
func StatusText(code int) Fault {
	return Fault{name: fmt.Sprintf("StatusText(%d)", code), respond: func(exchange) (*http.Response, error) {
		return page(code, http.StatusText(code)), nil
	}}
}

// Text is an answer in plain text, of a proxy before the server, or of a handler that
// does not belong to the API machinery. The API server itself answers "404 page not
// found\n" for a group that it does not serve.
func Text(code int, text string) Fault {
	return Fault{name: fmt.Sprintf("Text(%d)", code), respond: func(exchange) (*http.Response, error) {
		return textResponse(code, text), nil
	}}
}

// Empty is an answer without a body and without a Content-Type.
func Empty(code int) Fault {
	return Fault{name: fmt.Sprintf("Empty(%d)", code), respond: func(exchange) (*http.Response, error) {
		return response(code, "", nil), nil
	}}
}

// LoginPage is a page of HTML with code 200.
func LoginPage() Fault {
	return Fault{name: "LoginPage", respond: func(exchange) (*http.Response, error) {
		return page(http.StatusOK, "Please sign in"), nil
	}}
}

// Redirect sends the client to an absolute URL, whose host gives true answers.
func Redirect(to string) Fault {
	return Fault{name: "Redirect", respond: func(e exchange) (*http.Response, error) {
		location, err := url.Parse(to)
		if err != nil {
			return nil, err
		}
		if host(e.req) == location.Host {
			return e.honest()
		}
		resp := page(http.StatusFound, "Found")
		resp.Header.Set("Location", to)
		return resp, nil
	}}
}

// Unexpected304 is a 304, whether the request has If-None-Match or not.
func Unexpected304() Fault {
	return Fault{name: "Unexpected304", respond: func(exchange) (*http.Response, error) {
		return response(http.StatusNotModified, "", nil), nil
	}}
}

// Empty200 is no body at all, with code 200.
func Empty200() Fault {
	return Fault{name: "Empty200", respond: func(e exchange) (*http.Response, error) {
		return e.spoiled(e.form().contentType(), nil)
	}}
}

// EmptyObject is {}.
func EmptyObject() Fault {
	return Fault{name: "EmptyObject", respond: func(e exchange) (*http.Response, error) {
		return e.spoiled(e.form().json().contentType(), []byte("{}"))
	}}
}

// NotJSON is a text with the Content-Type of JSON.
func NotJSON() Fault {
	return Fault{name: "NotJSON", respond: func(e exchange) (*http.Response, error) {
		return e.spoiled(e.form().json().contentType(), []byte("upstream connect error"))
	}}
}

// GarbageProtobuf is the first bytes of a protobuf document and then noise,
// the same every time, whether or not the client asked for protobuf.
func GarbageProtobuf() Fault {
	return Fault{name: "GarbageProtobuf", respond: func(e exchange) (*http.Response, error) {
		body := []byte(protobufMagic)
		noise := rand.New(rand.NewPCG(1, 2))
		for range 500 {
			body = append(body, byte(noise.Uint32()))
		}
		f := form{version: e.form().version, protobuf: true}
		return e.spoiled(f.contentType(), body)
	}}
}

// WrongContentType is the true document, called text/plain.
func WrongContentType() Fault {
	return Fault{name: "WrongContentType", respond: func(e exchange) (*http.Response, error) {
		resp, err := e.honest()
		if err != nil {
			return nil, err
		}
		resp.Header.Set("Content-Type", "text/plain")
		return resp, nil
	}}
}

// WrongKind is a well-formed list of pods.
func WrongKind() Fault {
	return Fault{name: "WrongKind", respond: func(e exchange) (*http.Response, error) {
		f := e.form()
		body, err := encode(&corev1.PodList{
			TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"},
			Items:    []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "a-pod"}}},
		}, f.protobuf)
		if err != nil {
			return nil, err
		}
		return e.spoiled(f.contentType(), body)
	}}
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

// LieETag is the true document with the given ETag, which is sent as it is: it includes
// the quotes.
func LieETag(etag string) Fault {
	return withETag("LieETag", etag)
}

// NoETag is the true document without its ETag, as after a proxy that drops it.
func NoETag() Fault {
	return withETag("NoETag", "")
}

func withETag(name, etag string) Fault {
	return Fault{name: name, respond: func(e exchange) (*http.Response, error) {
		resp, err := e.honest()
		if err != nil {
			return nil, err
		}
		resp.Header.Del("ETag")
		if etag != "" {
			resp.Header.Set("ETag", etag)
		}
		return resp, nil
	}}
}

func page(code int, title string) *http.Response {
	const html = "<!DOCTYPE html>\n<html><head><title>%[1]s</title></head><body><h1>%[1]s</h1></body></html>\n"
	return response(code, "text/html; charset=utf-8", fmt.Appendf(nil, html, title))
}

// padding returns a last field of n bytes, and the end of the document.
func padding(n int64, end string) io.Reader {
	return io.MultiReader(
		strings.NewReader(`,"padding":"`),
		io.LimitReader(endless('x'), n),
		strings.NewReader(`"`+end),
	)
}
