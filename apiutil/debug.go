// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// DebugHandler serves what the mapper knows: its status, which versions failed and why, and
// what its log says since DebugHandler was first called, with or without a Logger: the latest
// 50 reads, lookups that ended with NoMatch, and changes. It serves an HTML page. With ?format=json,
// or if the request accepts application/json, it serves JSON, which also has all kinds. It
// sends no request. It shows no credentials and no address of the server, but it does show
// which APIs the server has. With controller-runtime's manager:
//
//	mgr.AddMetricsServerExtraHandler("/debug/restmapper", mapper.DebugHandler())
func (m *DynamicRESTMapper) DebugHandler() http.Handler {
	m.recent.CompareAndSwap(nil, &map[string][]line{})
	return debugHandler(func(whole bool) any {
		page := debugPage{Status: m.Status(), RefreshInterval: m.options.RefreshInterval.String(),
			WatchAPIs: m.options.WatchAPIs, Started: m.started.Load(), Log: *m.recent.Load()}
		if none, now := (&snapshot.Snapshot{}), m.reloader.Snapshot(); whole {
			page.Unread = unreadSince(none, now)
			for _, c := range changesBetween(none, now) {
				gvk := c.Mapping.GroupVersionKind
				page.Kinds = append(page.Kinds, debugKind{gvk.GroupVersion().String(), gvk.Kind, c.Mapping.Resource.Resource, c.Mapping.Scope.Name(), c.Verbs})
			}
		}
		return page
	})
}

// debugPage is what DebugHandler shows.
type debugPage struct {
	Status          DynamicRESTMapperStatus `json:"status"`
	RefreshInterval string                  `json:"refreshInterval"`
	WatchAPIs       bool                    `json:"watchAPIs"`
	Started         bool                    `json:"started"`
	Log             map[string][]line       `json:"log"`              // by message, the latest line first
	Kinds           []debugKind             `json:"kinds,omitempty"`  // in server order; only in JSON: there may be very many
	Unread          []string                `json:"unread,omitempty"` // versions whose kinds are not known; likewise
}

type debugKind struct {
	GroupVersion string             `json:"groupVersion"`
	Kind         string             `json:"kind"`
	Resource     string             `json:"resource"`
	Scope        meta.RESTScopeName `json:"scope"`
	Verbs        []string           `json:"verbs"`
}

// line has the time of a line in the log, and its keys and values.
type line map[string]any

// debugHandler serves a page as HTML, or the whole page as JSON.
func debugHandler(page func(whole bool) any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		format := cmp.Or(req.URL.Query().Get("format"), req.Header.Get("Accept"))
		whole := strings.Contains(format, "json") && !strings.Contains(format, "html")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		w.Header().Set("Content-Type", "application/json")
		if !whole {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprintln(w, `<!doctype html><html lang="en"><meta name="color-scheme" content="light dark"><title>RESTMapper</title><pre>`)
			defer fmt.Fprintln(w, "</pre></html>")
		}
		encoder := json.NewEncoder(w) // it escapes what has a meaning in HTML
		encoder.SetIndent("", "  ")
		encoder.Encode(page(whole)) //nolint:errcheck // Nobody is left to be told.
	})
}

// remember keeps a line of the log for DebugHandler, and the 49 before it with that message.
// Most mappers have no debug page, and keep nothing. Only reports call it, one at a time.
func (m *DynamicRESTMapper) remember(msg string, keysAndValues []any) {
	known := m.recent.Load()
	if known == nil {
		return
	}
	latest := line{"time": time.Now()}
	for i := 0; i < len(keysAndValues); i += 2 {
		latest[fmt.Sprint(keysAndValues[i])] = keysAndValues[i+1]
	}
	next := maps.Clone(*known) // pages may be reading it
	next[msg] = append([]line{latest}, next[msg][:min(len(next[msg]), 49)]...)
	m.recent.Store(&next)
}
