// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kind says how much of the server a flight reads.
type kind int

const (
	everything kind = iota // all groups, and all their versions
	bulk                   // all groups, and what the bulk document says of their versions
	fill                   // those versions of a group that a bulk read has left open
	group                  // one group's list of versions, and all of them
	listed                 // the versions of one group as they were listed last
	list                   // one group's list of versions, and those that are new
	version                // one version
	refresh                // all groups, and those versions that have been read before
)

// scope is what a flight reads. Lookups that need the same scope share a flight.
type scope struct {
	kind           kind
	group, version string
	prefix         bool // of a fill: groups that only begin with group, too
}

// failures are the group-versions that a flight could not read. It is not changed
// once the flight is done.
type failures map[schema.GroupVersion]error

// flight is one read of the server. Its results are written once, before done is closed.
type flight struct {
	ctx      context.Context // of its requests: it ends with none of those who wait, but for a refresh
	done     chan struct{}
	reported chan struct{} // closed after done, when report has been called

	err    error    // nothing could be read
	failed failures // what could not be read while the rest could
	report *Report  // nil if nothing was read

	waiters int // guarded by flights.mu
}

// flights are the reads that have been asked for and have not begun.
type flights struct {
	read   func(scope, *flight) // fills in the results; runs once at a time
	report func(Report)         // may be nil
	slot   chan struct{}        // holds one token while a flight runs
	last   <-chan struct{}      // reported of the flight that ran last; guarded by slot

	mu      sync.Mutex // held for map operations only
	waiting map[scope]*flight
}

func newFlights(read func(scope, *flight), report func(Report)) *flights {
	none := make(chan struct{})
	close(none)
	return &flights{read: read, report: report, slot: make(chan struct{}, 1), last: none, waiting: map[scope]*flight{}}
}

// do waits for a read of s that begins after do was called. When ctx ends first,
// its error is returned and the flight goes on without this waiter.
func (fs *flights) do(ctx context.Context, s scope) (failures, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx) // or a flight might take off for nobody
	}
	f := fs.join(context.Background(), s)
	select {
	case <-f.done:
		return f.failed, f.err
	case <-ctx.Done():
		fs.leave(f)
		return nil, context.Cause(ctx)
	}
}

// join returns the flight that is waiting to read s; it starts one, under ctx, if there is none.
func (fs *flights) join(ctx context.Context, s scope) *flight {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.waiting[s]
	if f == nil {
		f = &flight{ctx: ctx, done: make(chan struct{}), reported: make(chan struct{})}
		fs.waiting[s] = f
		go fs.run(s, f)
	}
	f.waiters++
	return f
}

func (fs *flights) leave(f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.waiters--
}

// run waits for its turn, closes the flight to those who come later, and reads.
// It ends by the timeouts of the requests before it and of its own.
//
// Reports are made one after the other, in the order of the flights: what they
// say of the server would be wrong in any other. They are made when nobody waits
// for the flight any more and the next one may start, so that a report may take
// its time and may use the mapper.
func (fs *flights) run(s scope, f *flight) {
	defer close(f.reported)
	select {
	case fs.slot <- struct{}{}:
	case <-f.ctx.Done():
		fs.start(s)
		f.err = context.Cause(f.ctx)
		close(f.done)
		return
	}
	if fs.start(s) > 0 {
		fs.read(s, f)
	}
	before := fs.last
	fs.last = f.reported
	<-fs.slot
	close(f.done)
	<-before
	if f.report != nil && fs.report != nil {
		fs.report(*f.report)
	}
}

// start takes the flight that is waiting to read s off the list, and says how many wait for it.
func (fs *flights) start(s scope) int {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.waiting[s]
	delete(fs.waiting, s)
	return f.waiters
}
