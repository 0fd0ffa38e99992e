// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Options are the settings of a Reloader.
type Options struct {
	MaxAge time.Duration // the age at which what is in use is confirmed; 0 or less: never
	Report func(Report)  // called after each read, never concurrently; nobody waits for it; may be nil
}

// Reloader holds the current snapshot of one server and reloads it on demand.
// All methods may be called from any goroutine.
type Reloader struct {
	current atomic.Pointer[snapshot.Snapshot] // stored by publish alone
	changed atomic.Pointer[chan struct{}]     // closed and taken away by publish; nil while nobody waits for it
	health  atomic.Pointer[Health]            // stored by record alone
	ticks   atomic.Uint64                     // the last tick that was taken

	subscribers atomic.Int64 // who needs every version

	client  *discovery.Client
	options Options
	flights flights
	reports *Queue
	age     *age
}

// New makes a reloader that knows nothing yet. It sends no request and starts no
// goroutine. options.Report is called through the queue reports.
func New(client *discovery.Client, reports *Queue, options Options) *Reloader {
	r := &Reloader{client: client, options: options, reports: reports, age: newAge(options.MaxAge)}
	r.flights = flights{perform: r.perform, tick: r.tick}
	r.health.Store(&Health{})
	r.current.Store(&snapshot.Snapshot{})
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

func (r *Reloader) tick() snapshot.Tick {
	now := snapshot.Tick(r.ticks.Add(1))
	if now == 1 {
		r.age.next(1) // the clock starts with the first read
	}
	return now
}

// event makes the snapshot that follows another one.
type event func(*snapshot.Snapshot) *snapshot.Snapshot

// publish replaces the current snapshot with the one that follows. Nothing else stores a
// snapshot. publish calls follow again if another goroutine was faster.
func (r *Reloader) publish(follow event) {
	for {
		current := r.current.Load()
		next := follow(current)
		if next == current {
			return
		}
		if r.current.CompareAndSwap(current, next) {
			if changed := r.changed.Swap(nil); changed != nil {
				close(*changed)
			}
			return
		}
	}
}

// perform makes the read of a flight, publishes what it finds and records how it went.
func (r *Reloader) perform(f *flight) {
	start := time.Now()
	f.outcome.Tick, f.from = f.began, r.Snapshot()
	var found event
	switch f.read.Part {
	case snapshot.PartDocument:
		found = r.readDocument(f)
	case snapshot.PartList:
		found = r.readList(f)
	case snapshot.PartVersion:
		found = r.readVersion(f)
	}
	if f.ctx.Err() == nil { // a flight that was abandoned proves nothing about the server
		r.publish(found)
		r.record(f, time.Since(start))
	}
}

func (r *Reloader) readDocument(f *flight) event {
	doc, err := r.client.Document(f.ctx)
	f.outcome.Err = err
	return func(s *snapshot.Snapshot) *snapshot.Snapshot {
		if err != nil {
			return s
		}
		return s.WithDocument(doc, f.outcome.Tick)
	}
}

func (r *Reloader) readList(f *flight) event {
	versions, preferred, err := r.client.List(f.ctx, f.read.Group)
	f.outcome.Err = err
	return func(s *snapshot.Snapshot) *snapshot.Snapshot {
		return s.WithList(f.read.Group, versions, preferred, err, f.outcome.Tick, f.from)
	}
}

func (r *Reloader) readVersion(f *flight) event {
	group, version := f.read.Group, f.read.Version
	known, pauses := f.from.Serves(group, version), r.pauses(f)
	var found snapshot.Found
	found.Table, found.Err = r.client.Version(f.ctx, group, version)
	for _, pause := range pauses {
		if !known || !found.None() {
			break
		}
		select {
		case <-f.ctx.Done():
		case <-time.After(pause):
		}
		f.outcome.Tick = r.tick() // the last request counts
		found.Table, found.Err = r.client.Version(f.ctx, group, version)
	}
	if found.None() {
		found = r.ofPeer(f.ctx, f.read)
	}
	f.outcome.Err, f.outcome.Gone = found.Err, known && found.None() // NegativeTTL keeps what was never there
	return func(s *snapshot.Snapshot) *snapshot.Snapshot {
		return s.WithVersion(group, version, found, f.outcome.Tick, r.tick(), f.from)
	}
}

// ofPeer returns what another API server serves in a version for which this one has
// answered 404. From 1.36 (KEP-4020) the document also lists built-in versions that only a
// peer serves. Such a version is not in the document without the peers, and still is in
// the one with them, which is read after that: it may have been behind.
func (r *Reloader) ofPeer(ctx context.Context, read snapshot.Read) (found snapshot.Found) {
	gv := schema.GroupVersion{Group: read.Group, Version: read.Version}
	listed := func() *snapshot.Version { return r.Snapshot().Group(gv.Group).Said().Version(gv.Version) }
	if !discovery.MayBeOfPeer(gv.Group) || !r.Snapshot().Aggregated() || listed() == nil {
		return found
	}
	local, err := r.client.ServedLocally(ctx, gv)
	if err != nil || local {
		return snapshot.Found{Err: err}
	}
	if err := r.ReadDocument(ctx); err != nil {
		return snapshot.Found{Err: err}
	}
	if said := listed(); said != nil {
		found.Table, found.Err = said.Table, said.Err // stale at the peer, if there is an error
	}
	return found
}

// pauses returns after which pauses a version is read again, until it is no longer a known one
// that is gone. There are some if the server failed less than doubtFor ago, or the last read
// of the version failed. A kube-apiserver that starts answers 404 for its custom resources for
// a moment: after it has read their definitions, which ends the 503, and before it has made
// their documents. Two loops in the server wait for the definitions, and each checks every
// 100 ms.
func (r *Reloader) pauses(f *flight) []time.Duration {
	v := f.from.Group(f.read.Group).Version(f.read.Version)
	if v != nil && v.Tried > 0 && v.Err != nil || time.Since(r.Health().Document.LastFailed) <= doubtFor {
		return []time.Duration{300 * time.Millisecond, 700 * time.Millisecond}
	}
	return nil
}

const doubtFor = 30 * time.Second
