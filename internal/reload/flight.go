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

// flight is one read of the server. err and failed are written once, before done is closed.
type flight struct {
	done   chan struct{}
	err    error    // nothing could be read
	failed failures // what could not be read while the rest could

	waiters int // guarded by flights.mu
}

// flights are the reads that have been asked for and have not begun. The zero
// value is not usable; see newFlights.
type flights struct {
	slot chan struct{} // holds one token while a flight runs

	mu      sync.Mutex // held for map operations only
	waiting map[scope]*flight
}

func newFlights() *flights {
	return &flights{slot: make(chan struct{}, 1), waiting: map[scope]*flight{}}
}

// do waits for a read of s that begins after do was called. When ctx ends first,
// its error is returned and the flight goes on without this waiter.
func (fs *flights) do(ctx context.Context, s scope, read func(scope, *flight)) (failures, error) {
	f := fs.join(s, read)
	select {
	case <-f.done:
		return f.failed, f.err
	case <-ctx.Done():
		fs.leave(f)
		return nil, context.Cause(ctx)
	}
}

// join returns the flight that is waiting to read s; it starts one if there is none.
func (fs *flights) join(s scope, read func(scope, *flight)) *flight {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.waiting[s]
	if f == nil {
		f = &flight{done: make(chan struct{})}
		fs.waiting[s] = f
		go fs.run(s, f, read)
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
func (fs *flights) run(s scope, f *flight, read func(scope, *flight)) {
	fs.slot <- struct{}{}
	defer func() { <-fs.slot }()
	defer close(f.done)
	if fs.start(s, f) {
		read(s, f)
	}
}

// start takes f off the waiting list. It says no if everybody who waited for f has left.
func (fs *flights) start(s scope, f *flight) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	delete(fs.waiting, s)
	return f.waiters > 0
}
