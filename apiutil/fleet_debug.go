// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
)

// DebugHandler serves all clusters with the status of their mappers. With ?cluster=NAME
// it serves the page of that cluster's mapper, with the latest reads and changes since
// that page was first requested. Both come as HTML or JSON, as with
// DynamicRESTMapper.DebugHandler.
func (f *Fleet) DebugHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		query := req.URL.Query()
		if !query.Has("cluster") {
			serveDebug(w, req, func() debugDocument { return fleetPage{f.Status()} })
			return
		}
		cluster := query.Get("cluster")
		m, ok := f.Mapper(cluster)
		if !ok {
			http.Error(w, "no such cluster is engaged", http.StatusNotFound)
			return
		}
		m.recent.record(m.reloader.Snapshot())
		serveDebug(w, req, func() debugDocument { return m.debugPage(cluster) })
	})
}

// fleetPage is what DebugHandler shows of all clusters.
type fleetPage struct {
	Clusters map[string]DynamicRESTMapperStatus `json:"clusters"`
}

func (p fleetPage) html(asJSON string) string {
	w := &page{}
	w.head("RESTMappers by cluster")
	w.line(`<div class="wide"><table><tr><th>Cluster</th><th>Health</th><th>Known</th><th>Last successful read</th><th>Last error</th></tr>`)
	for _, cluster := range slices.Sorted(maps.Keys(p.Clusters)) {
		s := p.Clusters[cluster]
		class, health := healthText(s)
		w.linef(`<tr><td><a href="?%s">%s</a></td><td class="%s">%s</td><td>%s</td><td class="nowrap">%s</td><td>%s</td></tr>`,
			url.Values{"cluster": {cluster}}.Encode(), cluster, class, health, knownText(s), moment(s.LastSuccess), errorText(s.LastError))
	}
	w.line(`</table></div>`)
	w.foot(asJSON)
	return w.String()
}
