// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
)

func forBothOrigins(t *testing.T, run func(t *testing.T, s *Server, o origin, tcp bool)) {
	t.Run("memory", func(t *testing.T) {
		s := New(Typical(2, 1, 1)...)
		run(t, s, inMemoryOrigin(s), false)
	})
	t.Run("tcp", func(t *testing.T) {
		s := New(Typical(2, 1, 1)...)
		server := httptest.NewServer(s)
		defer server.Close()
		run(t, s, origin{server.Client(), server.URL}, true)
	})
}

func wantError(t *testing.T, got result, want error) {
	t.Helper()
	if !errors.Is(got.Err, want) {
		t.Errorf("error %v, want %v", got.Err, want)
	}
}

func wantAnswer(t *testing.T, got result, code int, contentType string) {
	t.Helper()
	if got.Err != nil || got.Code != code {
		t.Errorf("got %d, %v; want %d", got.Code, got.Err, code)
	}
	wantHeader(t, got, "Content-Type", contentType)
}

func wantHeader(t *testing.T, got result, name, want string) {
	t.Helper()
	if value := got.Header.Get(name); value != want {
		t.Errorf("%s: %q, want %q", name, value, want)
	}
}

func wantBody(t *testing.T, got result, want string) {
	t.Helper()
	if got.Body != want {
		t.Errorf("body %q, want %q", got.Body, want)
	}
}

func wantContains(t *testing.T, got result, want ...string) {
	t.Helper()
	for _, text := range want {
		if !strings.Contains(got.Body, text) {
			t.Errorf("no %q in body %q", text, got.Body)
		}
	}
}
