// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"sync"
	"time"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

type debugRead struct {
	Time     time.Time `json:"time"` // when it ended
	Part     string    `json:"part"` // of the server
	Duration string    `json:"duration"`
	Error    string    `json:"error,omitempty"`
}

type debugChange struct {
	Time       time.Time `json:"time"`
	Generation uint64    `json:"generation"`
	Added      []string  `json:"added,omitempty"`
	Removed    []string  `json:"removed,omitempty"`
	Changed    []string  `json:"changed,omitempty"`
}

// mostRecent is how many reads, and how many changes, are kept.
const mostRecent = 50

// recent holds the latest reads and changes, for DebugHandler. The zero value keeps none
// until record is called, because most mappers have no debug page.
type recent struct {
	mu      sync.Mutex
	seen    *snapshot.Snapshot // by the latest read; nil: nothing is kept
	reads   []debugRead        // the latest last
	changes []debugChange
}

// record starts to keep reads and changes.
func (h *recent) record(now *snapshot.Snapshot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen == nil {
		h.seen = now
	}
}

// see notes what is known now, and returns what was known at the read before, or nil
// if nothing is kept. Reports may be late, and in another order than their reads.
func (h *recent) see(now *snapshot.Snapshot) *snapshot.Snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := h.seen
	if seen != nil && now.Generation() >= seen.Generation() {
		h.seen = now
	}
	return seen
}

// remember keeps a read, and what has changed since the one before.
func (h *recent) remember(read debugRead, now *snapshot.Snapshot) {
	from := h.see(now)
	if from == nil {
		return
	}
	var changes []debugChange
	if from.Generation() < now.Generation() {
		change := debugChange{Time: read.Time, Generation: now.Generation()}
		change.Added, change.Removed, change.Changed = summarize(from, now)
		changes = append(changes, change)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reads = lastOf(append(h.reads, read))
	h.changes = lastOf(append(h.changes, changes...))
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func lastOf[T any](list []T) []T { return list[max(0, len(list)-mostRecent):] }

// latest returns copies, the latest first.
func (h *recent) latest() ([]debugRead, []debugChange) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return reversed(h.reads), reversed(h.changes)
}

func reversed[T any](list []T) []T {
	out := make([]T, 0, len(list))
	for i := len(list) - 1; i >= 0; i-- {
		out = append(out, list[i])
	}
	return out
}
