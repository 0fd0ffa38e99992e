// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"time"
)

// doubtfulFor is how long after a failed read an absence is doubted. A
// kube-apiserver that starts answers 404 for its custom resources for a moment: from
// when it has read their definitions, which ends the 503, until it has made their
// documents. It looks whether it has read them every 100 ms, in two places.
const doubtfulFor = 30 * time.Second

// absencePauses are the pauses before each further read of what is said to be absent.
func absencePauses() []time.Duration {
	return []time.Duration{300 * time.Millisecond, 700 * time.Millisecond}
}

// doubted makes a read, and makes it again while it says that something is absent
// that was known, and reads have failed a short time ago. It gives up when ctx ends:
// then absent means nothing.
func (r *Reloader) doubted(ctx context.Context, known bool, read func() (absent bool)) {
	if !read() || !known {
		return
	}
	failed := r.failed.Load()
	if failed == nil || time.Since(*failed) > doubtfulFor {
		return
	}
	for _, pause := range absencePauses() {
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		if !read() {
			return
		}
	}
}
