// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/freshmapper/freshmapper/internal/report"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// DebugHandler serves what the mapper knows: its status, which versions failed and why, the
// kinds that caches wait for, and what its log says, with or without a Logger: the latest 50
// reads, lookups that ended with NoMatch, and changes. It serves an HTML page. With
// ?format=json, or if the request accepts application/json, it serves JSON, which also has all
// kinds. It sends no request. It shows no credentials and no address of the server, but it does
// show which APIs the server has. With controller-runtime's manager:
//
//	mgr.AddMetricsServerExtraHandler("/debug/restmapper", mapper.DebugHandler())
func (m *DynamicRESTMapper) DebugHandler() http.Handler {
	return report.Page(func(long bool) any {
		page := debugPage{
			Status:          m.Status(),
			RefreshInterval: m.engine.Options.RefreshInterval.String(),
			WatchAPIs:       m.engine.Options.WatchAPIs,
			Started:         m.engine.Started(),
			Log:             m.engine.Reports.Lines(),
			Waiting:         map[string]string{},
		}
		for gvk, reason := range m.engine.Followed.Waiting() {
			page.Waiting[gvk.GroupVersion().String()+"."+gvk.Kind] = reason.Error()
		}
		if long {
			none, now := &snapshot.Snapshot{}, m.engine.Reloader.Snapshot()
			page.Unread = report.UnreadSince(none, now)
			for _, c := range changesBetween(none, now) {
				gvk := c.Mapping.GroupVersionKind
				page.Kinds = append(page.Kinds, debugKind{
					gvk.GroupVersion().String(), gvk.Kind, c.Mapping.Resource.Resource, c.Mapping.Scope.Name(), c.Verbs,
				})
			}
		}
		return page
	})
}

// debugPage is what DebugHandler shows.
type debugPage struct {
	Status          DynamicRESTMapperStatus     `json:"status"`
	RefreshInterval string                      `json:"refreshInterval"`
	WatchAPIs       bool                        `json:"watchAPIs"`
	Started         bool                        `json:"started"`
	Waiting         map[string]string           `json:"waiting,omitempty"` // kinds that caches wait for, and why
	Log             map[string][]map[string]any `json:"log"`               // by message, the latest line first
	Kinds           []debugKind                 `json:"kinds,omitempty"`   // in server order; in JSON only
	Unread          []string                    `json:"unread,omitempty"`  // versions with unknown kinds; in JSON only
}

type debugKind struct {
	GroupVersion string             `json:"groupVersion"`
	Kind         string             `json:"kind"`
	Resource     string             `json:"resource"`
	Scope        meta.RESTScopeName `json:"scope"`
	Verbs        []string           `json:"verbs"`
}
