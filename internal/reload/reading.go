// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// A reading makes the reads of one caller, be that a lookup or a refresh. It waits for each as rule
// R7 in DESIGN.md has it. Close it.
type reading struct {
	flights   *flights
	since     snapshot.Tick // flights that began later will do
	patience  time.Duration // how long it waits for one read
	hasAnswer bool          // the caller has an old answer, and can do without what is unanswered
	until     time.Time     // when a caller with one has waited long enough; zero: never
	abandon   bool          // the reads are the caller's own: its end cancels them
	// notForHanging is whether the caller waits for no version that is known to give no answer, however long ago.
	notForHanging bool
	ended         func(*flight) // called when one of the reads has ended, one at a time; may be nil

	mu   sync.Mutex // guards what follows: groups are read side by side
	done map[snapshot.Read]snapshot.Outcome
	open []*flight // reads that were unanswered, and may have ended since
}

func (r *Reloader) newReading(since snapshot.Tick) reading {
	return reading{flights: &r.flights, since: since, patience: patience, done: map[snapshot.Read]snapshot.Outcome{}}
}

// mostWait is how long a lookup that has an old answer waits in all (R7).
const mostWait = 3 * patience

// mostParallel is how many groups a caller reads at a time.
const mostParallel = 8

// run makes reads: those of a list one after the other, until more returns false of one that has
// ended or was unanswered, and those of several lists side by side. It returns an error only if ctx ended.
func (x *reading) run(ctx context.Context, lists [][]snapshot.Read, more func(list int, r snapshot.Read, o snapshot.Outcome) bool) error {
	next := make(chan int)
	var all sync.WaitGroup
	for range min(mostParallel, len(lists)) {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := range next {
				for _, read := range lists[i] {
					if o, err := x.read(ctx, read); err != nil || !more(i, read, o) {
						break
					}
				}
			}
		}()
	}
	for i := range lists {
		next <- i
	}
	close(next)
	all.Wait()
	return discovery.Cause(ctx)
}

// read makes a read, and goes on without its answer when its patience is at an end. It returns an
// error only if ctx ended.
func (x *reading) read(ctx context.Context, r snapshot.Read) (snapshot.Outcome, error) {
	if ctx.Err() != nil {
		return snapshot.Outcome{}, discovery.Cause(ctx) // otherwise a flight might start for nobody
	}
	most := x.patience
	switch {
	case !x.hasAnswer:
	case x.flights.isUnanswered(r), x.notForHanging && x.flights.hung(r):
		most = 0
	case !x.until.IsZero():
		if most = min(most, time.Until(x.until)); most <= 0 {
			o := snapshot.Outcome{Err: discovery.NotAwaited(r, mostWait)}
			x.mu.Lock()
			defer x.mu.Unlock()
			x.done[r] = o
			return o, nil
		}
	}
	return x.wait(ctx, x.flights.join(r, x.since), most)
}

// wait waits for f, for as long as most, and notes how it has ended, or that it was unanswered. A read that
// the caller can do without goes on for others. It returns an error only if ctx ended.
func (x *reading) wait(ctx context.Context, f *flight, most time.Duration) (o snapshot.Outcome, err error) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	unanswered := false
	select {
	case <-f.done:
		o = f.outcome
	case <-timer.C:
		o.Err, unanswered = discovery.NotAwaited(f.read, most), true
	case <-ctx.Done():
		x.flights.leave(f, x.abandon && errors.Is(ctx.Err(), context.Canceled))
		return o, discovery.Cause(ctx)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.done[f.read] = o
	switch {
	case unanswered && x.hasAnswer:
		x.flights.leave(f, false)
	case unanswered:
		x.open = append(x.open, f)
	case x.ended != nil:
		x.ended(f)
	}
	return o, nil
}

// awaitOne waits for one of the reads that were unanswered, until that ends.
func (x *reading) awaitOne(ctx context.Context) error {
	f := x.open[0]
	x.open = x.open[1:]
	_, err := x.wait(ctx, f, forever)
	return err
}

// close leaves what was unanswered.
func (x *reading) close() {
	for _, f := range x.open {
		x.flights.leave(f, false)
	}
}

// ReadLive reads a version live, by a read that begins later than the call. It returns the snapshot
// after that.
func (r *Reloader) ReadLive(ctx context.Context, gv schema.GroupVersion) (*snapshot.Snapshot, error) {
	err := r.readOne(ctx, snapshot.ReadVersion(gv.Group, gv.Version), false)
	return r.Snapshot(), err
}

// ReadDocument reads the document, and nothing else. It returns when that is done, or when ctx
// ends.
func (r *Reloader) ReadDocument(ctx context.Context) error {
	return r.readOne(ctx, snapshot.Read{}, true)
}

// readOne makes one read that begins later than the call, and waits for its end.
func (r *Reloader) readOne(ctx context.Context, read snapshot.Read, abandon bool) error {
	x := r.newReading(never)
	x.patience, x.abandon = forever, abandon
	o, err := x.read(ctx, read)
	if err != nil {
		return err
	}
	return o.Err
}
