// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"errors"
	"slices"
	"sync"
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
	Err      error                         // why the server could not be read, or the cause of the end of ctx
	Partial  bool                          // a NoMatch must not be kept: the next lookup may find more
}

// lookup is one lookup under way.
type lookup struct {
	r        *Reloader
	q        snapshot.Query
	brief    bool        // it knows an answer, and a read that it may need got none the last time
	answered func() bool // whether the snapshot has a current answer by now

	mu sync.Mutex // guards p.Done: reads of several groups are made side by side
	p  snapshot.Progress
}

// silentWait is how long a lookup waits for a read after another one in the group got no answer,
// and for a document that it can do without. So does a lookup of something known if a read that
// it may need got no answer the last time; otherwise it waits twice as long for a version or a
// list. So an outage costs no RequestTimeout.
const silentWait = 3 * time.Second

// Lookup answers a lookup. While the snapshot does not answer it, it makes the next of the
// reads that are missing. These begin after the call of Lookup.
func (r *Reloader) Lookup(ctx context.Context, q snapshot.Query, find Finder) Finding {
	return r.lookup(ctx, r.Now(), q, find, (*snapshot.Snapshot).AsOf)
}

// LookupSince is Lookup, but nothing that was read before began counts.
func (r *Reloader) LookupSince(ctx context.Context, began snapshot.Tick, q snapshot.Query, find Finder) Finding {
	return r.lookup(ctx, began, q, find, (*snapshot.Snapshot).Reset)
}

// Now returns a tick: reads that begin later have a greater one.
func (r *Reloader) Now() snapshot.Tick { return snapshot.Tick(r.ticks.Load()) }

// lookup is Lookup over what view makes of each snapshot and began.
func (r *Reloader) lookup(
	ctx context.Context, began snapshot.Tick, q snapshot.Query, find Finder, view func(*snapshot.Snapshot, snapshot.Tick) *snapshot.Snapshot,
) Finding {
	l := &lookup{r: r, q: q, answered: func() bool { _, current := find(view(r.Snapshot(), began)); return current }}
	l.p = snapshot.Progress{Began: began, Done: map[snapshot.Read]snapshot.Outcome{}}
	start := r.Snapshot()
	known, _ := find(start)
	l.brief = known && r.unanswered(start, q)
	for {
		s, current := view(r.Snapshot(), began), false
		if l.p.Found, current = find(s); current {
			return Finding{Snapshot: s}
		}
		reads := s.Missing(q, l.p)
		if len(reads) == 0 {
			return l.finding(s)
		}
		if err := l.make(ctx, reads); err != nil {
			return Finding{Snapshot: s, Err: err}
		}
	}
}

// unanswered reports whether a read that q may need did not get an answer the last time, or gets
// none now.
func (r *Reloader) unanswered(s *snapshot.Snapshot, q snapshot.Query) bool {
	groups := s.GroupsOf(q)
	waits := func(read snapshot.Read) bool {
		return read.Part == snapshot.PartDocument || (read.Part == snapshot.PartList || q.Wants(read.Version)) && slices.Contains(groups, s.Group(read.Group))
	}
	return discovery.Unanswered(r.Health().Document.Err) || r.flights.overdue(waits) ||
		slices.ContainsFunc(groups, func(g *snapshot.Group) bool { return hangs(g, q) })
}

// hangs reports whether a version of g that q is about gave no answer the last time.
func hangs(g *snapshot.Group, q snapshot.Query) bool {
	return slices.ContainsFunc(g.Versions(), func(v snapshot.Version) bool { return q.Wants(v.Name) && discovery.Unanswered(v.Err) })
}

// make makes the first of the reads if they are of one group: upstream's counting transport
// allows one request at a time. The groups of a lookup in several are read side by side,
// and no longer than silentWait after one that suffices.
func (l *lookup) make(ctx context.Context, groups [][]snapshot.Read) error {
	if len(groups) == 1 {
		return l.read(ctx, groups[0][0])
	}
	enough, stop := context.WithCancel(ctx)
	defer stop()
	var ended atomic.Int64
	every, last := int64(1+len(groups)/mostChecks), int64(len(groups)-mostParallel)
	_ = inParallel(groups, func(reads []snapshot.Read) error {
		for _, r := range reads {
			if err := l.read(enough, r); err != nil {
				return err
			}
		}
		if n := ended.Add(1); (n%every == 0 || n >= last) && l.answered() {
			time.AfterFunc(silentWait, stop)
		}
		return nil
	})
	return discovery.Cause(ctx)
}

// read makes a read and notes its outcome. It returns an error only if ctx ended.
func (l *lookup) read(ctx context.Context, r snapshot.Read) error {
	l.mu.Lock()
	before, wait := l.p.Done[r], l.wait(r)
	l.mu.Unlock()
	since, waiting := l.p.Began, ctx
	if before.Times > 0 {
		since = never // the read is repeated because of a change
	}
	if wait >= 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	f, err := l.r.flights.do(waiting, r, since, false)
	if err != nil && ctx.Err() != nil {
		return err
	}
	o := snapshot.Outcome{Tick: l.r.tick(), Err: discovery.NotAwaited(r, max(wait, 0))} // not to be made again
	if err == nil {
		o = f.outcome
	}
	o.Times = before.Times + 1
	o.Silent = discovery.Unanswered(o.Err)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.p.Note(r, o)
	return nil
}

// wait returns how long the lookup waits for a read; less than 0: until it ends.
func (l *lookup) wait(r snapshot.Read) time.Duration {
	spare := r.Part == snapshot.PartDocument && l.r.Snapshot().PathsAnswer(l.q)
	silent := l.p.Any(r.Group, func(o snapshot.Outcome) bool { return o.Silent })
	switch {
	case l.brief && (silent || spare):
		return silentWait / 10
	case l.brief || spare || silent:
		return silentWait
	case l.p.Found && r.Part != snapshot.PartDocument:
		return 2 * silentWait // the server may be slow, and what is known is from before a reset
	}
	return -1
}

// finding returns what a lookup that has made all its reads is answered from: s, and what
// could not be read.
func (l *lookup) finding(s *snapshot.Snapshot) Finding {
	failed := map[schema.GroupVersion]error{}
	for _, g := range s.GroupsOf(l.q) {
		for _, v := range g.Versions() {
			if v.Err != nil && l.q.Wants(v.Name) {
				failed[schema.GroupVersion{Group: g.Name(), Version: v.Name}] = v.Err
			}
		}
	}
	for r, o := range l.p.Done {
		if r.Part != snapshot.PartDocument && o.Err != nil {
			failed[schema.GroupVersion{Group: r.Group, Version: r.Version}] = o.Err
		}
	}
	document := l.p.Done[snapshot.Read{}]
	if s.PathsAnswer(l.q) {
		document.Err = nil // the group was read live all the same
	}
	return Finding{
		Snapshot: s, Failed: failed, Err: document.Err,
		Partial: l.p.Began == 0 || len(l.q.Versions) == 0 && l.p.Any(l.q.Group, func(o snapshot.Outcome) bool { return o.Gone }),
	}
}

// mostParallel is how many groups a lookup or a refresh reads at a time.
const mostParallel = 8

// mostChecks is about how often a lookup in many groups checks, before its last groups, whether
// it is answered: each check goes through all groups.
const mostChecks = 64

// inParallel calls do for each of lists, for mostParallel at a time, and joins the errors.
func inParallel(lists [][]snapshot.Read, do func([]snapshot.Read) error) error {
	errs := make([]error, len(lists))
	next := make(chan int)
	var all sync.WaitGroup
	for range min(mostParallel, len(lists)) {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := range next {
				errs[i] = do(lists[i])
			}
		}()
	}
	for i := range lists {
		next <- i
	}
	close(next)
	all.Wait()
	return errors.Join(errs...)
}
