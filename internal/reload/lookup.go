// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Finder asks a snapshot. known reports whether it has an answer other than
// NoMatch, and settled whether no read could change that.
type Finder func(*snapshot.Snapshot) (known, settled bool)

// Finding is what a lookup has to answer from.
type Finding struct {
	Snapshot *snapshot.Snapshot
	Failed   map[schema.GroupVersion]error // where the answer may be as well, and why it could not be read
	Err      error                         // the server could not be read, or ctx ended
	Partial  bool                          // that nothing was found may be false a moment later
}

// Lookup reads what a lookup that the current snapshot does not settle still
// needs. What it finds, and what it does not find, comes from reads that began after Lookup
// was called. It is judged by its own reads: each is asked as soon as it has ended,
// whatever others have published since.
func (r *Reloader) Lookup(ctx context.Context, q snapshot.Query, find Finder) Finding {
	s := r.Snapshot()
	l := &lookup{r: r, q: q, find: find, s: s, p: snapshot.Progress{Done: map[snapshot.Read]snapshot.Outcome{}}}
	known, _ := find(s)
	ctx, cancel := r.patiently(ctx, q, known)
	defer cancel()
	for !l.settled() {
		reads := l.s.Missing(q, l.p)
		if len(reads) == 0 {
			return Finding{Snapshot: l.s, Failed: l.failed(), Partial: l.s.Partial(q, l.p)}
		}
		if err := l.make(ctx, reads); err != nil {
			return Finding{Snapshot: l.s, Err: err}
		}
	}
	return Finding{Snapshot: l.s}
}

// patience is how long a lookup of something known waits where it is not likely
// to be answered.
const patience = 3 * time.Second

// patiently returns the context of a lookup's reads. Once the server, or the group
// that is asked for, did not answer, one that is known waits only so long: or each
// such lookup would take a RequestTimeout, for as long as the outage lasts.
func (r *Reloader) patiently(ctx context.Context, q snapshot.Query, known bool) (context.Context, context.CancelFunc) {
	health := r.Health()
	failing := !health.FailingSince.IsZero() && health.failed > r.Snapshot().LastReset()
	if !known || !failing && !r.flights.hangs(q.Group) {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, patience)
}

// lookup is one lookup under way.
type lookup struct {
	r    *Reloader
	q    snapshot.Query
	find Finder
	s    *snapshot.Snapshot // what its last read has left
	p    snapshot.Progress
}

func (l *lookup) settled() bool {
	var settled bool
	l.p.Found, settled = l.find(l.s)
	return settled
}

// mostSilent is how many reads of one group in a row may get no answer before a
// lookup asks that group for nothing more.
const mostSilent = 2

// make makes the reads one after the other, as upstream's counting transport
// demands, until one of them settles the lookup. On a server whose document only
// lists versions it makes them all, as upstream's test of requests demands, and so
// that the next lookup in the group needs none. It returns an error if ctx ended, or
// if the document could not be read and no live read will do.
func (l *lookup) make(ctx context.Context, reads []snapshot.Read) error {
	settled, silent := false, map[string]int{}
	for _, r := range reads {
		if silent[r.Group] == mostSilent {
			gv := schema.GroupVersion{Group: r.Group, Version: r.Version}
			l.note(r, snapshot.Outcome{Err: discovery.NotAsked(gv)})
			continue
		}
		f, err := l.r.flights.do(ctx, r)
		switch {
		case settled && (err != nil || f.outcome.Err != nil):
			return nil
		case settled:
			continue
		case err != nil:
			return err
		}
		l.s = f.seen
		if r.Part.Document() && f.outcome.Err != nil && (!l.s.Read() || !l.q.Live()) {
			return f.outcome.Err
		}
		if silent[r.Group]++; !discovery.Unanswered(f.outcome.Err) {
			silent[r.Group] = 0
		}
		l.note(r, f.outcome)
		if settled = l.settled(); settled && l.s.Aggregated() {
			return nil
		}
	}
	return nil
}

func (l *lookup) note(r snapshot.Read, o snapshot.Outcome) {
	o.Times = l.p.Done[r].Times + 1
	l.p.Done[r] = o
}

// failed lists where the answer may be as well: the versions that the lookup could
// not read, and those of groups in question whose last read failed.
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
			continue // no proof of a version's absence rests on it
		}
		gv := schema.GroupVersion{Group: r.Group, Version: r.Version}
		if delete(failed, gv); o.Err != nil {
			failed[gv] = o.Err
		}
	}
	return failed
}
