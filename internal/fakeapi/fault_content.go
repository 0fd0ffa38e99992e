// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Status is an error of the API server itself: a metav1.Status. A positive
// retryAfter is in seconds.
func Status(code, retryAfter int) Fault {
	return Audited(always(fmt.Sprintf("Status(%d)", code), func() (*http.Response, error) { return statusResponse(code, retryAfter) }))
}

// NotFound is the API server's own 404, for what it does not serve.
func NotFound() Fault {
	return Audited(Fault{name: "NotFound", respond: func(e exchange) (*http.Response, error) { return e.world.notFound() }})
}

// LostRoute is the 404 of a gateway that has no route to the server: that of net/http, so of
// any Go program, and the text of a kube-apiserver's.
func LostRoute() Fault {
	return always("LostRoute", func() (*http.Response, error) { return textResponse(http.StatusNotFound, "404 page not found\n"), nil })
}

// LostService is the 404 of another API server, through whose proxy for services this one is
// reached, and which has no such service any more.
func LostService(name string) Fault {
	return Audited(always("LostService", func() (*http.Response, error) {
		status := apierrors.NewNotFound(schema.GroupResource{Resource: "services"}, name).Status()
		status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		body, err := json.Marshal(status)
		return response(http.StatusNotFound, jsonType, append(body, '\n')), err
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
	return always(fmt.Sprintf("Text(%d)", code), func() (*http.Response, error) { return textResponse(code, text), nil })
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

// WrongKind is a well-formed list of pods.
func WrongKind() Fault {
	return spoiled("WrongKind", func(f form) (form, []byte) {
		body, _ := encode(&corev1.PodList{ // which never fails
			TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"},
			Items:    []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "a-pod"}}},
		}, f.protobuf)
		return f, body
	})
}

// WrongContentType is the true document, called text/plain.
func WrongContentType() Fault {
	return altered("WrongContentType", func(_ exchange, resp *http.Response) { resp.Header.Set("Content-Type", "text/plain") })
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
