// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/freshmapper/freshmapper/internal/share"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// absences has the lookups that found nothing, for NegativeTTL. nil has none.
type absences struct {
	ttl     time.Duration
	lookups *cache.LRUExpireCache // by absence
}

// absence is that a lookup found nothing. It holds unless something changes or is reset.
type absence struct {
	query      share.Key // a hash: names may have any length
	generation uint64
	reset      snapshot.Seq
}

// maxAbsences bounds the memory that lookups of more and more names can take.
const maxAbsences = 4096

func newAbsences(ttl time.Duration) *absences {
	if ttl <= 0 {
		return nil
	}
	return &absences{ttl: ttl, lookups: cache.NewLRUExpireCache(maxAbsences)}
}

func absenceOf(q snapshot.Query, generation uint64, reset snapshot.Seq) absence {
	return absence{share.KeyOf("query", fmt.Appendf(nil, "%#v", q)), generation, reset}
}

// has reports whether a lookup is known to find nothing in a snapshot.
func (a *absences) has(q snapshot.Query, s *snapshot.Snapshot) bool {
	if a == nil {
		return false
	}
	_, known := a.lookups.Get(absenceOf(q, s.Generation(), s.LastReset()))
	return known
}

// add notes that a lookup which began with one snapshot has found nothing in the one after its last read. A reset since
// it began does not count: it makes the lookup read again.
func (a *absences) add(q snapshot.Query, began, after *snapshot.Snapshot) {
	if a == nil {
		return
	}
	a.lookups.Add(absenceOf(q, after.Generation(), began.LastReset()), nil, a.ttl)
}
