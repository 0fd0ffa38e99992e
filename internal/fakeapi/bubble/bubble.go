// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package bubble

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

// Run runs a test in virtual time. Then it gives requests that nobody waits for any more the time to end, by their
// timeouts, and fails the test if a goroutine remains.
func Run(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(10 * time.Minute)
		test(t)
	})
}
