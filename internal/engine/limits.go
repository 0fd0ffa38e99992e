// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/freshmapper/freshmapper/internal/follow"
	"github.com/freshmapper/freshmapper/internal/reload"
)

const (
	// confirmPeriod is the time between live reads of a version after a burst of confirmBurst: at most 19 in a minute.
	confirmPeriod = 4 * time.Second
	confirmBurst  = 4
	// maxLimits bounds the memory that confirmations of more and more versions can take.
	maxLimits = 4096
)

// confirmLimits has the limits of the live reads of each version, one for callers that wait briefly and one for the
// others. The zero value is ready to use.
type confirmLimits struct {
	mu     sync.Mutex // held for a moment only
	limits map[confirmLimit]*reload.Limit
}

type confirmLimit struct {
	schema.GroupVersion
	wait follow.Wait
}

// of returns the limit of the reads of a version.
func (l *confirmLimits) of(gv schema.GroupVersion, wait follow.Wait) *reload.Limit {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := confirmLimit{gv, wait}
	limit := l.limits[key]
	if limit != nil {
		return limit
	}
	if l.limits == nil || len(l.limits) >= maxLimits {
		l.limits = map[confirmLimit]*reload.Limit{}
	}
	perSecond := 1 / float32(confirmPeriod.Seconds())
	limit = reload.NewLimit(gv, flowcontrol.NewTokenBucketPassiveRateLimiter(perSecond, confirmBurst))
	l.limits[key] = limit
	return limit
}
