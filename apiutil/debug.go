// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"encoding/json"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// DebugHandler serves what the mapper knows: its status, the groups, versions and
// kinds, which versions failed and why, and the latest reads and changes since
// DebugHandler was first called. It serves an HTML page; with ?format=json, or if the
// request accepts application/json, it serves JSON. It sends no request. It shows no
// credentials and no address of the server, but it does show which APIs the server
// has. With controller-runtime's manager:
//
//	mgr.AddMetricsServerExtraHandler("/debug/restmapper", mapper.DebugHandler())
func (m *DynamicRESTMapper) DebugHandler() http.Handler {
	m.recent.record(m.reloader.Snapshot())
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		serveDebug(w, req, func() debugDocument { return m.debugPage("") })
	})
}

// debugDocument is shown as JSON, or as a page that has a link to the JSON.
type debugDocument interface{ html(asJSON string) string }

// serveDebug makes the document only if the method is allowed.
func serveDebug(w http.ResponseWriter, req *http.Request, document func() debugDocument) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	if !wantsJSON(req) {
		query := req.URL.Query()
		query.Set("format", "json")
		header.Set("Content-Type", "text/html; charset=utf-8")
		w.Write([]byte(document().html("?" + query.Encode()))) //nolint:errcheck // Nobody is left to be told.
		return
	}
	header.Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.Encode(document()) //nolint:errcheck // Nobody is left to be told.
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
	Cluster string                  `json:"cluster,omitempty"` // in a fleet
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

func (m *DynamicRESTMapper) debugPage(cluster string) debugPage {
	page := debugPage{
		Cluster: cluster,
		Status:  m.Status(),
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
