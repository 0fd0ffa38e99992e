// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Options are the settings of a Reloader.
type Options struct {
	MaxAge         time.Duration // the age at which what is in use is confirmed; 0 or less: never
	UnhealthyAfter time.Duration // after a quarter of it, with only groups failing, /api is read
	Report         func(Report)  // called after each read, never concurrently; nobody waits for it; may be nil
}

// Reloader holds the current snapshot of one server and reloads it on demand.
// All methods may be called from any goroutine.
type Reloader struct {
	current atomic.Pointer[snapshot.Snapshot] // stored by publish alone
	changed atomic.Pointer[chan struct{}]     // closed and replaced by publish
	health  atomic.Pointer[Health]            // stored by record and recordRefresh alone
	doubts  doubts
	ticks   atomic.Uint64 // the last tick that was taken
	client  *discovery.Client
	options Options
	flights *flights
	reports *Queue
	age     *age

	all atomic.Bool // ReadAll was called, so refreshes read everything
}

// New makes a reloader that knows nothing yet. It sends no request and starts no
// goroutine. options.Report is called through the queue reports.
func New(client *discovery.Client, reports *Queue, options Options) *Reloader {
	r := &Reloader{client: client, options: options, reports: reports, age: newAge(options.MaxAge)}
	r.flights = newFlights(r.perform)
	changed := make(chan struct{})
	r.changed.Store(&changed)
	r.health.Store(&Health{})
	r.current.Store(&snapshot.Snapshot{})
	return r
}

// Snapshot returns what is known now. It takes no lock and never waits.
func (r *Reloader) Snapshot() *snapshot.Snapshot { return r.current.Load() }

// Changed returns a channel that is closed at the next change of the snapshot. To miss
// no change, get the channel first and then the snapshot.
func (r *Reloader) Changed() <-chan struct{} { return *r.changed.Load() }

// Health returns how the reads of the server have gone so far.
func (r *Reloader) Health() Health { return *r.health.Load() }

// Reset makes every later lookup need a new read. It sends no request and does not wait.
func (r *Reloader) Reset() {
	now := r.tick()
	r.publish(func(s *snapshot.Snapshot) *snapshot.Snapshot { return s.Reset(now) })
}

// ResetGroup is Reset for one group, which is then read live.
func (r *Reloader) ResetGroup(group string) {
	now := r.tick()
	r.publish(func(s *snapshot.Snapshot) *snapshot.Snapshot { return s.ResetGroup(group, now) })
}

func (r *Reloader) tick() snapshot.Tick { return snapshot.Tick(r.ticks.Add(1)) }

// publish replaces the current snapshot with the one that follow makes from it, and
// returns the new one. Nothing else stores a snapshot. publish calls follow again if
// another goroutine was faster.
func (r *Reloader) publish(follow func(*snapshot.Snapshot) *snapshot.Snapshot) *snapshot.Snapshot {
	for {
		current := r.current.Load()
		next := follow(current)
		if next == current {
			return next
		}
		if r.current.CompareAndSwap(current, next) {
			changed := make(chan struct{})
			close(*r.changed.Swap(&changed))
			return next
		}
	}
}

// perform makes the read of a flight, publishes what it finds and records how it went.
// Flights of several lanes are performed side by side.
func (r *Reloader) perform(f *flight) {
	start, from := time.Now(), r.Snapshot()
	r.begin(f)
	switch f.read.Part {
	case snapshot.PartList:
		r.readList(f)
	case snapshot.PartVersion:
		r.readVersion(f)
	default:
		f.outcome.Known = !from.Empty()
		r.readDocument(f)
	}
	if f.seen == nil {
		f.seen, f.published = r.Snapshot(), r.Snapshot()
	}
	if f.ctx.Err() == nil { // a flight that was abandoned proves nothing about the server
		r.record(f, from, time.Since(start))
	}
}

// begin is called before the first request of a read, and before each new request if an
// answer is doubted: the last one counts.
func (r *Reloader) begin(f *flight) {
	f.from, f.outcome.Tick = r.Snapshot(), r.tick()
}

func (r *Reloader) readDocument(f *flight) {
	halves := discovery.Halves{Core: f.read.Part != snapshot.PartNamed, Named: f.read.Part != snapshot.PartCore}
	var core, named snapshot.Tick
	if halves.Core {
		core = f.outcome.Tick
	}
	if halves.Named {
		named = f.outcome.Tick
	}
	bulk, err := r.client.Document(f.ctx, halves)
	if err != nil {
		f.outcome.Err = err
		return
	}
	f.published = r.publish(func(s *snapshot.Snapshot) *snapshot.Snapshot { return s.WithDocument(bulk.List, core, named) })
	f.seen = f.published
	if halves.Core && halves.Named {
		r.age.confirmed()
	}
}

func (r *Reloader) readList(f *flight) {
	var versions []string
	var preferred string
	var err error
	r.doubted(f, func() (absent bool) {
		versions, preferred, err = r.client.List(f.ctx, f.read.Group)
		return err == nil && len(versions) == 0
	})
	if f.ctx.Err() != nil {
		err = context.Cause(f.ctx)
	}
	if err != nil {
		f.outcome.Err = err
		return
	}
	f.outcome.Absent = len(versions) == 0
	f.found = func(s *snapshot.Snapshot, now snapshot.Tick) *snapshot.Snapshot {
		return s.WithList(f.read.Group, versions, preferred, now)
	}
	r.publishLive(f, f.found)
}

func (r *Reloader) readVersion(f *flight) {
	group, version := f.read.Group, f.read.Version
	var table *snapshot.Table
	var err error
	r.doubted(f, func() (absent bool) {
		table, err = r.client.Version(f.ctx, group, version)
		return err == nil && table == nil
	})
	if f.ctx.Err() != nil {
		f.outcome.Err = context.Cause(f.ctx)
		return
	}
	f.outcome.Err, f.outcome.Absent = err, err == nil && table == nil
	f.outcome.Known = r.Snapshot().Serves(group, version)
	if err != nil {
		r.publishLive(f, func(s *snapshot.Snapshot, now snapshot.Tick) *snapshot.Snapshot {
			return s.WithFailedVersion(group, version, err, now)
		})
		return
	}
	f.found = func(s *snapshot.Snapshot, now snapshot.Tick) *snapshot.Snapshot {
		return s.WithVersion(group, version, table, now)
	}
	r.publishLive(f, f.found)
}

// publishLive publishes what a live read has found, unless a document that began later
// was published first and has news of the group. Callers that waited for the read see its
// result in any case.
func (r *Reloader) publishLive(f *flight, follow finding) {
	f.published = r.publish(func(s *snapshot.Snapshot) *snapshot.Snapshot {
		if next, ok := s.Overtaken(f.from, f.read, f.outcome.Tick); ok {
			return next
		}
		return follow(s, f.outcome.Tick)
	})
	f.seen = follow(f.published, f.outcome.Tick)
	if !f.published.Read() {
		r.age.begin()
	}
}
