// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

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
	header, query := w.Header(), req.URL.Query()
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	accept := req.Header.Get("Accept")
	if format := query.Get("format"); format == "json" || format == "" && strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html") {
		header.Set("Content-Type", "application/json")
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.Encode(document()) //nolint:errcheck // Nobody is left to be told.
		return
	}
	query.Set("format", "json")
	header.Set("Content-Type", "text/html; charset=utf-8")
	w.Write([]byte(document().html("?" + query.Encode()))) //nolint:errcheck // Nobody is left to be told.
}

// debugPage is what DebugHandler shows, as plain data. The latest of a list comes first.
type debugPage struct {
	Cluster string                  `json:"cluster,omitempty"` // in a fleet
	Status  DynamicRESTMapperStatus `json:"status"`
	Options debugOptions            `json:"options"`
	Groups  debugGroups             `json:"groups"` // only in JSON: there may be very many
	debugRecent
}

type debugOptions struct {
	RefreshInterval string `json:"refreshInterval"`
	WatchAPIs       bool   `json:"watchAPIs"`
	Started         bool   `json:"started"`
}

func (m *DynamicRESTMapper) debugPage(cluster string) debugPage {
	options := debugOptions{RefreshInterval: m.options.RefreshInterval.String(), WatchAPIs: m.options.WatchAPIs, Started: m.started.Load()}
	return debugPage{cluster, m.Status(), options, debugGroups{m.reloader.Snapshot()}, m.recent.latest()}
}

// debugGroups is all groups of a snapshot.
type debugGroups struct{ known *snapshot.Snapshot }

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

// MarshalJSON implements json.Marshaler.
func (d debugGroups) MarshalJSON() ([]byte, error) {
	kinds := map[schema.GroupVersion][]debugKind{}
	for _, c := range snapshot.Diff(&snapshot.Snapshot{}, d.known) {
		gvk := c.Mapping.GroupVersionKind
		kinds[gvk.GroupVersion()] = append(kinds[gvk.GroupVersion()], debugKind{gvk.Kind, c.Mapping.Resource.Resource, c.Mapping.Scope.Name() == "namespace"})
	}
	groups := []debugGroup{}
	for _, g := range d.known.Groups() {
		group := debugGroup{Name: g.Name()}
		for _, v := range g.Versions() {
			group.Versions = append(group.Versions, debugVersion{v.Name, errorText(v.Err), kinds[schema.GroupVersion{Group: g.Name(), Version: v.Name}]})
		}
		groups = append(groups, group)
	}
	return json.Marshal(groups)
}

// html returns the HTML page.
func (p debugPage) html(asJSON string) string {
	title, w := "RESTMapper", &page{}
	if p.Cluster != "" {
		title += " of cluster " + p.Cluster
	}
	w.head(title)
	_, health := healthText(p.Status)
	w.table("Status", "", []string{"Health", health}, []string{"Known", knownText(p.Status)}, []string{"Refresh", freshness(p)},
		[]string{"Last read", moment(p.Status.LastAttempt)}, []string{"Last successful read", moment(p.Status.LastSuccess)},
		[]string{"Last error", fmt.Sprintf("%s (failures in a row: %d)", errorText(p.Status.LastError), p.Status.ConsecutiveFailures)})
	w.table("Versions that can't be read", "Version|Why", p.failures()...)
	w.table("Kinds that are not served and asked for most often", "Kind or resource|Group|Versions|Times|Last", p.absences()...)
	w.table("Recent reads", "When|Part of the server|Group|Version|Took|Error", p.reads()...)
	w.table("Recent changes", "When|Generation|Added|Removed|Changed", p.changes()...)
	w.foot(asJSON)
	return w.String()
}
