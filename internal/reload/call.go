// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// call is one read of the server, which is made once for all callers that need it.
type call struct {
	read snapshot.Read
	done chan struct{} // closed when the call has ended

	// Written when the call starts.
	seq  snapshot.Seq       // its sequence number
	from *snapshot.Snapshot // what was known then
	ctx  context.Context    // of its requests
	stop context.CancelFunc // ends ctx

	limit *Limit // has given a token for it; nil: it needed none

	// Written by fetch, before done is closed.
	outcome       snapshot.Outcome
	result        result
	before, after *snapshot.Snapshot // the current snapshot before the result was published, and after that

	// Guarded by inFlight.mu.
	state    callState
	callers  int       // who wait for it
	next     *call     // is queued behind this one; nil: nobody needs another one
	started  time.Time // zero: it is queued
	slowFrom time.Time // from then on its path counts as unresponsive, until it has ended
}

// callState is how far a call has come:
//
//	queued ─────▶ running ─────▶ ended
//	                 │             ▲
//	                 └▶ canceled ──┘
type callState int

const (
	// queued: it waits for the end of the call for the same path that is under way. Nothing was sent yet.
	queued callState = iota
	// running: its requests are sent.
	running
	// canceled: its last caller has canceled it. Nobody joins it any more, and its requests may take a while to end.
	canceled
	// ended: the outcome is known, and was published unless the call was canceled.
	ended
)

// inFlight has the calls that are under way, like golang.org/x/sync/singleflight. It differs in one point: what a
// lookup reads must not be older than the lookup. So a caller joins a call that began after a sequence number, or else
// the next one, which is queued until the one under way has ended. Any number of callers at once make at most two
// calls for a read, and each gets a result that is young enough. Nothing else orders calls: the snapshot merges what
// they find by their sequence numbers.
type inFlight struct {
	mu sync.Mutex // held for short work in memory only

	// calls has one running or canceled call for each path. Most of its life a mapper reads nothing; then it is nil.
	calls map[snapshot.Read]*call

	// unresponsiveUntil has the paths whose last call ended without an answer, less than slowThreshold ago.
	unresponsiveUntil map[snapshot.Read]time.Time
}

// slowThreshold is how long a request may take before it counts as slow. The caller then makes its next request beside
// it, as RFC 8305 does with addresses (R7). So what hangs costs a caller this time once, and no RequestTimeout.
const slowThreshold = 3 * time.Second

// onlyNewCalls is greater than every sequence number: a caller that gives it as since joins no call that has begun.
const onlyNewCalls = ^snapshot.Seq(0)

// join returns the call under way that makes a read, if that call began after since. Otherwise it returns the next
// call, which it starts or queues; fetch goes on from there. The caller waits for its end, or calls leave or cancel,
// once.
func (r *Reloader) join(read snapshot.Read, since snapshot.Seq) *call {
	r.inFlight.mu.Lock()
	defer r.inFlight.mu.Unlock()
	c := r.inFlight.youngEnough(read, since)
	if c == nil {
		c = r.add(read)
	}
	c.callers++
	return c
}

// youngEnough returns the call under way that makes a read and began after since, else the one that is queued, which
// will, or nil. mu is held.
func (f *inFlight) youngEnough(read snapshot.Read, since snapshot.Seq) *call {
	c := f.calls[read]
	if c == nil {
		return nil
	}
	if c.state == running && c.seq > since {
		return c
	}
	return c.next // which begins later than any since of now
}

// add starts a new call, or queues it behind the one for the same path that is under way. inFlight.mu is held.
func (r *Reloader) add(read snapshot.Read) *call {
	c := &call{read: read, done: make(chan struct{})}
	if underWay := r.inFlight.calls[read]; underWay != nil {
		underWay.next = c
	} else {
		r.start(c)
	}
	return c
}

// start starts a call. No other call for its path is under way, and inFlight.mu is held.
func (r *Reloader) start(c *call) {
	if r.inFlight.calls == nil {
		r.inFlight.calls = map[snapshot.Read]*call{}
	}
	r.inFlight.calls[c.read] = c
	c.state = running
	c.seq = r.nextSeq()
	c.from = r.Snapshot()
	c.ctx, c.stop = context.WithCancel(context.Background())

	c.started = time.Now()
	c.slowFrom = c.started.Add(slowThreshold)
	if c.started.Before(r.inFlight.unresponsiveUntil[c.read]) {
		c.slowFrom = c.started // its last call got no answer, so nobody waits for this one
	}
	go func() {
		r.fetch(c)
		r.end(c)
	}()
}

// end ends a call, and starts the next one if somebody needs it.
func (r *Reloader) end(c *call) {
	r.inFlight.mu.Lock()
	defer r.inFlight.mu.Unlock()
	c.stop()
	c.state = ended
	r.inFlight.noteAnswer(c)
	if c.limit != nil {
		c.limit.last = limitedRead{seq: c.seq, err: c.outcome.Err}
	}
	delete(r.inFlight.calls, c.read)
	if c.next != nil {
		r.start(c.next)
	}
	if len(r.inFlight.calls) == 0 {
		r.inFlight.calls = nil
	}
	close(c.done)
}

// noteAnswer notes whether the path of a call that has ended has answered. mu is held.
func (f *inFlight) noteAnswer(c *call) {
	now := time.Now()
	maps.DeleteFunc(f.unresponsiveUntil, func(read snapshot.Read, until time.Time) bool {
		return read == c.read || !now.Before(until)
	})
	if !discovery.Unanswered(c.outcome.Err) {
		return
	}
	if f.unresponsiveUntil == nil {
		f.unresponsiveUntil = map[snapshot.Read]time.Time{}
	}
	f.unresponsiveUntil[c.read] = now.Add(slowThreshold)
}

// leave takes a caller away from a call. A queued call that nobody needs any more does not start. One that runs goes
// on: its result is of use to later lookups.
func (r *Reloader) leave(c *call) {
	r.inFlight.mu.Lock()
	defer r.inFlight.mu.Unlock()
	r.inFlight.leave(c)
}

// cancel is leave for a caller whose reads are its own. If nobody else waits for the call, it is canceled, and cancel
// returns when it has ended.
func (r *Reloader) cancel(c *call) {
	r.inFlight.mu.Lock()
	unused := r.inFlight.leave(c)
	if unused {
		c.state = canceled
		c.stop()
	}
	r.inFlight.mu.Unlock()
	if unused {
		<-c.done
	}
}

// leave takes a caller away, and reports whether the call runs for nobody. mu is held.
func (f *inFlight) leave(c *call) (unused bool) {
	c.callers--
	if c.callers > 0 {
		return false
	}
	if c.state == queued {
		f.calls[c.read].next = nil
	}
	return c.state == running
}

// runningFor returns how long the call for a path has been under way, or 0 if none is.
func (f *inFlight) runningFor(read snapshot.Read) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.calls[read]
	if c == nil {
		return 0
	}
	return time.Since(c.started)
}

// isUnresponsive reports whether a caller that can do without a read does not wait for it: its path is unresponsive, or
// the whole server is, which is so if the document's path and another one are.
func (r *Reloader) isUnresponsive(read snapshot.Read) bool {
	r.inFlight.mu.Lock()
	defer r.inFlight.mu.Unlock()
	if r.inFlight.isUnresponsive(read) {
		return true
	}
	return r.inFlight.isUnresponsive(snapshot.ReadDocument) && r.inFlight.othersAreUnresponsive()
}

// isUnresponsive reports whether a path has left a call without an answer for slowThreshold, or the last call, just
// now. mu is held.
func (f *inFlight) isUnresponsive(read snapshot.Read) bool {
	now := time.Now()
	if now.Before(f.unresponsiveUntil[read]) {
		return true
	}
	c := f.calls[read]
	return c != nil && !now.Before(c.slowFrom)
}

// othersAreUnresponsive reports whether any path but the document's is unresponsive. mu is held.
func (f *inFlight) othersAreUnresponsive() bool {
	for read := range f.calls {
		if read != (snapshot.ReadDocument) && f.isUnresponsive(read) {
			return true
		}
	}
	for read := range f.unresponsiveUntil {
		if read != (snapshot.ReadDocument) && f.isUnresponsive(read) {
			return true
		}
	}
	return false
}

// unresponsiveVersions lists the versions whose call goes on without an answer.
func (f *inFlight) unresponsiveVersions() (reads []snapshot.Read) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for read := range f.calls {
		if read.Part == snapshot.PartVersion && f.isUnresponsive(read) {
			reads = append(reads, read)
		}
	}
	return reads
}
