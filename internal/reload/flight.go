// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"slices"
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

// subject is what flights take turns by: the server as a whole, or a group.
func (s scope) subject() scope {
	switch s.kind {
	case everything, bulk, refresh:
		return scope{kind: bulk}
	}
	return scope{kind: group, group: s.group}
}

// failures are the group-versions that a flight could not read. It is not changed
// once the flight is done.
type failures map[schema.GroupVersion]error

// flight is one read of the server. Its results are written once, before done is closed.
type flight struct {
	scope    scope
	ctx      context.Context // of its requests: it ends with none of those who wait, but for a refresh
	done     chan struct{}
	reported chan struct{} // closed after done, when report has been called

	err    error    // nothing could be read
	failed failures // versions that could not be read
	silent error    // why, if versions were asked for and none could be read
	report *Report  // nil if the flight was given up

	waiters int // guarded by flights.mu
}

// flights are the reads that have been asked for and have not begun. One runs at
// a time.
type flights struct {
	read   func(*flight) // fills in the results
	report func(Report)  // may be nil

	mu      sync.Mutex // held for short work in memory only
	waiting []*flight  // in the order in which they were asked for; no two of the same scope
	flying  bool       // a goroutine is in fly

	// These belong to the goroutine in fly.
	last     scope           // the subject of the flight before
	reported <-chan struct{} // of the flight before
}

func newFlights(read func(*flight), report func(Report)) *flights {
	none := make(chan struct{})
	close(none)
	return &flights{read: read, report: report, reported: none}
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
	i := slices.IndexFunc(fs.waiting, func(f *flight) bool { return f.scope == s })
	if i < 0 {
		i = len(fs.waiting)
		fs.waiting = append(fs.waiting, &flight{scope: s, ctx: ctx, done: make(chan struct{}), reported: make(chan struct{})})
	}
	f := fs.waiting[i]
	f.waiters++
	if !fs.flying {
		fs.flying = true
		go fs.fly()
	}
	return f
}

// leave gives up waiting for f. A flight that nobody waits for does not take off:
// off says that f never will.
func (fs *flights) leave(f *flight) (off bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.waiters--
	i := slices.Index(fs.waiting, f)
	if f.waiters > 0 || i < 0 {
		return false
	}
	fs.waiting = slices.Delete(fs.waiting, i, i+1)
	return true
}

// fly performs what is waiting, one flight after the other. It ends by the
// timeouts of their requests.
func (fs *flights) fly() {
	for f := fs.next(); f != nil; f = fs.next() {
		fs.read(f)
		close(f.done)
		go fs.reportAfter(fs.reported, f)
		fs.reported = f.reported
	}
}

// next takes off the list, and so closes to those who come later, the first flight
// that is not about the same group as the one before, or else the first: a group
// that does not answer costs the others one flight of it, and not all.
func (fs *flights) next() *flight {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if len(fs.waiting) == 0 {
		fs.flying = false
		return nil
	}
	i := max(0, slices.IndexFunc(fs.waiting, func(f *flight) bool { return f.scope.subject() != fs.last || fs.last.kind == bulk }))
	f := fs.waiting[i]
	fs.waiting = slices.Delete(fs.waiting, i, i+1)
	fs.last = f.scope.subject()
	return f
}

// reportAfter reports what f has done. Reports are made one after the other, in
// the order of the flights: what they say of the server would be wrong in any
// other. Nobody waits for the flight any more and the next one may run, so that a
// report may take its time and may use the mapper.
func (fs *flights) reportAfter(before <-chan struct{}, f *flight) {
	defer close(f.reported)
	<-before
	if f.report != nil && fs.report != nil {
		fs.report(*f.report)
	}
}
