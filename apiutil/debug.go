// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/reload"
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
	m.recent.record()
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
			version := debugVersion{Name: v.Name, Kinds: kinds[schema.GroupVersion{Group: g.Name(), Version: v.Name}]}
			if v.Err != nil {
				version.Error = v.Err.Error()
			}
			group.Versions = append(group.Versions, version)
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
	on      bool
	reads   []debugRead // the latest last
	changes []debugChange
}

func (h *recent) record() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.on = true
}

func (h *recent) recording() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.on
}

// remember keeps what a flight has done.
func (h *recent) remember(r reload.Report) {
	if !h.recording() {
		return
	}
	read := debugRead{Time: time.Now(), Part: r.Reason, Duration: r.Duration.Round(time.Microsecond).String()}
	if r.Err != nil {
		read.Error = r.Err.Error()
	}
	var changes []debugChange
	if r.From.Generation() != r.To.Generation() {
		change := debugChange{Time: read.Time, Generation: r.To.Generation()}
		change.Added, change.Removed, change.Changed = summarize(r.From, r.To)
		changes = append(changes, change)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reads = lastOf(append(h.reads, read))
	h.changes = lastOf(append(h.changes, changes...))
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
