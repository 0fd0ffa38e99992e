// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"sync"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// flight is one read of the server, shared by all callers that joined before it started.
type flight struct {
	read   snapshot.Read
	ctx    context.Context // of its requests; it ends only if the last waiter abandons the flight
	cancel context.CancelFunc
	done   chan struct{}

	// Written by perform, before done is closed.
	outcome snapshot.Outcome
	from    *snapshot.Snapshot // the snapshot when its last request began

	asked   bool          // guarded by flights.mu: whether more needs it than a refresh of everything
	began   snapshot.Tick // guarded by flights.mu: when it started
	waiters int           // guarded by flights.mu
}

// flights are the reads that callers wait for. Of one read one flight runs at a time, and the
// next one waits for it. A caller joins a flight that began after the tick that it names, or
// the next one. So no caller gets a result that is too old for it, and any number of callers
// at once make two reads. Nothing else orders flights: the snapshot merges what they find by
// their ticks.
type flights struct {
	perform func(*flight)        // makes the read and fills in the flight's results
	tick    func() snapshot.Tick // takes the next tick

	mu      sync.Mutex // held for short work in memory only
	running map[snapshot.Read]*flight
	waiting map[snapshot.Read]*flight // each for the one that runs
}

func newFlights(perform func(*flight), tick func() snapshot.Tick) *flights {
	return &flights{perform: perform, tick: tick, running: map[snapshot.Read]*flight{}, waiting: map[snapshot.Read]*flight{}}
}

// do waits for a read that began after since, or begins after the call of do. If ctx ends
// first, do returns its cause, and the flight goes on without this waiter.
func (fs *flights) do(ctx context.Context, r snapshot.Read, since snapshot.Tick) (*flight, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx) // otherwise a flight might start for nobody
	}
	f := fs.join(r, since, true)
	select {
	case <-f.done:
		return f, nil
	case <-ctx.Done():
		fs.leave(f)
		return nil, context.Cause(ctx)
	}
}

// never is greater than every tick: for a caller that joins no flight that has begun.
const never = ^snapshot.Tick(0)

// doWhile is do for a read that begins after the call, but it abandons the flight when ctx ends: the flight goes on only if
// another caller waits for it. Otherwise the flight has ended when doWhile returns.
func (fs *flights) doWhile(ctx context.Context, r snapshot.Read, asked bool) (*flight, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	f := fs.join(r, never, asked)
	select {
	case <-f.done:
		return f, nil
	case <-ctx.Done():
		if fs.leave(f) {
			f.cancel()
			<-f.done
		}
		return nil, context.Cause(ctx)
	}
}

// join returns the flight that makes r if it began after since, or else the one that waits
// to make r, or a new one.
func (fs *flights) join(r snapshot.Read, since snapshot.Tick, asked bool) (f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	defer func() { f.asked = f.asked || asked }()
	if f := fs.running[r]; f != nil && f.began > since {
		f.waiters++
		return f
	}
	if f = fs.waiting[r]; f == nil {
		ctx, cancel := context.WithCancel(context.Background())
		f = &flight{read: r, ctx: ctx, cancel: cancel, done: make(chan struct{})}
		fs.waiting[r] = f
	}
	f.waiters++
	fs.start(r)
	return f
}

// start starts the flight that waits to make r, unless one runs. fs.mu is held.
func (fs *flights) start(r snapshot.Read) {
	f := fs.waiting[r]
	if f == nil || fs.running[r] != nil {
		return
	}
	delete(fs.waiting, r)
	fs.running[r], f.began = f, fs.tick()
	go func() {
		fs.perform(f)
		f.cancel()
		fs.mu.Lock()
		defer fs.mu.Unlock()
		delete(fs.running, r)
		close(f.done)
		fs.start(r)
	}()
}

// needed reports whether more than a refresh of everything waits for f.
func (fs *flights) needed(f *flight) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return f.asked
}

// leave gives up waiting for f. A flight that nobody waits for does not start. alone
// reports whether f has started and nobody waits for it any more.
func (fs *flights) leave(f *flight) (alone bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f.waiters--; f.waiters > 0 {
		return false
	}
	if fs.waiting[f.read] == f {
		delete(fs.waiting, f.read)
		f.cancel()
		return false
	}
	return true
}
