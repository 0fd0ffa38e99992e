// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/reload"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// DebugHandler serves what the mapper knows: its status, which versions failed and why,
// and the latest reads, misses and changes since DebugHandler was first called. It serves
// an HTML page. With ?format=json, or if the request accepts application/json, it serves
// JSON, which also has all groups, versions and kinds. It sends no request. It shows no
// credentials and no address of the server, but it does show which APIs the server
// has. With controller-runtime's manager:
//
//	mgr.AddMetricsServerExtraHandler("/debug/restmapper", mapper.DebugHandler())
func (m *DynamicRESTMapper) DebugHandler() http.Handler { return m.debugHandler("") }

// debugHandler is DebugHandler. cluster is the mapper's key in a fleet.
func (m *DynamicRESTMapper) debugHandler(cluster string) http.HandlerFunc {
	m.recent.CompareAndSwap(nil, &recent{page: debugPage{Reads: []debugRead{}, Absent: []debugAbsent{}, Changes: []debugChange{}}})
	return debugHandler(nil, func(whole bool) any {
		page := m.recent.Load().latest()
		page.Cluster, page.Status = cluster, m.Status()
		page.Options.RefreshInterval = m.options.RefreshInterval.String()
		page.Options.WatchAPIs, page.Options.Started = m.options.WatchAPIs, m.started.Load()
		if whole {
			page.Groups = debugGroups(m.reloader.Snapshot())
		}
		return page
	})
}

// debugHandler serves a page as HTML, with links to the clusters, or the whole page as JSON.
func debugHandler(clusters []string, page func(whole bool) any) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		header, query := w.Header(), req.URL.Query()
		if req.Method != http.MethodGet && req.Method != http.MethodHead {
			header.Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
			return
		}
		header.Set("Cache-Control", "no-store")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		header.Set("Content-Type", "application/json")
		format := cmp.Or(query.Get("format"), req.Header.Get("Accept"))
		whole := strings.Contains(format, "json") && !strings.Contains(format, "html")
		if !whole {
			header.Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprintln(w, `<!doctype html><html lang="en"><meta name="color-scheme" content="light dark"><title>RESTMapper</title>`)
			for _, cluster := range clusters {
				fmt.Fprintf(w, "<a href=\"?%s\">%s</a>\n", url.Values{"cluster": {cluster}}.Encode(), html.EscapeString(cluster))
			}
			query.Set("format", "json")
			fmt.Fprintf(w, "<a href=\"?%s\">This page as JSON</a>\n<pre>", html.EscapeString(query.Encode()))
			defer fmt.Fprintln(w, "</pre></html>")
		}
		encoder := json.NewEncoder(w) // it escapes what has a meaning in HTML
		encoder.SetIndent("", "  ")
		encoder.Encode(page(whole)) //nolint:errcheck // Nobody is left to be told.
	}
}

// debugPage is what DebugHandler shows, as plain data.
type debugPage struct {
	Cluster string                  `json:"cluster,omitempty"` // in a fleet
	Status  DynamicRESTMapperStatus `json:"status"`
	Options struct {
		RefreshInterval string `json:"refreshInterval"`
		WatchAPIs       bool   `json:"watchAPIs"`
		Started         bool   `json:"started"`
	} `json:"options"`
	Groups  *[]debugGroup `json:"groups,omitempty"` // only in JSON: there may be very many
	Reads   []debugRead   `json:"reads"`            // the latest first
	Absent  []debugAbsent `json:"absent"`           // what lookups did not find, the most frequent first
	Changes []debugChange `json:"changes"`          // the latest first
}

type debugGroup struct {
	Name     string         `json:"name"`
	Versions []debugVersion `json:"versions"` // in server order
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
	Part     string    `json:"part"` // of the server: document, group or version
	Group    string    `json:"group,omitempty"`
	Version  string    `json:"version,omitempty"`
	Duration string    `json:"duration"`
	Error    string    `json:"error,omitempty"`
}

type debugAbsent struct {
	Group    string    `json:"group,omitempty"`
	Versions []string  `json:"versions,omitempty"` // none: any
	Kind     string    `json:"kind,omitempty"`
	Resource string    `json:"resource,omitempty"` // if the lookup was by resource
	Times    int       `json:"times"`
	Last     time.Time `json:"last"`
	key      string    // of the query
}

type debugChange struct {
	Time       time.Time `json:"time"`
	Generation uint64    `json:"generation"`
	Added      []string  `json:"added,omitempty"`
	Removed    []string  `json:"removed,omitempty"`
	Changed    []string  `json:"changed,omitempty"`
}

// debugGroups returns all that is known.
func debugGroups(s *snapshot.Snapshot) *[]debugGroup {
	kinds := map[schema.GroupVersion][]debugKind{}
	for _, c := range snapshot.Diff(&snapshot.Snapshot{}, s) {
		gvk := c.Mapping.GroupVersionKind
		kinds[gvk.GroupVersion()] = append(kinds[gvk.GroupVersion()], debugKind{gvk.Kind, c.Mapping.Resource.Resource, c.Mapping.Scope.Name() == "namespace"})
	}
	groups := make([]debugGroup, len(s.Groups()))
	for i, g := range s.Groups() {
		groups[i].Name = g.Name()
		for _, v := range g.Versions() {
			groups[i].Versions = append(groups[i].Versions, debugVersion{v.Name, errorText(v.Err), kinds[schema.GroupVersion{Group: g.Name(), Version: v.Name}]})
		}
	}
	return &groups
}

// recent holds what has happened lately, for DebugHandler. Most mappers have no debug page,
// and none of this: nil keeps nothing.
type recent struct {
	mu   sync.Mutex // guards page; its lists are replaced, never changed
	page debugPage
}

const (
	mostRecent = 50  // of each list are kept
	maxAbsent  = 512 // bytes of a name that is counted
)

// remember keeps a read, and the change that it has brought, if any.
func (h *recent) remember(r reload.Report, change *debugChange) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.page.Reads = prepend(h.page.Reads, debugRead{time.Now(), r.Read.Part.String(), r.Read.Group, r.Read.Version, r.Duration.Round(time.Microsecond).String(), errorText(r.Err)})
	if change != nil {
		h.page.Changes = prepend(h.page.Changes, *change)
	}
}

func prepend[T any](list []T, latest T) []T {
	return append([]T{latest}, list[:min(len(list), mostRecent-1)]...)
}

// missed counts a lookup that found nothing. What was not looked up for the longest time
// makes room.
func (h *recent) missed(q snapshot.Query) {
	if h == nil {
		return
	}
	entry := debugAbsent{Group: q.Group, Versions: q.Versions, Kind: q.Name, Last: time.Now(), key: keyOf(q)}
	if len(entry.key) > maxAbsent {
		return
	}
	if q.ByResource {
		entry.Kind, entry.Resource = "", q.Name
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	others := slices.Clone(h.page.Absent)
	if i := slices.IndexFunc(others, func(a debugAbsent) bool { return a.key == entry.key }); i >= 0 {
		entry.Times = others[i].Times
		others = slices.Delete(others, i, i+1)
	}
	entry.Times++
	h.page.Absent = prepend(others, entry)
}

// latest returns what is kept.
func (h *recent) latest() debugPage {
	h.mu.Lock()
	defer h.mu.Unlock()
	page := h.page
	page.Absent = slices.Clone(page.Absent)
	slices.SortStableFunc(page.Absent, func(a, b debugAbsent) int { return b.Times - a.Times })
	return page
}
