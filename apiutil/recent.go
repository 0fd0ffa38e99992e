// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/freshmapper/freshmapper/internal/reload"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// debugRecent is what has happened lately, the latest first.
type debugRecent struct {
	Reads   []debugRead   `json:"reads"`
	Absent  []debugAbsent `json:"absent"` // what lookups did not find, the most frequent first
	Changes []debugChange `json:"changes"`
}

type debugRead struct {
	Time     time.Time `json:"time"` // when it ended
	Part     string    `json:"part"` // of the server: document, group or version
	Group    string    `json:"group,omitempty"`
	Version  string    `json:"version,omitempty"`
	Duration string    `json:"duration"`
	Error    string    `json:"error,omitempty"`
}

// debugAbsent is what lookups have looked for in vain.
type debugAbsent struct {
	Group    string    `json:"group,omitempty"`
	Versions []string  `json:"versions,omitempty"` // none: any
	Kind     string    `json:"kind,omitempty"`
	Resource string    `json:"resource,omitempty"` // if the lookup was by resource
	Times    int       `json:"times"`
	Last     time.Time `json:"last"`
}

type debugChange struct {
	Time       time.Time `json:"time"`
	Generation uint64    `json:"generation"`
	Added      []string  `json:"added,omitempty"`
	Removed    []string  `json:"removed,omitempty"`
	Changed    []string  `json:"changed,omitempty"`
}

const (
	mostRecent = 50  // reads, and as many changes, are kept
	mostAbsent = 256 // absent names are counted
	topAbsent  = 10  // of them are shown
	maxAbsent  = 512 // bytes of a name that is counted
)

// recent holds what has happened lately, for DebugHandler. The zero value keeps nothing
// until record is called, because most mappers have no debug page.
type recent struct {
	mu      sync.Mutex
	seen    *snapshot.Snapshot // by the latest read; nil: nothing is kept
	reads   []debugRead        // the latest last
	changes []debugChange
	absent  map[string]*debugAbsent
}

// record starts to keep what happens.
func (h *recent) record(now *snapshot.Snapshot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen == nil {
		h.seen, h.absent = now, map[string]*debugAbsent{}
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
func (h *recent) remember(r reload.Report) {
	from, now := h.see(r.To), time.Now()
	if from == nil {
		return
	}
	var changes []debugChange
	if from.Generation() < r.To.Generation() {
		change := debugChange{Time: now, Generation: r.To.Generation()}
		change.Added, change.Removed, change.Changed = summarize(from, r.To)
		changes = append(changes, change)
	}
	read := debugRead{now, r.Read.Part.String(), r.Read.Group, r.Read.Version, r.Duration.Round(time.Microsecond).String(), errorText(r.Err)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reads = lastOf(append(h.reads, read))
	h.changes = lastOf(append(h.changes, changes...))
}

// missed counts a lookup that found nothing. If there is no room, it takes the place and
// the count of the least frequent one: so what is looked up again and again comes to the
// top, and what is looked up once does not push it out.
func (h *recent) missed(q snapshot.Query) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := keyOf(q)
	if h.absent == nil || len(key) > maxAbsent {
		return
	}
	entry := h.absent[key]
	if entry == nil {
		entry = &debugAbsent{Group: q.Group, Versions: q.Versions, Kind: q.Name}
		if q.ByResource {
			entry.Kind, entry.Resource = "", q.Name
		}
		if len(h.absent) >= mostAbsent {
			least := slices.MinFunc(slices.Collect(maps.Keys(h.absent)), func(a, b string) int {
				return cmp.Or(cmp.Compare(h.absent[a].Times, h.absent[b].Times), h.absent[a].Last.Compare(h.absent[b].Last))
			})
			entry.Times = h.absent[least].Times
			delete(h.absent, least)
		}
		h.absent[key] = entry
	}
	entry.Times++
	entry.Last = time.Now()
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func lastOf[T any](list []T) []T { return list[max(0, len(list)-mostRecent):] }

// latest returns copies.
func (h *recent) latest() debugRecent {
	h.mu.Lock()
	defer h.mu.Unlock()
	absent := []debugAbsent{}
	for _, entry := range h.absent {
		absent = append(absent, *entry)
	}
	slices.SortFunc(absent, func(a, b debugAbsent) int { return cmp.Or(b.Times-a.Times, b.Last.Compare(a.Last)) })
	return debugRecent{Reads: reversed(h.reads), Changes: reversed(h.changes), Absent: absent[:min(len(absent), topAbsent)]}
}

func reversed[T any](list []T) []T {
	out := append([]T{}, list...)
	slices.Reverse(out)
	return out
}
