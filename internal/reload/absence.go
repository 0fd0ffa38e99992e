// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// doubtfulFor is how long after a failure an absence is doubted. A kube-apiserver that
// starts answers 404 for its custom resources for a moment: after it has read their
// definitions, which ends the 503, and before it has made their documents. Two loops in
// the server wait for the definitions, and each checks every 100 ms.
const doubtfulFor = 30 * time.Second

// absencePauses returns the pauses before each new read of what seems absent.
func absencePauses() []time.Duration {
	return []time.Duration{300 * time.Millisecond, 700 * time.Millisecond}
}

// doubts knows whether the server may have been away lately: the server has failed, or a
// live read has begun to fail. A group that keeps failing casts no doubt on others: its
// APIService may be down for good.
type doubts struct {
	failed  atomic.Pointer[time.Time] // when the server last failed, or a live read last began to fail
	failing sync.Map                  // live reads that failed the last time, each a snapshot.Read
}

// note records how a read has ended. known reports whether what was read had been served
// until then. All unknown groups and versions count as one: names that callers make up
// must not fill memory, nor cast new doubts.
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

// of reports whether there is a reason to doubt an absence that read has found.
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

// doubted makes a live read by calling do. If do reports that something is absent that
// was served, and there is a reason for doubt, it calls do again after each of
// absencePauses until do finds it. It gives up when the flight's context ends: then
// absent means nothing.
func (r *Reloader) doubted(f *flight, do func() (absent bool)) {
	if !do() || !served(f.from, f.read) || !r.doubts.of(f.read) {
		return
	}
	for _, pause := range absencePauses() {
		timer := time.NewTimer(pause)
		select {
		case <-f.ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		r.begin(f) // otherwise a document that was read meanwhile would win
		if !do() {
			return
		}
	}
}
