// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"sync"
	"time"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// absences remembers lookups that found nothing, for NegativeTTL. It has no part
// in hits, nor in mappers without that option.
type absences struct {
	mu    sync.Mutex // held for map operations only
	until map[string]absence
}

// absence holds as long as it is young and nothing has changed or been reset.
type absence struct {
	until      time.Time
	generation uint64
	reset      snapshot.Tick
}

// mostAbsences bounds what lookups for ever new names can take up.
const mostAbsences = 4096

func (a *absences) get(key string) (absence, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	found, ok := a.until[key]
	return found, ok
}

func (a *absences) put(key string, found absence) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.until == nil || len(a.until) >= mostAbsences {
		a.until = map[string]absence{}
	}
	a.until[key] = found
}
