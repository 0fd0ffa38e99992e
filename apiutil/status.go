// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/engine"
)

// DynamicRESTMapperStatus is what a mapper knows and how its reads of the server have
// gone. It belongs to the caller.
type DynamicRESTMapperStatus struct {
	// Generation is that of DynamicRESTMapper.Generation.
	Generation uint64 `json:"generation"`
	// Groups and Kinds are how many are known to be served. A kind counts once for each version.
	Groups int `json:"groups"`
	Kinds  int `json:"kinds"`

	// LastAttempt is when the last read of the server ended; zero before the first.
	LastAttempt time.Time `json:"lastAttempt,omitzero"`
	// LastSuccess is when the last successful read ended, whether anything had changed or not.
	LastSuccess time.Time `json:"lastSuccess,omitzero"`
	// LastError is why the discovery document could not be read the last time, or else why a group or a
	// version could not; nil if the last reads of both succeeded.
	LastError error `json:"-"`
	// ConsecutiveFailures is the sum of two counts: the reads of the discovery document that have failed since one of
	// them succeeded, and likewise the reads of single groups and versions.
	ConsecutiveFailures int `json:"consecutiveFailures"`

	// UnhealthySince is the time of the server's first failure after it last answered. It
	// is zero while the server is healthy, and while only single group-versions fail.
	UnhealthySince time.Time `json:"unhealthySince,omitzero"`

	// FailedGroupVersions are the group-versions whose last read failed, with the errors.
	// Most often the program behind an APIService does not answer.
	FailedGroupVersions map[schema.GroupVersion]error `json:"-"`

	// Watching reports whether all watches for API changes are open.
	Watching bool `json:"watching"`
}

// MarshalJSON returns the status as JSON, with errors as text, group-versions as "apps/v1",
// and, if the program was built with Go 1.24 or newer, without the times that are zero.
func (s DynamicRESTMapperStatus) MarshalJSON() ([]byte, error) {
	type plain DynamicRESTMapperStatus // it does not have this method
	failed := make(map[string]string, len(s.FailedGroupVersions))
	for gv, err := range s.FailedGroupVersions {
		failed[gv.String()] = err.Error()
	}
	return json.Marshal(struct {
		plain
		LastError           string            `json:"lastError,omitempty"`
		FailedGroupVersions map[string]string `json:"failedGroupVersions,omitempty"`
	}{plain(s), errorText(s.LastError), failed})
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Status returns the present status. It takes no lock and sends no request.
func (m *DynamicRESTMapper) Status() DynamicRESTMapperStatus {
	s, health := m.engine.Reloader.Snapshot(), m.engine.Reports.Health()
	return DynamicRESTMapperStatus{
		Generation:          s.Generation(),
		Groups:              len(s.Groups()),
		Kinds:               s.CountKinds(),
		LastAttempt:         health.LastAttempt,
		LastSuccess:         health.LastSuccess,
		LastError:           cmp.Or(health.Document.Err, health.Live.Err),
		ConsecutiveFailures: health.Document.Failures + health.Live.Failures,
		UnhealthySince:      health.Document.FailingSince,
		FailedGroupVersions: engine.FailedVersions(s),
		Watching:            m.engine.Watching(),
	}
}

// Healthz has the shape of controller-runtime's healthz.Checker. It fails when reads of
// the server have failed for longer than UnhealthyAfter, until the next success. The
// error has the time of the first failure and the reason. Healthz sends no request.
func (m *DynamicRESTMapper) Healthz(*http.Request) error {
	failed := m.engine.Reports.Health().Document
	// Count to the last failure, not to now: hits send no request, so a single failure
	// that only hits follow would otherwise fail a liveness probe for good.
	if failed.Err == nil || failed.LastFailed.Sub(failed.FailingSince) <= m.engine.Options.UnhealthyAfter {
		return nil
	}
	return fmt.Errorf("API discovery has failed since %s, %d times in a row: %w",
		failed.FailingSince.UTC().Format(time.RFC3339), failed.Failures, failed.Err)
}

// Generation returns a number that moves when the mapper learns of a change of the
// served API, and only then: when a group, version or kind is added or removed, or a kind's
// scope, names, verbs or preferred version changes. It takes no lock and sends no
// request.
func (m *DynamicRESTMapper) Generation() uint64 { return m.engine.Reloader.Snapshot().Generation() }
