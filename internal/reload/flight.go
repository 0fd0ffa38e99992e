// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// flight is one read of the server, shared by all callers that joined before it started.
type flight struct {
	read    snapshot.Read
	outcome snapshot.Outcome   // written by perform, before done is closed
	from    *snapshot.Snapshot // what was known when it started; likewise
	done    chan struct{}

	// Written when it starts.
	ctx    context.Context // of its requests; it ends only if the last waiter abandons the flight
	cancel context.CancelFunc

	// Guarded by flights.mu.
	began   snapshot.Tick // when it started; 0: it waits
	started time.Time
	waiters int
	next    *flight // starts when this one has ended; nil: nobody needs one
}

// flights are the reads that callers wait for. Of one read one flight runs at a time, and the
// next one waits for it. A caller joins a flight that began after the tick that it names, or
// the next one. So no caller gets a result that is too old for it, and any number of callers
// at once make two reads. Nothing else orders flights: the snapshot merges what they find by
// their ticks.
type flights struct {
	perform func(*flight)        // makes the read and fills in the flight's results
	tick    func() snapshot.Tick // takes the next tick

	mu      sync.Mutex                // held for short work in memory only
	running map[snapshot.Read]*flight // nil while nothing is read: most of its life a mapper only knows
}

// do waits for a read that began after since, or begins after the call of do. If ctx ends
// first, do returns its cause, and the flight goes on without this waiter. If abandon, and ctx was
// cancelled, it goes on only if another caller waits for it; otherwise it has ended when do returns.
// The end of a caller's time cancels nothing: how a read that hangs has ended is for the next.
func (fs *flights) do(ctx context.Context, r snapshot.Read, since snapshot.Tick, abandon bool) (*flight, error) {
	if ctx.Err() != nil {
		return nil, discovery.Cause(ctx) // otherwise a flight might start for nobody
	}
	f := fs.join(r, since)
	select {
	case <-f.done:
		return f, nil
	case <-ctx.Done():
		if fs.leave(f, abandon && errors.Is(ctx.Err(), context.Canceled)) {
			<-f.done
		}
		return nil, discovery.Cause(ctx)
	}
}

// never is greater than every tick: for a caller that joins no flight that has begun.
const never = ^snapshot.Tick(0)

// join returns the flight that makes r if it began after since and goes on, or else the next
// one.
func (fs *flights) join(r snapshot.Read, since snapshot.Tick) *flight {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.running[r]
	if f != nil && (f.began <= since || f.ctx.Err() != nil) {
		if f.next == nil {
			f.next = &flight{read: r, done: make(chan struct{})}
		}
		f = f.next
	}
	if f == nil {
		f = &flight{read: r, done: make(chan struct{})}
		fs.start(f)
	}
	f.waiters++
	return f
}

// start starts f. fs.mu is held, and no other flight makes the read.
func (fs *flights) start(f *flight) {
	if fs.running == nil {
		fs.running = map[snapshot.Read]*flight{}
	}
	fs.running[f.read], f.began, f.started = f, fs.tick(), time.Now()
	f.ctx, f.cancel = context.WithCancel(context.Background())
	go func() {
		fs.perform(f)
		fs.mu.Lock()
		defer fs.mu.Unlock()
		f.cancel()
		if delete(fs.running, f.read); f.next != nil {
			fs.start(f.next)
		} else if len(fs.running) == 0 {
			fs.running = nil
		}
		close(f.done)
	}()
}

// overdue reports whether one of these reads is under way, and has got no answer for silentWait.
func (fs *flights) overdue(these func(snapshot.Read) bool) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for r, f := range fs.running {
		if time.Since(f.started) >= silentWait && these(r) {
			return true
		}
	}
	return false
}

// leave gives up waiting for f. A flight that nobody waits for does not start. If abandon, one
// that has started is cancelled, and leave reports that.
func (fs *flights) leave(f *flight, abandon bool) (abandoned bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f.waiters--; f.waiters > 0 {
		return false
	}
	if f.began == 0 {
		fs.running[f.read].next = nil
		return false
	}
	if abandon {
		f.cancel()
	}
	return abandon
}
