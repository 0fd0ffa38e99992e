// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"sync"
	"time"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// idleAfter is how long a refresh of a server without the aggregated document reads a group that no lookup is answered
// from. A lookup that names no group reads all groups once; they need not be read again and again for it.
const idleAfter = 3 * time.Minute

// usage is when lookups were last answered from each group, as refreshes have found.
type usage struct {
	mu    sync.Mutex           // held for a moment only
	last  map[string]time.Time // of a group that is new: when it was first seen
	ofAll time.Time            // when a lookup was last made that several groups may answer
}

// idle returns the groups that nobody has used for idleAfter.
func (u *usage) idle(s *snapshot.Snapshot) map[string]bool {
	if s.Aggregated() {
		return nil // a refresh reads no group for its age
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if s.ClearUsed() {
		u.ofAll = now
	}
	last := map[string]time.Time{}
	idle := map[string]bool{}
	for _, g := range s.Groups() {
		at, known := u.last[g.Name()]
		if g.ClearUsed() || !known {
			at = now
		}
		last[g.Name()] = at
		idle[g.Name()] = now.Sub(at) >= idleAfter && now.Sub(u.ofAll) >= idleAfter
	}
	u.last = last
	return idle
}
