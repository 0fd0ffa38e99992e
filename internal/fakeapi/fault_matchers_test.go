// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTimes(t *testing.T) {
	s := New(sample()...)
	s.SetFault(All(), Times(1, Status(500, 0)))
	s.SetFault(Under("/apis/"), Times(2, Status(503, 0)))
	for _, path := range []string{"/apis/example.com", "/api", "/apis", "/apis", "/apis"} {
		inMemoryOrigin(s).get(t, path, plainJSON, "")
	}
	want := []string{
		"GET /apis/example.com  Status(503) 503",
		"GET /api  Status(500) 500",
		"GET /apis  Status(503) 503",
		"GET /apis  legacy 200",
		"GET /apis  legacy 200",
	}
	if diff := cmp.Diff(want, lines(s.TakeRequests())); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}

	s.SetFault(All(), LoginPage())
	s.SetFault(At("/api"), Unexpected304())
	s.ClearFaults()
	if r := inMemoryOrigin(s).get(t, "/api", plainJSON, ""); r.Code != 200 {
		t.Errorf("after ClearFaults: %d", r.Code)
	}
}

func TestMatchers(t *testing.T) {
	for _, test := range []struct {
		name  string
		match func(*http.Request) bool
		want  string
	}{
		{"At", At("/apis", "/apis/a/v1"), "/apis /apis/a/v1"},
		{"Under", Under("/apis/a"), "/apis/a /apis/a/v1"},
		{"Under a root", Under("/apis/"), "/apis /apis/a /apis/a/v1 /apis/ab"},
		{"InGroup", InGroup("a", "b"), "/apis/a /apis/a/v1"},
		{"All", All(), "/api /apis /apis/a /apis/a/v1 /apis/ab"},
	} {
		var got []string
		for _, path := range []string{"/api", "/apis", "/apis/a", "/apis/a/v1", "/apis/ab"} {
			if test.match(httptest.NewRequest(http.MethodGet, path, nil)) {
				got = append(got, path)
			}
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s matches %v, not %s", test.name, got, test.want)
		}
	}
}
