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

// recent holds what has happened lately, for DebugHandler. Most mappers have no debug page,
// and none of this: nil keeps nothing.
type recent struct {
	since uint64 // the generation when it began

	mu      sync.Mutex    // guards the rest
	reads   []debugRead   // the latest first; replaced, never changed
	changes []debugChange // likewise
	absent  map[string]*debugAbsent
}

// record starts to keep what happens.
func (m *DynamicRESTMapper) record() {
	m.recent.CompareAndSwap(nil, &recent{
		since: m.Generation(), reads: []debugRead{}, changes: []debugChange{}, absent: map[string]*debugAbsent{},
	})
}

// remember keeps a read, and the change that it has brought, if any.
func (h *recent) remember(r reload.Report, change *debugChange) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reads = prepend(h.reads, debugRead{
		time.Now(), r.Read.Part.String(), r.Read.Group, r.Read.Version, r.Duration.Round(time.Microsecond).String(), errorText(r.Err),
	})
	if change != nil && change.Generation > h.since {
		h.changes = prepend(h.changes, *change)
	}
}

func prepend[T any](list []T, latest T) []T {
	return append([]T{latest}, list[:min(len(list), mostRecent-1)]...)
}

// missed counts a lookup that found nothing. If there is no room, it takes the place and
// the count of the least frequent one: so what is looked up again and again comes to the
// top, and what is looked up once does not push it out.
func (h *recent) missed(q snapshot.Query) {
	key := keyOf(q)
	if h == nil || len(key) > maxAbsent {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	entry := h.absent[key]
	if entry == nil {
		entry = &debugAbsent{Group: q.Group, Versions: q.Versions, Kind: q.Name}
		if q.ByResource {
			entry.Kind, entry.Resource = "", q.Name
		}
		if len(h.absent) >= mostAbsent {
			least := slices.MinFunc(slices.Collect(maps.Keys(h.absent)), func(a, b string) int { return h.absent[b].compare(h.absent[a]) })
			entry.Times = h.absent[least].Times
			delete(h.absent, least)
		}
		h.absent[key] = entry
	}
	entry.Times++
	entry.Last = time.Now()
}

// compare orders what is asked for most often first.
func (a *debugAbsent) compare(b *debugAbsent) int {
	return cmp.Or(b.Times-a.Times, b.Last.Compare(a.Last))
}

// latest returns what is kept.
func (h *recent) latest() debugRecent {
	h.mu.Lock()
	defer h.mu.Unlock()
	absent := []debugAbsent{}
	for _, entry := range slices.SortedFunc(maps.Values(h.absent), (*debugAbsent).compare) {
		absent = append(absent, *entry)
	}
	return debugRecent{Reads: h.reads, Changes: h.changes, Absent: absent[:min(len(absent), topAbsent)]}
}
