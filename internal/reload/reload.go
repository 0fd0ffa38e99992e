// SPDX-License-Identifier: Apache-2.0

// Package reload keeps the current snapshot. No other package replaces it.
//
// Snapshot returns what is known with one atomic load. If that is not enough, Lookup makes the reads that it still
// needs. Each is a call, one read of the server for all callers that need the same. A caller joins a call only
// if the call began after the caller's lookup, so what it reads is never older than that. Each call has the sequence
// number that it took when it began. The snapshot merges by these, so nothing else orders calls. No lock is held
// while one runs.
//
// The files, from a caller that needs a read to what comes of it:
//
//	lookup.go             a lookup makes the reads that its answer lacks
//	refresh.go            a refresh makes the reads that confirm what is known
//	      ↓
//	caller.go             the reads of one lookup or refresh, and how long it waits for each (R7)
//	      ↓
//	call.go, limit.go     one read for all callers, and for those that ask again and again
//	      ↓
//	fetch.go              sends its requests, and publishes the snapshot that follows
//	absence.go            decides whether a 404 is an absence (R6), mostly without another call
//	      ↓
//	age.go, usage.go      when a refresh is due, and which groups are in use
//	reload.go             the current snapshot
package reload

import (
	"sync/atomic"
	"time"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/report"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Options are the settings of a Reloader.
type Options struct {
	MaxAge  time.Duration    // the age at which what is in use is confirmed; 0 or less: never
	Reports *report.Reporter // is told of each read; nil: nobody is
}

// Reloader holds the current snapshot of one server and reloads it on demand.
// All methods may be called from any goroutine.
type Reloader struct {
	client  *discovery.Client
	options Options

	current atomic.Pointer[snapshot.Snapshot] // stored by publish alone
	changed atomic.Pointer[chan struct{}]     // closed and taken away by publish; nil while nobody waits for it
	lastSeq atomic.Uint64                     // the last sequence number that was taken

	inFlight    inFlight
	lastFailure atomic.Pointer[serverFailure] // of the server; nil: none yet. See absence.go

	age          *age
	usage        usage
	keepers      atomic.Int64                  // callers of KeepAll that need every version
	allRead      atomic.Pointer[time.Time]     // when the reads began that last confirmed everything; nil: never
	notConfirmed atomic.Pointer[failedAttempt] // the last one of ConfirmAll; nil: none
}

// New makes a reloader that knows nothing yet. It sends no request and starts no
// goroutine.
func New(client *discovery.Client, options Options) *Reloader {
	r := &Reloader{client: client, options: options, age: newAge(options.MaxAge)}
	r.current.Store(snapshot.New())
	return r
}

// Snapshot returns what is known now. It takes no lock and never waits.
func (r *Reloader) Snapshot() *snapshot.Snapshot { return r.current.Load() }

// Changed returns a channel that is closed at the next change of the snapshot. To miss
// no change, get the channel first and then the snapshot.
func (r *Reloader) Changed() <-chan struct{} {
	for {
		if known := r.changed.Load(); known != nil {
			return *known
		}
		changed := make(chan struct{})
		r.changed.CompareAndSwap(nil, &changed)
	}
}

// Reset makes every later lookup need a new read. It sends no request and does not wait.
func (r *Reloader) Reset() {
	seq := r.nextSeq()
	r.publish(func(s *snapshot.Snapshot) *snapshot.Snapshot { return s.Reset(seq) })
}

// LastSeq returns the last sequence number that was taken: reads that begin later have a higher one.
func (r *Reloader) LastSeq() snapshot.Seq { return snapshot.Seq(r.lastSeq.Load()) }

func (r *Reloader) nextSeq() snapshot.Seq {
	seq := snapshot.Seq(r.lastSeq.Add(1))
	if seq == 1 {
		r.age.confirmed() // the clock starts with the first read
	}
	return seq
}

// publish replaces the current snapshot with the one that change makes of it, and returns both. Nothing else stores a
// snapshot. publish calls change again if another goroutine was faster.
func (r *Reloader) publish(change func(*snapshot.Snapshot) *snapshot.Snapshot) (before, after *snapshot.Snapshot) {
	for {
		before = r.current.Load()
		after = change(before)
		if after == before {
			return before, after
		}
		if !r.current.CompareAndSwap(before, after) {
			continue
		}
		if changed := r.changed.Swap(nil); changed != nil {
			close(*changed)
		}
		return before, after
	}
}
