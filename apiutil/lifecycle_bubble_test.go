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

// inBubble runs test in a bubble, and gives requests that nobody waits for any
// more the time to end, by their timeouts.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(10 * time.Minute)
		test(t)
	})
}

// eachServer runs test with a server of each mode, in a bubble.
func eachServer(t *testing.T, test func(t *testing.T, server *fakeapi.Server)) {
	eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
		inBubble(t, func(t *testing.T) { test(t, newServer(forms)) })
	})
}
