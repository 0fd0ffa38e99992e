// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Finder looks something up in a snapshot. known reports whether the snapshot has an
// answer other than NoMatch. settled reports whether the lookup needs no read.
type Finder func(*snapshot.Snapshot) (known, settled bool)

// Finding is what a lookup is answered from.
type Finding struct {
	Snapshot *snapshot.Snapshot
	// Generation is that of the snapshot which was current after the lookup's last read.
	// Snapshot also has what only this lookup has found, and so another generation.
	Generation uint64

	Failed  map[schema.GroupVersion]error // versions that may have the answer and could not be read
	Err     error                         // why the server could not be read, or the cause of the end of ctx
	Partial bool                          // a NoMatch must not be kept; see snapshot.Partial
}

// Lookup makes the reads that a lookup still needs if the current snapshot does not
// settle it. Its finding comes from reads that began after the call of Lookup. Only the
// lookup's own reads decide: find is called after each of them, with the snapshot that
// this read left, whatever others have published since.
func (r *Reloader) Lookup(ctx context.Context, q snapshot.Query, find Finder) Finding {
	l := &lookup{r: r, q: q, find: find, p: snapshot.Progress{Done: map[snapshot.Read]snapshot.Outcome{}}}
	l.began, l.hung = r.Snapshot(), r.flights.hanging()
	l.published = l.began
	l.look(l.began)
	l.patience = l.patienceFor()
	for !l.settled {
		reads := l.s.Missing(q, l.p)
		if len(reads) == 0 {
			return Finding{Snapshot: l.s, Generation: l.published.Generation(), Failed: l.failed(), Partial: l.s.Partial(q, l.p)}
		}
		if err := l.make(ctx, reads); err != nil {
			return Finding{Snapshot: l.s, Err: err}
		}
	}
	return Finding{Snapshot: l.s}
}

// patience is how long a lookup of something known waits for a read that is not likely to
// be answered.
const patience = 3 * time.Second

// patienceFor returns how long the lookup waits for each of its reads, or 0 for as long
// as the read takes. It is patience if something known is looked up, and the server or the
// group did not answer the last time: otherwise each such lookup would take a
// RequestTimeout during an outage. It does not bound the lookup as a whole: each absence
// that is doubted takes a second.
func (l *lookup) patienceFor() time.Duration {
	health := l.r.Health()
	failing := health.failed > l.began.LastReset() // health.failed is 0 while the server works
	hung := func(g *snapshot.Group) bool { return l.hung[lane{group: g.Name()}] }
	if !l.p.Found || !failing && !slices.ContainsFunc(l.began.GroupsOf(l.q), hung) {
		return 0
	}
	return patience
}

// lookup is one lookup under way.
type lookup struct {
	r     *Reloader
	q     snapshot.Query
	find  Finder
	began *snapshot.Snapshot // the snapshot when the lookup began

	hung     map[lane]bool // the lanes that did not answer the last time before the lookup
	patience time.Duration // for each read; 0 means as long as the read takes

	s         *snapshot.Snapshot // the snapshot after the lookup's last read
	settled   bool               // whether s settles the lookup
	published *snapshot.Snapshot // the current snapshot after the lookup's last read

	mu  sync.Mutex // guards p and own: reads of several groups are made side by side
	p   snapshot.Progress
	own map[snapshot.Read]*flight // the lookup's live reads that did not fail
}

// look tries to answer the lookup from s, and reports whether the answer is settled. What
// the lookup's own live reads have found counts even if a document has overtaken them. If
// there is no other answer, it counts even if others have since read the opposite live:
// it was served while the lookup lasted.
func (l *lookup) look(s *snapshot.Snapshot) (settled bool) {
	s = s.Since(l.began)
	if len(l.own) == 0 {
		l.ask(s)
		return l.settled
	}
	if l.ask(l.with(s, 0)) || l.ask(s) || l.ask(l.with(s, l.r.tick())) {
		return l.settled
	}
	l.s = l.with(s, 0)
	return l.settled
}

// ask tries to answer the lookup from s, and reports whether s has an answer.
func (l *lookup) ask(s *snapshot.Snapshot) (found bool) {
	l.s = s
	l.p.Found, l.settled = l.find(s)
	l.settled = l.settled && !s.Returned(l.q, l.p)
	return l.p.Found
}

// with returns s with what the lookup's own live reads have found, in their order. It
// adds them as if they had begun at now, or, if now is 0, at their own ticks.
func (l *lookup) with(s *snapshot.Snapshot, now snapshot.Tick) *snapshot.Snapshot {
	own := slices.SortedFunc(maps.Values(l.own), func(a, b *flight) int { return cmp.Compare(a.outcome.Tick, b.outcome.Tick) })
	for _, f := range own {
		s = f.found(s, max(now, f.outcome.Tick))
	}
	return s
}

// mostSilent is how many reads of one group in a row may get no answer before a
// lookup asks that group for nothing more.
const mostSilent = 2

// make makes the reads. It makes those of one group one after the other, as upstream's
// counting transport demands, and those of several groups side by side. It returns an
// error if ctx ended, or if the document could not be read and live reads do not suffice.
func (l *lookup) make(ctx context.Context, reads []snapshot.Read) error {
	groups := byLane(reads)
	if len(groups) == 1 {
		return l.makeInOrder(ctx, reads, func(f *flight) (enough bool) {
			l.published = f.published
			return l.look(f.seen)
		})
	}
	ended := make(chan error, len(groups))
	for _, reads := range groups {
		go func() { ended <- l.makeInOrder(ctx, reads, func(*flight) bool { return false }) }()
	}
	var failed error
	for range groups {
		if err := <-ended; err != nil {
			failed = err
		}
	}
	l.published = l.r.Snapshot()
	l.look(l.published)
	return failed
}

// byLane splits reads by lane and keeps their order.
func byLane(reads []snapshot.Read) [][]snapshot.Read {
	var lanes [][]snapshot.Read
	for _, r := range reads {
		i := slices.IndexFunc(lanes, func(l []snapshot.Read) bool { return laneOf(l[0]) == laneOf(r) })
		if i < 0 {
			lanes = append(lanes, []snapshot.Read{r})
		} else {
			lanes[i] = append(lanes[i], r)
		}
	}
	return lanes
}

// makeInOrder makes the reads until seen, which it calls after each, returns true. If the
// document only lists versions, it makes the remaining reads all the same: upstream's
// test of requests demands that, and then the next lookup in the group needs no read.
func (l *lookup) makeInOrder(ctx context.Context, reads []snapshot.Read, seen func(*flight) (enough bool)) error {
	enough, silent := false, 0
	for _, r := range reads {
		unanswered := snapshot.Outcome{Err: discovery.NotAsked(schema.GroupVersion{Group: r.Group, Version: r.Version})}
		if silent == mostSilent {
			l.note(r, unanswered)
			continue
		}
		f, err := l.read(ctx, r)
		switch {
		case enough && (err != nil || f.outcome.Err != nil):
			return nil
		case enough:
			continue
		case err != nil && ctx.Err() == nil && l.patience == 0: // read was not patient with another group
			l.note(r, unanswered)
			silent = mostSilent
			continue
		case err != nil:
			return err
		case r.Part.Document() && f.outcome.Err != nil && (!f.seen.Read() || !l.q.Live()):
			l.s = f.seen
			return f.outcome.Err
		}
		if silent++; !discovery.Unanswered(f.outcome.Err) {
			silent = 0
		}
		l.note(r, f.outcome)
		if f.found != nil {
			l.keep(f)
		}
		if enough = seen(f); enough && f.seen.Aggregated() {
			return nil
		}
	}
	return nil
}

// read makes a read. It waits only for patience if a group did not answer the last time
// before the lookup, and is not the one that the lookup names.
func (l *lookup) read(ctx context.Context, r snapshot.Read) (*flight, error) {
	wait := l.patience
	if another := l.q.ByResource && r.Group != l.q.Group && !r.Part.Document(); another && l.hung[laneOf(r)] {
		wait = patience
	}
	if wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	return l.r.flights.do(ctx, r)
}

func (l *lookup) note(r snapshot.Read, o snapshot.Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o.Times = l.p.Done[r].Times + 1
	l.p.Done[r] = o
}

// keep keeps what a live read has found.
func (l *lookup) keep(f *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.own == nil {
		l.own = map[snapshot.Read]*flight{}
	}
	l.own[f.read] = f
}

// failed returns the versions that may have the answer but could not be read: by the
// lookup itself, or, in its groups, the last time that anybody read them.
func (l *lookup) failed() map[schema.GroupVersion]error {
	failed := map[schema.GroupVersion]error{}
	for _, g := range l.s.GroupsOf(l.q) {
		for _, v := range g.Versions() {
			if v.Err != nil && (len(l.q.Versions) == 0 || slices.Contains(l.q.Versions, v.Name)) {
				failed[schema.GroupVersion{Group: g.Name(), Version: v.Name}] = v.Err
			}
		}
	}
	for r, o := range l.p.Done {
		if r.Part.Document() {
			continue // no version is absent because of the document alone
		}
		gv := schema.GroupVersion{Group: r.Group, Version: r.Version}
		if delete(failed, gv); o.Err != nil {
			failed[gv] = o.Err
		}
	}
	return failed
}
