// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Finder looks something up in a snapshot. known reports whether the snapshot has an
// answer other than NoMatch. current reports whether the lookup needs no read.
type Finder func(*snapshot.Snapshot) (known, current bool)

// Finding is what a lookup is answered from.
type Finding struct {
	Snapshot *snapshot.Snapshot
	Failed   map[schema.GroupVersion]error // versions that may have the answer and could not be read
	Err      error                         // why the server, or a group's list, could not be read, or the cause of the end of ctx
	Partial  bool                          // a NoMatch must not be kept: the next lookup may find more
}

// Lookup answers a lookup. While the snapshot does not answer it, it makes the next of the
// reads that are missing. These begin after the call of Lookup.
func (r *Reloader) Lookup(ctx context.Context, q snapshot.Query, find Finder) Finding {
	known := r.Snapshot()
	return r.lookup(ctx, r.Now(), known.LastReset(), q, find)
}

// LookupSince is Lookup, but nothing that was read before began counts.
func (r *Reloader) LookupSince(ctx context.Context, began snapshot.Tick, q snapshot.Query, find Finder) Finding {
	return r.lookup(ctx, began, began, q, find)
}

// Now returns a tick: reads that begin later have a greater one.
func (r *Reloader) Now() snapshot.Tick { return snapshot.Tick(r.ticks.Load()) }

// lookup is one lookup under way.
type lookup struct {
	reading
	r     *Reloader
	q     snapshot.Query
	find  Finder
	reset snapshot.Tick // what was read before it does not count; later resets are not this lookup's

	// own is what was known when the lookup began, and its own reads since (R3). A lookup in all groups
	// has none: it believes documents. Guarded by reading.mu.
	own *snapshot.Snapshot
}

func (r *Reloader) lookup(ctx context.Context, began, reset snapshot.Tick, q snapshot.Query, find Finder) Finding {
	l := &lookup{reading: r.newReading(began), r: r, q: q, find: find, reset: reset}
	l.until = time.Now().Add(mostWait)
	if !q.AnyGroup() {
		l.own, l.ended = r.Snapshot(), l.add
	}
	defer l.close()
	for {
		s, known, current := l.answer()
		if current {
			return Finding{Snapshot: s}
		}
		l.hasAnswer = known
		var err error
		reads := s.Next(q, snapshot.Progress{Began: began, Found: known, Done: l.done})
		switch {
		case len(reads) > 0:
			err = l.make(ctx, reads)
		case !known && l.lacksOpen(s):
			err = l.awaitOne(ctx)
		default:
			return l.finding(s)
		}
		if err != nil {
			return Finding{Snapshot: s, Err: err}
		}
	}
}

// lacksOpen reports whether the answer rests on a read that was unanswered, and puts such a one first. If the paths
// of the group answer the lookup, nobody waits for the document. Nor does a lookup that names no group wait for a
// version of which it is known that it fails.
func (l *lookup) lacksOpen(s *snapshot.Snapshot) bool {
	for i, f := range l.open {
		v := s.Group(f.read.Group).Version(f.read.Version)
		failing := l.q.AnyGroup() && f.read.Part == snapshot.PartVersion && v != nil && v.Err != nil
		if failing || f.read.Part == snapshot.PartDocument && s.PathsAnswer(&l.q) {
			continue
		}
		l.open[0], l.open[i] = f, l.open[0]
		return true
	}
	return false
}

// answer returns the snapshot that has a current answer: what is known now, or the lookup's own
// reads, whatever others publish meanwhile. If none has, it returns one that has an answer.
func (l *lookup) answer() (s *snapshot.Snapshot, known, current bool) {
	now := l.r.Snapshot()
	s = now.Since(l.reset)
	known, current = l.find(s)
	if current || l.own == nil || l.own == now {
		return s, known, current
	}
	own := l.own.Since(l.reset)
	ownKnown, ownCurrent := l.find(own)
	if ownCurrent || ownKnown && !known {
		return own, ownKnown, ownCurrent
	}
	return s, known, false
}

// add adds a read to the lookup's own. Where nobody else has published meanwhile, that is what
// was published.
func (l *lookup) add(f *flight) {
	if l.own == f.before {
		l.own = f.after
	} else {
		l.own = f.found(l.own)
	}
}

// make makes the first of the reads if they are of one group: upstream's counting transport
// allows one request at a time, and the next may not be needed. The groups of a lookup in several are
// read side by side, and no longer than patience after one that suffices.
func (l *lookup) make(ctx context.Context, groups [][]snapshot.Read) error {
	if len(groups) == 1 {
		_, err := l.read(ctx, groups[0][0])
		return err
	}
	enough, stop := context.WithCancel(ctx)
	defer stop()
	var ended atomic.Int64
	reads := len(slices.Concat(groups...))
	every, last := int64(1+reads/mostChecks), int64(reads-mostParallel)
	_ = l.run(enough, groups, func(int, snapshot.Read, snapshot.Outcome) bool {
		if n := ended.Add(1); n%every == 0 || n >= last {
			if _, current := l.find(l.r.Snapshot().Since(l.reset)); current {
				time.AfterFunc(patience, stop)
			}
		}
		return true
	})
	return discovery.Cause(ctx)
}

// mostChecks is about how often a lookup in many groups checks, before its last groups, whether
// it is answered: each check goes through all groups.
const mostChecks = 64

// finding returns what a lookup that has made all its reads is answered from: s, and what
// could not be read.
func (l *lookup) finding(s *snapshot.Snapshot) Finding {
	found := Finding{Snapshot: s, Failed: map[schema.GroupVersion]error{}, Partial: l.since == 0}
	for _, g := range s.GroupsOf(&l.q) {
		for _, v := range g.Versions() {
			if v.Err != nil && l.q.Wants(v.Name) && !s.Proves(&l.q, g.Name(), v.Name) {
				found.Failed[schema.GroupVersion{Group: g.Name(), Version: v.Name}] = v.Err
			}
		}
	}
	var lists []error
	for r, o := range l.done {
		switch {
		case r.Part == snapshot.PartDocument:
			if !s.PathsAnswer(&l.q) { // otherwise the group was read live all the same
				found.Err = o.Err
			}
		case o.Err != nil && r.Part == snapshot.PartList:
			lists = append(lists, o.Err)
		case o.Err != nil:
			found.Failed[schema.GroupVersion{Group: r.Group, Version: r.Version}] = o.Err
		case o.Gone && len(l.q.Versions) == 0:
			found.Partial = true // the list was left to the next lookup
		}
	}
	if found.Err == nil && len(lists) > 0 {
		found.Err = slices.MinFunc(lists, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	}
	return found
}
