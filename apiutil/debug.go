// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
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
	m.record()
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { m.serveDebug(w, req, "") })
}

// serveDebug serves the page of DebugHandler. cluster is the mapper's key in a fleet.
func (m *DynamicRESTMapper) serveDebug(w http.ResponseWriter, req *http.Request, cluster string) {
	title := "RESTMapper"
	if cluster != "" {
		title += " of cluster " + cluster
	}
	serveDebug(w, req, title, nil, func(whole bool) any {
		options := debugOptions{m.options.RefreshInterval.String(), m.options.WatchAPIs, m.started.Load()}
		page := debugPage{Cluster: cluster, Status: m.Status(), Options: options, debugRecent: m.recent.Load().latest()}
		if whole {
			groups := debugGroups(m.reloader.Snapshot())
			page.Groups = &groups
		}
		return page
	})
}

// serveDebug serves a page as HTML, with links to the clusters, or the whole page as JSON.
func serveDebug(w http.ResponseWriter, req *http.Request, title string, clusters []string, page func(whole bool) any) {
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
		encoder.Encode(page(true)) //nolint:errcheck // Nobody is left to be told.
		return
	}
	header.Set("Content-Type", "text/html; charset=utf-8")
	title = html.EscapeString(title)
	fmt.Fprintf(w, debugHead, title, title)
	for _, cluster := range clusters {
		fmt.Fprintf(w, "<a href=\"?%s\">%s</a>\n", html.EscapeString(url.Values{"cluster": {cluster}}.Encode()), html.EscapeString(cluster))
	}
	data, _ := json.Marshal(page(false)) // It has nothing that cannot be encoded.
	values := json.NewDecoder(bytes.NewReader(data))
	values.UseNumber()
	writeHTML(w, values)
	query.Set("format", "json")
	fmt.Fprintf(w, "<p><a href=\"?%s\">This page as JSON</a></p></body></html>\n", html.EscapeString(query.Encode()))
}

// debugHead is the beginning of a page. What is in a list is shown in one line.
const debugHead = `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>%s</title><style>:root{color-scheme:light dark}body{font:15px/1.45 system-ui,sans-serif;margin:2rem}ul{margin:0;padding:0;list-style:none}
th,td{text-align:left;vertical-align:top;padding:.1rem .75rem .1rem 0}li *{display:inline}</style></head><body><h1>%s</h1>
`

// mostShown is how many elements of a list or an object are on a page. All are in the JSON.
const mostShown = 1000

// writeHTML writes the next value of d: an object as a table, and a list as a list. It does
// not use html/template, which makes the linker keep every method of the whole program.
func writeHTML(w io.Writer, d *json.Decoder) {
	token, _ := d.Token()
	var list, begin, end string
	switch token {
	case json.Delim('{'):
		list, begin, end = "table", "<tr><th>", "</td></tr>\n"
	case json.Delim('['):
		list, begin, end = "ul", "<li>", "</li>\n"
	default:
		fmt.Fprint(w, html.EscapeString(fmt.Sprint(token)))
		return
	}
	fmt.Fprintf(w, "<%s>", list)
	shown := w
	for n := 0; d.More(); n++ {
		if n == mostShown {
			fmt.Fprint(w, begin, "and more: see JSON", end)
			shown = io.Discard
		}
		fmt.Fprint(shown, begin)
		if list == "table" {
			name, _ := d.Token()
			fmt.Fprint(shown, html.EscapeString(fmt.Sprint(name)), "</th><td>")
		}
		writeHTML(shown, d)
		fmt.Fprint(shown, end)
	}
	_, _ = d.Token()
	fmt.Fprintf(w, "</%s>", list)
}

// debugPage is what DebugHandler shows, as plain data. The latest of a list comes first.
type debugPage struct {
	Cluster string                  `json:"cluster,omitempty"` // in a fleet
	Status  DynamicRESTMapperStatus `json:"status"`
	Options debugOptions            `json:"options"`
	Groups  *[]debugGroup           `json:"groups,omitempty"` // only in JSON: there may be very many
	debugRecent
}

type debugOptions struct {
	RefreshInterval string `json:"refreshInterval"`
	WatchAPIs       bool   `json:"watchAPIs"`
	Started         bool   `json:"started"`
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

// debugGroups returns all that is known.
func debugGroups(s *snapshot.Snapshot) []debugGroup {
	kinds := map[schema.GroupVersion][]debugKind{}
	for _, c := range snapshot.Diff(&snapshot.Snapshot{}, s) {
		gvk := c.Mapping.GroupVersionKind
		kinds[gvk.GroupVersion()] = append(kinds[gvk.GroupVersion()], debugKind{gvk.Kind, c.Mapping.Resource.Resource, c.Mapping.Scope.Name() == "namespace"})
	}
	groups := []debugGroup{}
	for _, g := range s.Groups() {
		group := debugGroup{Name: g.Name()}
		for _, v := range g.Versions() {
			group.Versions = append(group.Versions, debugVersion{v.Name, errorText(v.Err), kinds[schema.GroupVersion{Group: g.Name(), Version: v.Name}]})
		}
		groups = append(groups, group)
	}
	return groups
}
