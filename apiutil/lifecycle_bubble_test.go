// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// lifeBubble runs test in a bubble, and gives requests that nobody waits for any
// more the time to end, by their timeouts.
func lifeBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(10 * time.Minute)
		test(t)
	})
}

// lifeBothModes runs test with a server of each kind, in a bubble.
func lifeBothModes(t *testing.T, test func(t *testing.T, server *fakeapi.Server)) {
	for name, forms := range map[string]fakeapi.Forms{"aggregated": fakeapi.Aggregated(), "legacy": fakeapi.Legacy()} {
		t.Run(name, func(t *testing.T) {
			lifeBubble(t, func(t *testing.T) { test(t, lifeServer(forms)) })
		})
	}
}
