// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Each fault, in memory and over TCP, for a client that knows the document
// already and accepts every form.
func TestFaultsAnswerAsTheySay(t *testing.T) {
	const (
		target = "/apis"
		accept = v2Protobuf + "," + v2JSON + "," + plainJSON
	)
	for _, test := range []struct {
		fault Fault
		check func(t *testing.T, got, honest result, tcp bool)
	}{
		{Refused(), func(t *testing.T, got, _ result, tcp bool) {
			if !tcp {
				wantError(t, got, syscall.ECONNREFUSED)
			}
			if got.Err == nil {
				t.Errorf("answered: %+v", got)
			}
		}},
		{ResetMidBody(), func(t *testing.T, got, honest result, tcp bool) {
			wantError(t, got, syscall.ECONNRESET)
			if !tcp {
				wantBody(t, got, honest.Body[:len(honest.Body)/2])
			}
		}},
		{Truncated(), func(t *testing.T, got, honest result, _ bool) {
			wantError(t, got, io.ErrUnexpectedEOF)
			wantBody(t, got, honest.Body[:len(honest.Body)/2])
			wantHeader(t, got, "ETag", honest.Header.Get("ETag"))
		}},
		{TruncatedClean(), func(t *testing.T, got, honest result, _ bool) {
			wantAnswer(t, got, 200, v2Protobuf)
			wantBody(t, got, honest.Body[:len(honest.Body)/2])
			wantHeader(t, got, "ETag", honest.Header.Get("ETag"))
		}},
		{Text(404, "404 page not found\n"), func(t *testing.T, got, _ result, _ bool) {
			wantAnswer(t, got, 404, "text/plain; charset=utf-8")
			wantBody(t, got, "404 page not found\n")
		}},
		{Empty(404), func(t *testing.T, got, _ result, _ bool) {
			wantAnswer(t, got, 404, "")
			wantBody(t, got, "")
		}},
		{Status(429, 7), func(t *testing.T, got, _ result, _ bool) {
			wantAnswer(t, got, 429, plainJSON)
			wantHeader(t, got, "Retry-After", "7")
			wantContains(t, got, `"kind":"Status"`, `"reason":"TooManyRequests"`, `"retryAfterSeconds":7`, `"code":429`)
		}},
		{Status(401, 0), func(t *testing.T, got, _ result, _ bool) {
			wantAnswer(t, got, 401, plainJSON)
			wantHeader(t, got, "Retry-After", "")
			wantContains(t, got, `"reason":"Unauthorized"`)
		}},
		{StatusText(502), func(t *testing.T, got, _ result, _ bool) {
			wantAnswer(t, got, 502, "text/html; charset=utf-8")
			wantContains(t, got, "<h1>Bad Gateway</h1>")
		}},
		{LoginPage(), func(t *testing.T, got, _ result, _ bool) {
			wantAnswer(t, got, 200, "text/html; charset=utf-8")
			wantHeader(t, got, "ETag", "")
			wantContains(t, got, "sign in")
		}},
		{Unexpected304(), func(t *testing.T, got, _ result, _ bool) {
			wantAnswer(t, got, 304, "")
			wantBody(t, got, "")
		}},
		{Empty200(), func(t *testing.T, got, honest result, _ bool) {
			wantAnswer(t, got, 200, v2Protobuf)
			wantBody(t, got, "")
			wantHeader(t, got, "ETag", honest.Header.Get("ETag"))
		}},
		{EmptyObject(), func(t *testing.T, got, _ result, _ bool) {
			wantAnswer(t, got, 200, v2JSON)
			wantBody(t, got, "{}")
		}},
		{NotJSON(), func(t *testing.T, got, _ result, _ bool) {
			wantAnswer(t, got, 200, v2JSON)
			if json.Valid([]byte(got.Body)) || got.Body == "" {
				t.Errorf("body: %q", got.Body)
			}
		}},
		{GarbageProtobuf(), func(t *testing.T, got, _ result, _ bool) {
			wantAnswer(t, got, 200, v2Protobuf)
			if !strings.HasPrefix(got.Body, "k8s\x00") || len(got.Body) != 504 {
				t.Errorf("body: %q", got.Body)
			}
		}},
		{WrongContentType(), func(t *testing.T, got, honest result, _ bool) {
			wantAnswer(t, got, 200, "text/plain")
			wantBody(t, got, honest.Body)
		}},
		{WrongKind(), func(t *testing.T, got, _ result, _ bool) {
			wantAnswer(t, got, 200, v2Protobuf)
			envelope := decodeProtobuf(t, got.Body)
			var pods corev1.PodList
			if err := pods.Unmarshal(envelope.Raw); err != nil || envelope.Kind != "PodList" || len(pods.Items) != 1 {
				t.Errorf("%v, %v, %v", envelope.TypeMeta, pods, err)
			}
		}},
		{EmptyGroupList(), func(t *testing.T, got, honest result, _ bool) {
			wantAnswer(t, got, 200, v2Protobuf)
			if raw := decodeProtobuf(t, got.Body).Raw; len(raw) > 10 {
				t.Errorf("not empty: %q", raw)
			}
			if etag := got.Header.Get("ETag"); etag == "" || etag == honest.Header.Get("ETag") {
				t.Errorf("ETag %q", etag)
			}
		}},
		{NullItems(), func(t *testing.T, got, _ result, _ bool) {
			wantAnswer(t, got, 200, v2JSON)
			wantBody(t, got, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":null}`+"\n")
		}},
		{DuplicateGroups(), func(t *testing.T, got, honest result, _ bool) {
			wantAnswer(t, got, 200, v2Protobuf)
			for _, name := range []string{"g0001.example.com", "g0002.example.com"} {
				want, twice := strings.Count(honest.Body, name), strings.Count(got.Body, name)
				if twice != 2*want {
					t.Errorf("%s is there %d times, not twice %d", name, twice, want)
				}
			}
		}},
		{LieETag(`"lie"`), func(t *testing.T, got, honest result, _ bool) {
			wantAnswer(t, got, 200, v2Protobuf)
			wantBody(t, got, honest.Body)
			wantHeader(t, got, "ETag", `"lie"`)
		}},
		{NoETag(), func(t *testing.T, got, honest result, _ bool) {
			wantAnswer(t, got, 200, v2Protobuf)
			wantBody(t, got, honest.Body)
			wantHeader(t, got, "ETag", "")
		}},
		{Huge(1 << 20), func(t *testing.T, got, _ result, _ bool) {
			wantAnswer(t, got, 200, v2JSON)
			if len(got.Body) < 1<<20 || !json.Valid([]byte(got.Body)) {
				t.Errorf("%d bytes, valid: %v", len(got.Body), json.Valid([]byte(got.Body)))
			}
			if items := decodeJSON(t, got.Body).Items; len(items) != 2 {
				t.Errorf("%d groups", len(items))
			}
		}},
		{Func("Teapot", func(*http.Request) (*http.Response, error) {
			return response(418, "text/plain", []byte("short and stout")), nil
		}), func(t *testing.T, got, _ result, _ bool) {
			wantAnswer(t, got, 418, "text/plain")
			wantBody(t, got, "short and stout")
		}},
		{Func("Broken", func(*http.Request) (*http.Response, error) {
			return nil, errors.New("broken")
		}), func(t *testing.T, got, _ result, _ bool) {
			if got.Err == nil {
				t.Errorf("answered: %+v", got)
			}
		}},
	} {
		t.Run(test.fault.String(), func(t *testing.T) {
			forBothOrigins(t, func(t *testing.T, s *Server, o origin, tcp bool) {
				honest := o.get(t, target, accept, "")
				heal := s.SetFault(At(target), test.fault)
				got := o.get(t, target, accept, honest.Header.Get("ETag"))
				test.check(t, got, honest, tcp)
				if code := o.get(t, "/api", accept, "").Code; code != 200 {
					t.Errorf("another path: %d", code)
				}
				heal()
				if code := o.get(t, target, accept, honest.Header.Get("ETag")).Code; code != 304 {
					t.Errorf("after the fault: %d", code)
				}
			})
		})
	}
}
