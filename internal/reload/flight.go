// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// event makes the snapshot that follows another one. It may be called for several.
type event func(*snapshot.Snapshot) *snapshot.Snapshot

// flight is one read of the server, shared by all callers that joined before it started.
type flight struct {
	read snapshot.Read
	done chan struct{}

	// Written by perform, before done is closed.
	outcome       snapshot.Outcome
	found         event              // what the read adds to a snapshot
	before, after *snapshot.Snapshot // the current one, before that was published and after it

	// Written when it starts.
	from   *snapshot.Snapshot // what was known then
	ctx    context.Context    // of its requests; it ends only if the last waiter abandons the flight
	cancel context.CancelFunc

	// Guarded by flights.mu.
	began   snapshot.Tick // when it started; 0: it waits
	started time.Time
	follows bool // another one that got no answer, just now
	waiters int
	next    *flight // starts when this one has ended; nil: nobody needs one
}

// flights are the reads that callers wait for. Of one read one flight runs at a time, and the
// next one waits for it. A caller joins a flight that began after the tick that it names, or
// the next one. So no caller gets a result that is too old for it, and any number of callers
// at once make two reads. Nothing else orders flights: the snapshot merges what they find by
// their ticks.
type flights struct {
	perform func(*flight)             // makes the read and fills in the flight's results
	tick    func() snapshot.Tick      // takes the next tick
	current func() *snapshot.Snapshot // what is known now

	mu         sync.Mutex                  // held for short work in memory only
	running    map[snapshot.Read]*flight   // nil while nothing is read: most of its life a mapper only knows
	unanswered map[snapshot.Read]time.Time // when reads have ended that got no answer, less than patience ago
}

// patience is for how long a read without an answer holds up the next one (R7). So does RFC 8305 with
// addresses. What hangs costs its own time once, and an outage no RequestTimeout.
const patience = 3 * time.Second

const (
	never   = ^snapshot.Tick(0)        // greater than every tick: for who joins no flight that has begun
	forever = time.Duration(1<<63 - 1) // to wait
)

// join returns the flight that makes r if it began after since and goes on, or else the next
// one. Wait for its end, or call leave, once.
func (fs *flights) join(r snapshot.Read, since snapshot.Tick) *flight {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.running[r]
	if f != nil && (f.began <= since || f.ctx.Err() != nil) {
		if f.next == nil {
			f.next = &flight{read: r, done: make(chan struct{})}
		}
		f = f.next
	}
	if f == nil {
		f = &flight{read: r, done: make(chan struct{})}
		fs.start(f)
	}
	f.waiters++
	return f
}

// start starts f. fs.mu is held, and no other flight makes the read.
func (fs *flights) start(f *flight) {
	if fs.running == nil {
		fs.running = map[snapshot.Read]*flight{}
	}
	fs.running[f.read], f.began, f.started, f.from = f, fs.tick(), time.Now(), fs.current()
	ended, ok := fs.unanswered[f.read]
	f.follows = ok && time.Since(ended) < patience
	f.ctx, f.cancel = context.WithCancel(context.Background())
	go func() {
		fs.perform(f)
		fs.end(f)
	}()
}

// end ends f, and starts the next one if somebody needs it.
func (fs *flights) end(f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.cancel()
	fs.note(f)
	if delete(fs.running, f.read); f.next != nil {
		fs.start(f.next)
	} else if len(fs.running) == 0 {
		fs.running = nil
	}
	close(f.done)
}

// note keeps that f got no answer, for as long as that counts. fs.mu is held.
func (fs *flights) note(f *flight) {
	maps.DeleteFunc(fs.unanswered, func(r snapshot.Read, ended time.Time) bool {
		return r == f.read || time.Since(ended) >= patience
	})
	if discovery.Unanswered(f.outcome.Err) {
		if fs.unanswered == nil {
			fs.unanswered = map[snapshot.Read]time.Time{}
		}
		fs.unanswered[f.read] = time.Now()
	}
}

// isUnanswered reports whether nobody who can do without waits for a read: it is silent, or the whole server
// is, which is so if the document and something else are. One attempt at a time goes on.
func (fs *flights) isUnanswered(r snapshot.Read) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.silent(r) || fs.silent(snapshot.Read{}) && fs.othersSilent()
}

// hung reports whether the version that a read is for, or one of the group that a list is of, is known to give no
// answer, however long ago that was found.
func (fs *flights) hung(r snapshot.Read) bool {
	g := fs.current().Group(r.Group)
	if g == nil || r.Part == snapshot.PartDocument {
		return false
	}
	return slices.ContainsFunc(g.Versions(), func(v snapshot.Version) bool {
		about := r.Part == snapshot.PartList || v.Name == r.Version
		return about && discovery.GivesNoAnswer(v.Err)
	})
}

// silentVersions lists the versions whose read goes on without an answer for longer than anybody waits.
func (fs *flights) silentVersions() (reads []snapshot.Read) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for r := range fs.running {
		if r.Part == snapshot.PartVersion && fs.silent(r) {
			reads = append(reads, r)
		}
	}
	return reads
}

// silent reports whether a read has got no answer for longer than anybody waits, or got none the last time, just
// now. fs.mu is held.
func (fs *flights) silent(r snapshot.Read) bool {
	if ended, ok := fs.unanswered[r]; ok && time.Since(ended) < patience {
		return true
	}
	f := fs.running[r]
	return f != nil && (f.follows || time.Since(f.started) >= patience)
}

// othersSilent is silent for any read but that of the document.
func (fs *flights) othersSilent() bool {
	for r := range fs.running {
		if r != (snapshot.Read{}) && fs.silent(r) {
			return true
		}
	}
	for r := range fs.unanswered {
		if r != (snapshot.Read{}) && fs.silent(r) {
			return true
		}
	}
	return false
}

// leave gives up waiting for f. A flight that nobody waits for does not start. If abandon, one
// that has started is cancelled, and leave waits for its end.
func (fs *flights) leave(f *flight, abandon bool) {
	if fs.left(f, abandon) && abandon {
		<-f.done
	}
}

// left takes a waiter away, and reports whether f runs for nobody.
func (fs *flights) left(f *flight, abandon bool) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f.waiters--; f.waiters > 0 {
		return false
	}
	if f.began == 0 {
		fs.running[f.read].next = nil
		return false
	}
	if abandon {
		f.cancel() // under the lock: who joins later finds it cancelled
	}
	return true
}
