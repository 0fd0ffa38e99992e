// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Refresh reads the document, and then live what differs from it; see snapshot.Due. It
// returns when all of that is done or unanswered, or when ctx ends. Its error is that of the document:
// the versions that fail are in the snapshot. Only a refresh that succeeds confirms what
// is known.
func (r *Reloader) Refresh(ctx context.Context) error { return r.refresh(ctx, false) }

// refresh is Refresh. notForHanging is whether it only begins the reads of versions that are known to give no answer,
// and does not wait for them.
func (r *Reloader) refresh(ctx context.Context, notForHanging bool) error {
	began := time.Now()
	if err := r.ReadDocument(ctx); err != nil {
		return err
	}
	all := r.subscribers.Load() > 0
	differing, dropped := r.Snapshot().Due(all, r.uses.idle(r.Snapshot()))
	x := r.newReading(never)
	x.hasAnswer, x.abandon, x.notForHanging = true, true, notForHanging
	err := x.run(ctx, append([][]snapshot.Read{dropped}, differing...), func(list int, read snapshot.Read, o snapshot.Outcome) bool {
		return list > 0 || o.Err == nil && !r.Snapshot().Serves(read.Group, read.Version) // else the document is behind
	})
	if err != nil {
		return err
	}
	r.age.next(1)
	if all {
		r.NoteAllRead(began)
	}
	return nil
}

// NoteAllRead notes that everything that is served was read by reads that began after a time.
func (r *Reloader) NoteAllRead(began time.Time) { r.allRead.Store(&began) }

// AllRead returns when the reads began that last confirmed everything that is known, or the zero time.
func (r *Reloader) AllRead() time.Time {
	if last := r.allRead.Load(); last != nil {
		return *last
	}
	return time.Time{}
}

// Outdated reports whether that was more than MaxAge ago.
func (r *Reloader) Outdated() bool { return r.age.most > 0 && time.Since(r.AllRead()) >= r.age.most }

// ConfirmAll refreshes everything that is known if it is outdated, and waits for that. A refresh alone leaves out what
// nobody uses, on a server without the aggregated document. It waits no longer than a lookup that has an old answer, and
// not at all if the server is silent or an attempt has failed a moment ago (R7): then its error says so. Nor does it wait
// for a version that is known to give no answer: who asks once a minute would wait for it each time.
func (r *Reloader) ConfirmAll(ctx context.Context) error {
	if !r.Outdated() {
		return nil
	}
	if failed := r.notConfirmed.Load(); failed != nil && time.Since(failed.at) < patience {
		return failed.err
	}
	if r.flights.isUnanswered(snapshot.Read{}) {
		return discovery.NotAwaited(snapshot.Read{}, patience)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, mostWait, discovery.NotAwaited(snapshot.Read{}, mostWait))
	defer cancel()
	defer r.KeepAll()()
	err := r.refresh(ctx, true)
	if err != nil {
		r.notConfirmed.Store(&failure{time.Now(), err})
	}
	return err
}

// NotAnswering returns the versions that are being read and do not answer, each with an error. Only the version's own
// path tells whether what is known of it still holds: the aggregated document says so of all, and there are none.
func (r *Reloader) NotAnswering() map[schema.GroupVersion]error {
	if r.Snapshot().Aggregated() {
		return nil
	}
	errs := map[schema.GroupVersion]error{}
	for _, read := range r.flights.silentVersions() {
		errs[schema.GroupVersion{Group: read.Group, Version: read.Version}] = discovery.NotAwaited(read, patience)
	}
	return errs
}

// failure is an attempt that has failed.
type failure struct {
	at  time.Time
	err error
}

// RefreshGroups reads groups live, each with every version that it has. It reads them
// side by side. Its error joins the errors of all reads that failed.
func (r *Reloader) RefreshGroups(ctx context.Context, groups []string) error {
	groups = slices.Compact(slices.Sorted(slices.Values(groups)))
	lists, versions := make([][]snapshot.Read, len(groups)), make([][]snapshot.Read, len(groups))
	for i, group := range groups {
		lists[i] = []snapshot.Read{snapshot.ReadList(group)}
	}
	x := r.newReading(never)
	x.abandon = true
	defer x.close()
	all := func(int, snapshot.Read, snapshot.Outcome) bool { return true }
	if err := x.run(ctx, lists, all); err != nil {
		return err
	}
	for i, group := range groups {
		reads := r.Snapshot().LiveReads(group)
		versions[i] = reads[:len(reads)-1]
	}
	if err := x.run(ctx, versions, all); err != nil {
		return err
	}
	for len(x.open) > 0 {
		if err := x.awaitOne(ctx); err != nil {
			return err
		}
	}
	var errs []error
	for i := range groups {
		for _, read := range slices.Concat(lists[i], versions[i]) {
			errs = append(errs, x.done[read].Err)
		}
	}
	return errors.Join(errs...)
}

// KeepResourceLists makes reads keep what the server sends of each version, for a discovery cache. What was read before
// does not have that, so it counts as reset. Refreshes read every version from now on.
func (r *Reloader) KeepResourceLists() {
	if before := r.client.KeepResourceLists(); before {
		return
	}
	r.KeepAll()
	r.Reset()
}

// KeepAll makes refreshes read every version of a server without the aggregated document,
// until release is called. When nobody needs all any more, a refresh soon reads only what is in use.
func (r *Reloader) KeepAll() (release func()) {
	r.subscribers.Add(1)
	return func() { r.subscribers.Add(-1) }
}

// idleAfter is how long a refresh of a server without the aggregated document reads a group that no lookup is
// answered from. A lookup that names no group reads all of them, once; they need not be read again and again for it.
const idleAfter = 3 * time.Minute

// uses is when lookups were last answered from each group, as refreshes have found.
type uses struct {
	mu    sync.Mutex           // held for a moment only
	last  map[string]time.Time // of a group that is new: when it was first seen
	ofAll time.Time            // when a lookup was last made that several groups may answer
}

// idle returns the groups that nobody has used for idleAfter.
func (u *uses) idle(s *snapshot.Snapshot) map[string]bool {
	if s.Aggregated() {
		return nil // a refresh reads none for its age
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if s.TakeUse() {
		u.ofAll = now
	}
	last, idle := map[string]time.Time{}, map[string]bool{}
	for _, g := range s.Groups() {
		at, known := u.last[g.Name()]
		if g.TakeUse() || !known {
			at = now
		}
		last[g.Name()] = at
		idle[g.Name()] = now.Sub(at) >= idleAfter && now.Sub(u.ofAll) >= idleAfter
	}
	u.last = last
	return idle
}

// age is the one clock of freshness: when the last refresh has succeeded. It decides when
// the mapper is due to confirm what it knows: stale-while-revalidate, as in RFC 5861. Its
// timer refers only to the flag that it sets, so it keeps no mapper alive. It runs from the
// first read on; after it has fired, from the end of the next refresh on.
type age struct {
	most       time.Duration // 0 or less: never
	due, stale *atomic.Bool  // a confirmation has to begin; the last one is too old
	timer      *time.Timer
}

func newAge(most time.Duration) *age {
	due, stale := new(atomic.Bool), new(atomic.Bool)
	timer := time.AfterFunc(math.MaxInt64, func() { due.Store(true); stale.Store(true) })
	timer.Stop()
	return &age{most: most, due: due, stale: stale, timer: timer}
}

// next makes the next confirmation due after so many times MaxAge: once after a refresh, or
// the first read, and twice after a refresh that has failed. That pause does not grow
// further, because what is known gets as old as the pause.
func (a *age) next(times time.Duration) {
	if a.most > 0 {
		a.due.Store(false)
		a.stale.Store(times > 1)
		a.timer.Reset(times * a.most)
	}
}

// Due reports whether a confirmation is due: MaxAge has passed since the last one. It
// costs one atomic load.
func (r *Reloader) Due() bool { return r.age.due.Load() }

// Stale reports whether the last confirmation was more than MaxAge ago, whatever is under way.
func (r *Reloader) Stale() bool { return r.age.stale.Load() }

// RefreshIfDue starts a refresh in the background if one is due, and returns at once. The
// refresh ends by the timeouts of its requests.
func (r *Reloader) RefreshIfDue() {
	if !r.age.due.CompareAndSwap(true, false) {
		return
	}
	go func() {
		if r.Refresh(context.Background()) != nil {
			r.age.next(2)
		}
	}()
}
