// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// DebugHandler serves what the mapper knows: its status, the groups, versions and
// kinds, which versions failed and why, and the latest reads and changes since
// DebugHandler was first called. It is a page for people; with ?format=json, or for
// who accepts application/json, it is JSON. It sends no request, and shows no
// credentials and no address of the server; but it does show which APIs the server
// has. With controller-runtime's manager:
//
//	mgr.AddMetricsServerExtraHandler("/debug/restmapper", mapper.DebugHandler())
func (m *DynamicRESTMapper) DebugHandler() http.Handler {
	m.recent.record(m.reloader.Snapshot())
	return http.HandlerFunc(m.serveDebug)
}

func (m *DynamicRESTMapper) serveDebug(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	page := m.debugPage()
	if !wantsJSON(req) {
		header.Set("Content-Type", "text/html; charset=utf-8")
		w.Write([]byte(page.html())) //nolint:errcheck // Nobody is left to be told.
		return
	}
	header.Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.Encode(page) //nolint:errcheck // Nobody is left to be told.
}

func wantsJSON(req *http.Request) bool {
	if format := req.URL.Query().Get("format"); format != "" {
		return format == "json"
	}
	accept := req.Header.Get("Accept")
	return strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html")
}

// debugPage is what DebugHandler shows, as plain data.
type debugPage struct {
	Status  DynamicRESTMapperStatus `json:"status"`
	Options debugOptions            `json:"options"`
	Groups  []debugGroup            `json:"groups"`
	Reads   []debugRead             `json:"reads"`   // the latest first
	Changes []debugChange           `json:"changes"` // the latest first
}

type debugOptions struct {
	RefreshInterval string `json:"refreshInterval"`
	WatchAPIs       bool   `json:"watchAPIs"`
	Started         bool   `json:"started"`
}

type debugGroup struct {
	Name     string         `json:"name"`
	Versions []debugVersion `json:"versions"` // the preferred first
}

type debugVersion struct {
	Name  string      `json:"name"`
	Error string      `json:"error,omitempty"`
	Kinds []debugKind `json:"kinds,omitempty"`
}

type debugKind struct {
	Kind       string `json:"kind"`
	Resource   string `json:"resource"`
	Namespaced bool   `json:"namespaced"`
}

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

func (m *DynamicRESTMapper) debugPage() debugPage {
	page := debugPage{
		Status: m.Status(),
		Options: debugOptions{
			RefreshInterval: m.options.RefreshInterval.String(), WatchAPIs: m.options.WatchAPIs, Started: m.started.Load(),
		},
		Groups: debugGroups(m.reloader.Snapshot()),
	}
	page.Reads, page.Changes = m.recent.latest()
	return page
}

func debugGroups(s *snapshot.Snapshot) []debugGroup {
	kinds := map[schema.GroupVersion][]debugKind{}
	for _, c := range snapshot.Diff(&snapshot.Snapshot{}, s) {
		gv := c.Mapping.GroupVersionKind.GroupVersion()
		kinds[gv] = append(kinds[gv], debugKind{
			Kind: c.Mapping.GroupVersionKind.Kind, Resource: c.Mapping.Resource.Resource, Namespaced: c.Mapping.Scope.Name() == "namespace",
		})
	}
	groups := []debugGroup{}
	for _, g := range s.Groups() {
		group := debugGroup{Name: g.Name()}
		for _, v := range g.Versions() {
			gv := schema.GroupVersion{Group: g.Name(), Version: v.Name}
			group.Versions = append(group.Versions, debugVersion{Name: v.Name, Error: errorText(v.Err), Kinds: kinds[gv]})
		}
		groups = append(groups, group)
	}
	return groups
}

// mostRecent is how many reads, and how many changes, are kept.
const mostRecent = 50

// recent are the latest reads and changes, for DebugHandler. The zero value keeps
// none until record is called: most mappers have nobody who looks.
type recent struct {
	mu      sync.Mutex
	seen    *snapshot.Snapshot // by the latest read; nil: nothing is kept
	reads   []debugRead        // the latest last
	changes []debugChange
}

// record begins to keep what differs from now on.
func (h *recent) record(now *snapshot.Snapshot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen == nil {
		h.seen = now
	}
}

// see returns what was known at the latest read, nil if nothing is kept.
func (h *recent) see(now *snapshot.Snapshot) *snapshot.Snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := h.seen
	if seen != nil {
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
	if from.Generation() != now.Generation() {
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
