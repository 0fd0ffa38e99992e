// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"fmt"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// absence is what is known of a lookup that found nothing less than NegativeTTL
// ago. It holds as long as nothing has changed or been reset.
type absence struct {
	generation uint64
	reset      snapshot.Tick
}

// mostAbsences bounds the memory that lookups of ever new names can take.
const mostAbsences = 4096

// knownAbsent reports whether a lookup found nothing less than NegativeTTL ago.
func (m *DynamicRESTMapper) knownAbsent(q snapshot.Query) bool {
	if m.absent == nil {
		return false
	}
	s := m.reloader.Snapshot()
	found, ok := m.absent.Get(keyOf(q))
	return ok && found == absence{generation: s.Generation(), reset: s.LastResetOfAny()}
}

// rememberAbsent notes that q found nothing in s. The lookup began with the snapshot
// began.
func (m *DynamicRESTMapper) rememberAbsent(q snapshot.Query, s, began *snapshot.Snapshot) {
	if m.absent != nil {
		m.absent.Add(keyOf(q), absence{generation: s.Generation(), reset: began.LastResetOfAny()}, m.options.NegativeTTL)
	}
}

// keyOf returns a different key for each query.
func keyOf(q snapshot.Query) string {
	return fmt.Sprintf("%t %q %q %q", q.ByResource, q.Group, q.Versions, q.Name)
}
