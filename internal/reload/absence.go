// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// doubtfulFor is how long after a failure an absence is doubted. A kube-apiserver
// that starts answers 404 for its custom resources for a moment: from when it has
// read their definitions, which ends the 503, until it has made their documents. It
// looks whether it has read them every 100 ms, in two places.
const doubtfulFor = 30 * time.Second

// absencePauses are the pauses before each further read of what is said to be absent.
func absencePauses() []time.Duration {
	return []time.Duration{300 * time.Millisecond, 700 * time.Millisecond}
}

// doubts knows whether the server may have been away just now: it has failed, or
// something on it has begun to. A group that goes on failing says nothing about
// others, as an APIService that is down for good does not.
type doubts struct {
	failed  atomic.Pointer[time.Time] // when the server last failed, or a live read began to
	failing sync.Map                  // live reads that failed the last time, each a snapshot.Read
}

// note takes notice of how a read has ended. known is whether what was read had been
// served until then. All that was not counts as one thing: names that callers make up
// must neither fill memory nor cast a new doubt each.
func (d *doubts) note(now time.Time, read snapshot.Read, known bool, err error) {
	if !known {
		read = snapshot.Read{Part: read.Part}
	}
	if err == nil {
		d.failing.Delete(read)
		return
	}
	already := false
	if !read.Part.Document() {
		_, already = d.failing.LoadOrStore(read, struct{}{})
	}
	if ofServer(read, err) || !already {
		d.failed.Store(&now)
	}
}

// of reports whether an absence is to be doubted that a read has found.
func (d *doubts) of(read snapshot.Read) bool {
	if _, failing := d.failing.Load(read); failing {
		return true
	}
	failed := d.failed.Load()
	return failed != nil && time.Since(*failed) <= doubtfulFor
}

// served reports whether from, the snapshot when a live read began, has what is read.
func served(from *snapshot.Snapshot, read snapshot.Read) bool {
	switch read.Part {
	case snapshot.PartList:
		return from.Group(read.Group) != nil
	case snapshot.PartVersion:
		return from.Serves(read.Group, read.Version)
	default:
		return true
	}
}

// doubted makes a live read, and makes it again while it says that something is absent
// that was served, and there is reason for doubt. from is the snapshot when the read
// began. It gives up when ctx ends: then absent means nothing.
func (r *Reloader) doubted(ctx context.Context, read snapshot.Read, from *snapshot.Snapshot, do func() (absent bool)) {
	if !do() || !served(from, read) || !r.doubts.of(read) {
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
		if !do() {
			return
		}
	}
}
