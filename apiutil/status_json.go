// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// MarshalJSON returns the status as JSON, with errors as text, group-versions as
// "apps/v1", and without the times that are zero.
func (s DynamicRESTMapperStatus) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Generation          uint64            `json:"generation"`
		Groups              int               `json:"groups"`
		Kinds               int               `json:"kinds"`
		LastAttempt         *time.Time        `json:"lastAttempt,omitempty"`
		LastSuccess         *time.Time        `json:"lastSuccess,omitempty"`
		LastError           string            `json:"lastError,omitempty"`
		ConsecutiveFailures int               `json:"consecutiveFailures"`
		UnhealthySince      *time.Time        `json:"unhealthySince,omitempty"`
		FailedGroupVersions map[string]string `json:"failedGroupVersions,omitempty"`
		Watching            bool              `json:"watching"`
	}{
		s.Generation, s.Groups, s.Kinds, unlessZero(s.LastAttempt), unlessZero(s.LastSuccess), errorText(s.LastError),
		s.ConsecutiveFailures, unlessZero(s.UnhealthySince), errorTexts(s.FailedGroupVersions), s.Watching,
	})
}

func unlessZero(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func errorTexts(failed map[schema.GroupVersion]error) map[string]string {
	texts := make(map[string]string, len(failed))
	for gv, err := range failed {
		texts[gv.String()] = err.Error()
	}
	return texts
}

func sortedKeys(texts map[string]string) []string { return slices.Sorted(maps.Keys(texts)) }
