// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Finding is what a lookup is answered from.
type Finding struct {
	Snapshot *snapshot.Snapshot
	Answered bool // the snapshot has an answer other than NoMatch, which may be an old one

	// Failed has the versions that may have the answer and could not be read.
	Failed map[schema.GroupVersion]error

	// Err is why the server, or the list of a group, could not be read, or the cause of the end of the context.
	Err error

	// MayFindMore reports whether the next lookup may find more, although nothing changes: then a NoMatch must not
	// be kept.
	MayFindMore bool
}

// Lookup answers a lookup. While the snapshot does not answer it, it makes the next of the reads that are missing.
// These begin after the call of Lookup.
func (r *Reloader) Lookup(ctx context.Context, q snapshot.Query) Finding {
	known := r.Snapshot()
	return r.newLookup(q, r.LastSeq(), known.LastReset()).run(ctx)
}

// LookupSince is Lookup, except that nothing counts that was read before began.
func (r *Reloader) LookupSince(ctx context.Context, q snapshot.Query, began snapshot.Seq) Finding {
	return r.newLookup(q, began, began).run(ctx)
}

// lookup is one lookup under way.
//
// It is answered by what is known now. If others publish meanwhile what contradicts its own reads, it is answered by
// what was known when it began and these (R3): caller.own. A lookup in all groups has nothing of its own: it believes
// documents.
type lookup struct {
	*caller
	query snapshot.Query
	reset snapshot.Seq // what was read before does not count; later resets are not this lookup's
}

func (r *Reloader) newLookup(q snapshot.Query, began, reset snapshot.Seq) *lookup {
	l := &lookup{caller: r.newCaller(began, waitUntilSlow), query: q, reset: reset}
	l.deadline = time.Now().Add(maxWait)
	if !q.AnyGroup() {
		l.own = r.Snapshot()
	}
	return l
}

// run makes the reads that the lookup needs, until it has its answer or there are no more.
func (l *lookup) run(ctx context.Context) Finding {
	defer l.close()
	for {
		s, has := l.bestAnswer()
		if has == currentAnswer {
			return Finding{Snapshot: s, Answered: true}
		}
		l.waits = waitUntilSlow
		if has == oldAnswer {
			l.waits = waitIfResponsive
		}

		var err error
		progress := snapshot.Progress{Began: l.since, HasAnswer: has == oldAnswer, Done: l.done}
		if missing := s.MissingReads(l.query, progress); len(missing) > 0 {
			err = l.makeReads(ctx, missing)
		} else if slow := l.slowThatMatters(s, has); slow >= 0 {
			err = l.awaitSlow(ctx, slow)
		} else {
			return l.finding(s, has)
		}
		if err != nil {
			return Finding{Snapshot: s, Answered: has != noAnswer, Err: err}
		}
	}
}

// answer is what a snapshot has for a lookup. A greater one is better.
type answer int

const (
	// noAnswer: NoMatch, which is never current by itself: only the lookup's own reads can prove it.
	noAnswer answer = iota
	// oldAnswer: something that the lookup rests on was read before the last reset, or its place among others is not
	// known yet.
	oldAnswer
	// currentAnswer: the lookup needs no read.
	currentAnswer
)

// answerIn returns what a snapshot has for the lookup, seen as of the lookup's own reset.
func (l *lookup) answerIn(s *snapshot.Snapshot) (asOfReset *snapshot.Snapshot, has answer) {
	asOfReset = s.WithLastReset(l.reset)
	found, current := asOfReset.Answers(&l.query)
	switch {
	case current:
		return asOfReset, currentAnswer
	case found:
		return asOfReset, oldAnswer
	default:
		return asOfReset, noAnswer
	}
}

// bestAnswer returns what is known now, or the lookup's own reads if these have a better answer.
func (l *lookup) bestAnswer() (*snapshot.Snapshot, answer) {
	now := l.r.Snapshot()
	known, has := l.answerIn(now)
	if has == currentAnswer || l.own == nil || l.own == now {
		return known, has
	}
	own, ownHas := l.answerIn(l.own)
	if ownHas > has {
		return own, ownHas
	}
	return known, has
}

// slowThatMatters returns which of the slow calls may still give a lookup that has no answer one, or -1. If the paths
// of the group answer the lookup, the document does not matter. Nor does, to a lookup that names no group, a version of
// which it is known that it fails.
func (l *lookup) slowThatMatters(s *snapshot.Snapshot, has answer) int {
	if has != noAnswer {
		return -1
	}
	return slices.IndexFunc(l.slow, func(c *call) bool {
		switch c.read.Part {
		case snapshot.PartDocument:
			return !s.PathsSuffice(&l.query)
		case snapshot.PartVersion:
			v := s.Group(c.read.Group).Version(c.read.Version)
			fails := v != nil && v.Err != nil
			return !fails || !l.query.AnyGroup()
		default:
			return true
		}
	})
}

// makeReads makes the first of the reads if they are of one group: upstream's counting transport allows one request
// at a time, and the next may not be needed. The groups of a lookup in several are read side by side, and for
// slowThreshold at most once the lookup has its answer.
func (l *lookup) makeReads(ctx context.Context, groups [][]snapshot.Read) error {
	if len(groups) == 1 {
		_, err := l.read(ctx, groups[0][0])
		return err
	}
	enough, stop := context.WithCancel(ctx)
	defer stop()
	checks := newChecks(groups)
	workqueue.ParallelizeUntil(enough, maxParallel, len(groups), func(i int) {
		for _, read := range groups[i] {
			if _, err := l.read(enough, read); err != nil {
				return
			}
			if !checks.due() {
				continue
			}
			if _, has := l.answerIn(l.r.Snapshot()); has == currentAnswer {
				time.AfterFunc(slowThreshold, stop)
			}
		}
	})
	return discovery.Cause(ctx)
}

// checks says when a lookup in many groups checks whether it is answered: after each of its last reads, and about
// maxChecks times before that. Each check goes through all groups.
type checks struct {
	ended atomic.Int64 // reads
	every int64
	last  int64
}

const maxChecks = 64

func newChecks(groups [][]snapshot.Read) *checks {
	reads := len(slices.Concat(groups...))
	return &checks{every: int64(1 + reads/maxChecks), last: int64(reads - maxParallel)}
}

// due counts a read that has ended, and reports whether to check after it.
func (c *checks) due() bool {
	n := c.ended.Add(1)
	return n%c.every == 0 || n >= c.last
}

// finding returns what a lookup that has made all its reads is answered from: s, and what could not be read.
func (l *lookup) finding(s *snapshot.Snapshot, has answer) Finding {
	found := Finding{
		Snapshot: s, Answered: has != noAnswer,
		Failed: l.failedVersions(s), MayFindMore: l.since == 0,
	}
	var lists []error
	for read, outcome := range l.done {
		switch read.Part {
		case snapshot.PartDocument:
			if !s.PathsSuffice(&l.query) { // otherwise the group was read live all the same
				found.Err = outcome.Err
			}
		case snapshot.PartGroup:
			if outcome.Err != nil {
				lists = append(lists, outcome.Err)
			}
		case snapshot.PartVersion:
			if outcome.Err != nil {
				found.Failed[schema.GroupVersion{Group: read.Group, Version: read.Version}] = outcome.Err
			}
			if outcome.Removed && len(l.query.Versions) == 0 {
				found.MayFindMore = true // this lookup did not read the list
			}
		}
	}
	if found.Err == nil && len(lists) > 0 {
		found.Err = slices.MinFunc(lists, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	}
	return found
}

// failedVersions returns the versions that may have the answer, and of which s knows that they could not be read.
func (l *lookup) failedVersions(s *snapshot.Snapshot) map[schema.GroupVersion]error {
	failed := map[schema.GroupVersion]error{}
	for _, g := range s.CandidateGroups(&l.query) {
		for _, v := range g.Versions() {
			if v.Err == nil || !l.query.WantsVersion(v.Name) || s.DocumentProves(&l.query, g.Name(), v.Name) {
				continue
			}
			failed[schema.GroupVersion{Group: g.Name(), Version: v.Name}] = v.Err
		}
	}
	return failed
}
