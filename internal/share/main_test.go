// SPDX-License-Identifier: Apache-2.0

package share

import (
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Kept returns how many groups, lists and bulk documents the process holds, and how
// many of those documents it would hold without any mapper.
func Kept() [4]int { return [4]int{groups.len(), lists.len(), bulks.len(), recent.len()} }

// KeptBytes returns how many bytes the process holds without any mapper.
func KeptBytes() int64 {
	recent.mu.Lock()
	defer recent.mu.Unlock()
	return recent.bytes
}

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

// Collected is collected, for tests from outside.
func Collected(done func() bool) bool { return collected(done) }
