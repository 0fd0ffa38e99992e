// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Limit bounds how often a version is read for callers that ask again and again.
type Limit struct {
	read    snapshot.Read
	limiter flowcontrol.PassiveRateLimiter

	last limitedRead // guarded by inFlight.mu
}

// limitedRead is how a call has ended that took a token.
type limitedRead struct {
	seq snapshot.Seq // 0: there was none
	err error
}

// NewLimit makes a limit for a version.
func NewLimit(gv schema.GroupVersion, limiter flowcontrol.PassiveRateLimiter) *Limit {
	return &Limit{read: snapshot.ReadVersion(gv.Group, gv.Version), limiter: limiter}
}

// ErrLimited is the error of ReadLimited if the caller needs a new read, and none is allowed now.
var ErrLimited = errors.New("no read is allowed now")

// ReadLimited reads a version live. It returns the snapshot after a read that began after since: one that is under
// way, or that was made within the limit and has ended, costs no token. The call goes on, or starts, also if all
// callers stop waiting: whoever asks next needs its result.
func (r *Reloader) ReadLimited(ctx context.Context, limit *Limit, since snapshot.Seq) (*snapshot.Snapshot, error) {
	joined, err := r.joinLimited(limit, since)
	if joined == nil {
		return r.Snapshot(), err
	}
	select {
	case <-joined.done:
		return r.Snapshot(), joined.outcome.Err
	case <-ctx.Done():
		return nil, discovery.Cause(ctx)
	}
}

// joinLimited returns the call to wait for. If there is none, it returns how the last one has ended, or ErrLimited.
func (r *Reloader) joinLimited(limit *Limit, since snapshot.Seq) (*call, error) {
	r.inFlight.mu.Lock()
	defer r.inFlight.mu.Unlock()
	if limit.last.seq > since {
		return nil, limit.last.err
	}
	c := r.inFlight.youngEnough(limit.read, since)
	if c == nil {
		if !limit.limiter.TryAccept() {
			return nil, ErrLimited
		}
		c = r.add(limit.read)
		c.limit = limit
	}
	c.callers++
	return c, nil
}

// WaitingFor returns how long the read of a version that is under way has had no answer, or 0 if none is.
func (r *Reloader) WaitingFor(gv schema.GroupVersion) time.Duration {
	return r.inFlight.runningFor(snapshot.ReadVersion(gv.Group, gv.Version))
}
