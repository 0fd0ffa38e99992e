// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestIsDiscovery(t *testing.T) {
	for path, want := range map[string]bool{
		"/api": true, "/api/v1": true, "/apis": true, "/apis/example.com": true, "/apis/example.com/v1": true,
		"/api/v1/configmaps": false, "/apis/example.com/v1/widgets": false, "/version": false, "/": false,
	} {
		if got := isDiscovery(httptest.NewRequest(http.MethodGet, path, nil)); got != want {
			t.Errorf("isDiscovery(%q) = %v", path, got)
		}
	}
}

func TestBadInput(t *testing.T) {
	for args, want := range map[string]string{
		"": "usage", "mend": `unknown command "mend"`, "manager -retry -1s": "-retry must be positive, not -1s",
	} {
		if err := run(t.Context(), strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", args, err, want)
		}
	}
}
