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
)

// Each fault, for a client that knows the document already and accepts every form.
func TestFaultsAnswerAsTheySay(t *testing.T) {
	const same, another = "the true one", "another" // ETags
	half := func(got, honest result) bool { return got.Body == honest.Body[:len(honest.Body)/2] }
	says := func(text string) func(got, _ result) bool {
		return func(got, _ result) bool { return got.Body == text || text != "" && strings.Contains(got.Body, text) }
	}
	for _, test := range []struct {
		fault Fault
		code  int // 0: an error
		err   error
		etag  string
		check func(got, honest result) bool
	}{
		{Refused(), 0, syscall.ECONNREFUSED, "", says("")},
		{ResetMidBody(), 200, syscall.ECONNRESET, same, half},
		{Truncated(), 200, io.ErrUnexpectedEOF, same, half},
		{TruncatedClean(), 200, nil, same, half},
		{LostService("tenant"), 404, nil, "", says(`"name":"tenant"`)},
		{NotFound(), 404, nil, "", says("404 page not found\n")},
		{Text(404, "404 page not found\n"), 404, nil, "", says("404 page not found\n")},
		{Empty(404), 404, nil, "", says("")},
		{Status(429, 7), 429, nil, "", func(got, _ result) bool {
			return strings.Contains(got.Body, `"reason":"TooManyRequests","details":{"retryAfterSeconds":7},"code":429`) && got.Header.Get("Retry-After") == "7"
		}},
		{StatusText(502), 502, nil, "", says("<h1>Bad Gateway</h1>")},
		{LoginPage(), 200, nil, "", says("sign in")},
		{Unexpected304(), 304, nil, "", says("")},
		{Empty200(), 200, nil, same, says("")},
		{EmptyObject(), 200, nil, same, says("{}")},
		{NotJSON(), 200, nil, same, says("upstream connect error")},
		{WrongContentType(), 200, nil, same, func(got, honest result) bool {
			return got.Header.Get("Content-Type") == "text/plain" && got.Body == honest.Body
		}},
		{LieETag(`"lie"`), 200, nil, `"lie"`, func(got, honest result) bool { return got.Body == honest.Body }},
		{NoETag(), 200, nil, "", func(got, honest result) bool { return got.Body == honest.Body }},
		{GarbageProtobuf(), 200, nil, same, says("k8s\x00")},
		{WrongKind(), 200, nil, same, says("PodList")},
		{EmptyGroupList(), 200, nil, another, func(got, honest result) bool { return len(got.Body) < len(honest.Body) }},
		{NullItems(), 200, nil, another, says(`"items":null}`)},
		{DuplicateGroups(), 200, nil, another, func(got, honest result) bool {
			return strings.Count(got.Body, "g0002.example.com") == 2*strings.Count(honest.Body, "g0002.example.com")
		}},
		{Huge(1 << 20), 200, nil, same, func(got, _ result) bool { return len(got.Body) > 1<<20 && json.Valid([]byte(got.Body)) }},
		{Func("Teapot", func(*http.Request) (*http.Response, error) {
			return response(418, "text/plain", []byte("short and stout")), nil
		}), 418, nil, "", says("short and stout")},
	} {
		t.Run(test.fault.String(), func(t *testing.T) {
			s := New(Typical(2, 1, 1)...)
			honest := get(t, s, "/apis", everyForm, "")
			etag := honest.Header.Get("ETag")
			heal := s.SetFault(At("/apis"), test.fault)
			got := get(t, s, "/apis", everyForm, etag)
			if !errors.Is(got.Err, test.err) || got.Code != test.code || !test.check(got, honest) {
				t.Errorf("got %+v", got)
			}
			if is := got.Header.Get("ETag"); is != test.etag && (test.etag != same || is != etag) && (test.etag != another || is == etag || is == "") {
				t.Errorf("ETag %q, want %q", is, test.etag)
			}
			if code := get(t, s, "/api", everyForm, "").Code; code != 200 {
				t.Errorf("another path: %d", code)
			}
			heal()
			if code := get(t, s, "/apis", everyForm, etag).Code; code != 304 {
				t.Errorf("after the fault: %d", code)
			}
		})
	}
}
