// SPDX-License-Identifier: Apache-2.0

// Package reload keeps the current snapshot. No other package replaces it.
//
// Snapshot returns what is known with one atomic load. If that is not enough, Lookup makes
// the reads that it still needs. Each is a flight: one read of the server for all callers
// that wait for the same. Callers join it only until it starts, so what it reads is never older
// than their lookups. Each read has the tick at which it began; the snapshot merges by ticks, so
// nothing else orders flights. No lock is held while one runs.
//
// The files, from who needs a read to what comes of it:
//
//	lookup.go     a lookup makes the reads that its answer lacks
//	refresh.go    a refresh makes those that confirm what is known, when that is due
//	      ↓
//	reading.go    the reads of one caller, and how long it waits for each (R7)
//	      ↓
//	flight.go     one read for all who wait for it
//	      ↓
//	reload.go     the Reloader performs it, and publishes the snapshot that follows
//	absence.go    whether a 404 counts before it does (R6)
package reload

import (
	"sync/atomic"
	"time"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Options are the settings of a Reloader.
type Options struct {
	MaxAge time.Duration // the age at which what is in use is confirmed; 0 or less: never
	Report func(Report)  // called after each read, by several goroutines at once; must return soon; may be nil
}

// Report describes one read.
type Report struct {
	Read     snapshot.Read
	Duration time.Duration
	Outcome  snapshot.Outcome
	After    *snapshot.Snapshot // with what it has found
}

// Reloader holds the current snapshot of one server and reloads it on demand.
// All methods may be called from any goroutine.
type Reloader struct {
	current atomic.Pointer[snapshot.Snapshot] // stored by publish alone
	changed atomic.Pointer[chan struct{}]     // closed and taken away by publish; nil while nobody waits for it

	// lastFailure is the last failure of the server; nil: it has not failed. See absence.go.
	lastFailure atomic.Pointer[serverFailure]

	ticks atomic.Uint64 // the last tick that was taken

	subscribers atomic.Int64 // who needs every version

	allRead      atomic.Pointer[time.Time] // when the reads began that last confirmed everything; nil: never
	notConfirmed atomic.Pointer[failure]   // the last failure of ConfirmAll; nil: none
	uses         uses                      // when groups were last used

	client  *discovery.Client
	options Options
	flights flights
	age     *age
}

// New makes a reloader that knows nothing yet. It sends no request and starts no
// goroutine.
func New(client *discovery.Client, options Options) *Reloader {
	r := &Reloader{client: client, options: options, age: newAge(options.MaxAge)}
	r.flights = flights{perform: r.perform, tick: r.tick, current: r.Snapshot}
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
	now := r.tick()
	r.publish(func(s *snapshot.Snapshot) *snapshot.Snapshot { return s.Reset(now) })
}

func (r *Reloader) tick() snapshot.Tick {
	now := snapshot.Tick(r.ticks.Add(1))
	if now == 1 {
		r.age.next(1) // the clock starts with the first read
	}
	return now
}

// publish replaces the current snapshot with the one that follows, and returns both. Nothing else
// stores a snapshot. publish calls follow again if another goroutine was faster.
func (r *Reloader) publish(follow event) (before, after *snapshot.Snapshot) {
	for {
		before = r.current.Load()
		after = follow(before)
		if after == before {
			return before, after
		}
		if r.current.CompareAndSwap(before, after) {
			if changed := r.changed.Swap(nil); changed != nil {
				close(*changed)
			}
			return before, after
		}
	}
}

// perform makes the read of a flight, publishes what it finds and reports how it went. A flight
// that was abandoned proves nothing about the server.
func (r *Reloader) perform(f *flight) {
	start := time.Now()
	f.outcome.Tick = f.began
	switch f.read.Part {
	case snapshot.PartDocument:
		r.readDocument(f)
	case snapshot.PartList:
		r.readList(f)
	case snapshot.PartVersion:
		r.readVersion(f)
	}
	if f.ctx.Err() != nil {
		return
	}
	f.before, f.after = r.publish(f.found)
	if r.options.Report != nil {
		r.options.Report(Report{Read: f.read, Duration: time.Since(start), Outcome: f.outcome, After: f.after})
	}
}

// nothing is the event of a read that has found nothing.
func nothing(s *snapshot.Snapshot) *snapshot.Snapshot { return s }

func (r *Reloader) readDocument(f *flight) {
	began := time.Now()
	doc, err := r.client.Document(f.ctx)
	f.outcome.Err, f.found = err, nothing
	if err != nil {
		return
	}
	f.found = func(s *snapshot.Snapshot) *snapshot.Snapshot { return s.WithDocument(doc, f.began) }
	if doc.Aggregated() {
		r.NoteAllRead(began)
	}
}

func (r *Reloader) readList(f *flight) {
	versions, preferred, proven, err := r.client.List(f.ctx, f.read.Group)
	if err == nil && len(versions) == 0 {
		err = r.confirmAbsence(f, f.from.Group(f.read.Group) != nil, proven).Err
	}
	f.outcome.Err, f.outcome.Versions, f.found = err, versions, nothing
	if err == nil {
		f.found = func(s *snapshot.Snapshot) *snapshot.Snapshot {
			return s.WithList(f.read.Group, versions, preferred, f.began, f.from)
		}
	}
}

func (r *Reloader) readVersion(f *flight) {
	group, version := f.read.Group, f.read.Version
	known := f.from.Serves(group, version)
	var found snapshot.Found
	var proven bool
	found.Table, proven, found.Err = r.client.Version(f.ctx, group, version)
	if found.None() {
		found = r.confirmAbsence(f, known, proven)
	}
	f.outcome.Err, f.outcome.Gone = found.Err, known && found.None() // NegativeTTL keeps what was never there
	f.found = func(s *snapshot.Snapshot) *snapshot.Snapshot {
		return s.WithVersion(group, version, found, f.began, f.from)
	}
}
