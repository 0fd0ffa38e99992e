// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"fmt"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// absence is that a lookup found nothing. It holds for NegativeTTL, unless something changes
// or is reset.
type absence struct {
	query      string
	generation uint64
	reset      snapshot.Tick
}

// mostAbsences bounds the memory that lookups of more and more names can take.
const mostAbsences = 4096

// knownAbsent reports whether the same lookup found nothing within the last NegativeTTL.
func (m *DynamicRESTMapper) knownAbsent(q snapshot.Query) bool {
	if m.absent == nil {
		return false
	}
	s := m.reloader.Snapshot()
	_, found := m.absent.Get(absence{keyOf(q), s.Generation(), s.LastResetOfAny()})
	return found
}

// rememberAbsent notes that q found nothing. The lookup began with the snapshot began;
// generation is that of the mapper after its last read.
func (m *DynamicRESTMapper) rememberAbsent(q snapshot.Query, generation uint64, began *snapshot.Snapshot) {
	if m.absent != nil {
		m.absent.Add(absence{keyOf(q), generation, began.LastResetOfAny()}, nil, m.options.NegativeTTL)
	}
}

// keyOf returns a different key for each query.
func keyOf(q snapshot.Query) string {
	return fmt.Sprintf("%t %q %q %q", q.ByResource, q.Group, q.Versions, q.Name)
}
