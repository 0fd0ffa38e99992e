// SPDX-License-Identifier: Apache-2.0

package share

import (
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kept returns how many groups and lists the process holds.
func kept() [2]int { return [2]int{groups.len(), lists.len()} }

// collected runs the garbage collector until done returns true, and reports whether it
// does.
func collected(done func() bool) bool {
	for range 100 {
		runtime.GC()
		if done() {
			return true
		}
		time.Sleep(20 * time.Millisecond) // the runtime keeps a stopped timer, and what it would call, until its time
	}
	return false
}
