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
		text, html    = "text/plain; charset=utf-8", "text/html; charset=utf-8"
		whole, half   = "the true body", "half of the true body"
		same, another = "the true one", "another"
		teapot        = "short and stout"
	)
	broken := errors.New("broken")
	for _, test := range []struct {
		fault             Fault
		code              int // 0: an error, in memory err
		err               error
		contentType, body string // a body that begins with … contains the rest
		etag              string
		check             func(got, honest result) bool
	}{
		{fault: Refused(), err: syscall.ECONNREFUSED},
		{fault: ResetMidBody(), code: 200, err: syscall.ECONNRESET, contentType: v2Protobuf, etag: same},
		{fault: Truncated(), code: 200, err: io.ErrUnexpectedEOF, contentType: v2Protobuf, body: half, etag: same},
		{fault: TruncatedClean(), code: 200, contentType: v2Protobuf, body: half, etag: same},
		{fault: Text(404, "404 page not found\n"), code: 404, contentType: text, body: "404 page not found\n"},
		{fault: Empty(404), code: 404},
		{
			fault: Status(429, 7), code: 429, contentType: plainJSON, body: `…"reason":"TooManyRequests","details":{"retryAfterSeconds":7},"code":429`,
			check: func(got, _ result) bool { return got.Header.Get("Retry-After") == "7" },
		},
		{fault: Status(401, 0), code: 401, contentType: plainJSON, body: `…"reason":"Unauthorized"`},
		{fault: StatusText(502), code: 502, contentType: html, body: "…<h1>Bad Gateway</h1>"},
		{fault: LoginPage(), code: 200, contentType: html, body: "…sign in"},
		{fault: Unexpected304(), code: 304},
		{fault: Empty200(), code: 200, contentType: v2Protobuf, etag: same},
		{fault: EmptyObject(), code: 200, contentType: v2JSON, body: "{}", etag: same},
		{fault: NotJSON(), code: 200, contentType: v2JSON, body: "upstream connect error", etag: same},
		{fault: WrongContentType(), code: 200, contentType: "text/plain", body: whole, etag: same},
		{fault: LieETag(`"lie"`), code: 200, contentType: v2Protobuf, body: whole, etag: `"lie"`},
		{fault: NoETag(), code: 200, contentType: v2Protobuf, body: whole},
		{fault: GarbageProtobuf(), code: 200, contentType: v2Protobuf, body: "…k8s\x00", etag: same, check: func(got, _ result) bool { return len(got.Body) == 504 }},
		{fault: WrongKind(), code: 200, contentType: v2Protobuf, body: "…PodList", etag: same, check: func(got, _ result) bool {
			var pods corev1.PodList
			return pods.Unmarshal(decodeProtobuf(t, got.Body).Raw) == nil && len(pods.Items) == 1
		}},
		{fault: EmptyGroupList(), code: 200, contentType: v2Protobuf, body: "…", etag: another, check: func(got, _ result) bool {
			return len(decodeProtobuf(t, got.Body).Raw) <= 10
		}},
		{
			fault: NullItems(), code: 200, contentType: v2JSON, etag: another,
			body: `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":null}` + "\n",
		},
		{fault: DuplicateGroups(), code: 200, contentType: v2Protobuf, body: "…", etag: another, check: func(got, honest result) bool {
			return strings.Count(got.Body, "g0002.example.com") == 2*strings.Count(honest.Body, "g0002.example.com")
		}},
		{fault: Huge(1 << 20), code: 200, contentType: v2JSON, body: "…", etag: same, check: func(got, _ result) bool {
			return len(got.Body) > 1<<20 && json.Valid([]byte(got.Body)) && len(decodeJSON(t, got.Body).Items) == 2
		}},
		{fault: Func("Teapot", func(*http.Request) (*http.Response, error) {
			return response(418, "text/plain", []byte(teapot)), nil
		}), code: 418, contentType: "text/plain", body: teapot},
		{fault: Func("Broken", func(*http.Request) (*http.Response, error) { return nil, broken }), err: broken},
	} {
		t.Run(test.fault.String(), func(t *testing.T) {
			forBothOrigins(t, func(t *testing.T, s *Server, o origin, tcp bool) {
				honest := o.get(t, "/apis", everyForm, "")
				etag := honest.Header.Get("ETag")
				heal := s.SetFault(At("/apis"), test.fault)
				got := o.get(t, "/apis", everyForm, etag)
				switch {
				case test.err != nil && tcp && got.Err != nil: // over TCP a reset may come first
				case !errors.Is(got.Err, test.err), got.Code != test.code, got.Header.Get("Content-Type") != test.contentType:
					t.Errorf("got %d of type %q, %v", got.Code, got.Header.Get("Content-Type"), got.Err)
				}
				want := map[string]string{whole: honest.Body, half: honest.Body[:len(honest.Body)/2]}[test.body]
				part, isPart := strings.CutPrefix(test.body, "…")
				switch {
				case isPart && strings.Contains(got.Body, part), test.err != nil, got.Body == test.body, got.Body == want && want != "":
				default:
					t.Errorf("body %q, want %q", got.Body, test.body)
				}
				switch is := got.Header.Get("ETag"); {
				case is == test.etag, test.err != nil && tcp, test.etag == same && is == etag, test.etag == another && is != etag && is != "":
				default:
					t.Errorf("ETag %q, want %q", is, test.etag)
				}
				if test.check != nil && !test.check(got, honest) {
					t.Errorf("wrong: %+v", got)
				}
				if code := o.get(t, "/api", everyForm, "").Code; code != 200 {
					t.Errorf("another path: %d", code)
				}
				heal()
				if code := o.get(t, "/apis", everyForm, etag).Code; code != 304 {
					t.Errorf("after the fault: %d", code)
				}
			})
		})
	}
}
