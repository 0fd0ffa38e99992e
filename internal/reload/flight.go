// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// flight is one read of the server, shared by all callers that joined before it started.
// Its results are written once, before done is closed.
type flight struct {
	read   snapshot.Read
	ctx    context.Context // of its requests; it ends only if the last waiter abandons the flight
	cancel context.CancelFunc
	done   chan struct{}

	outcome   snapshot.Outcome
	from      *snapshot.Snapshot // the current snapshot when its last request began
	published *snapshot.Snapshot // the current snapshot right after the flight
	seen      *snapshot.Snapshot // published, with what the flight has found even if that was overtaken
	found     finding            // what a live read has found; nil if it failed

	waiters int // guarded by flights.mu
}

// finding adds to s what a live read that began at now has found.
type finding func(s *snapshot.Snapshot, now snapshot.Tick) *snapshot.Snapshot

// lane names flights that run one after the other: all of one group, or all of the
// document.
type lane struct {
	document bool
	group    string
}

func laneOf(r snapshot.Read) lane {
	return lane{document: r.Part.Document(), group: r.Group}
}

const (
	// mostQuick is how many groups are read at a time.
	mostQuick = 8
	// mostSlow is how many more may be read beside them that may hang: groups that did
	// not answer the last time, and groups that have not answered for slowAfter.
	mostSlow  = 32
	slowAfter = time.Second
	// mostRemembered bounds the groups that are remembered as slow.
	mostRemembered = 1024
)

// flights are the reads that callers wait for. Flights in one lane run one after the
// other, in the order in which they were requested. Lanes run side by side. The lane of
// the document counts against no bound.
type flights struct {
	perform func(*flight) // makes the read and fills in the flight's results

	mu      sync.Mutex    // held for short work in memory only
	waiting []*flight     // not started; no two make the same read
	flying  []lane        // few; a map would never shrink
	slow    map[lane]bool // lanes whose last flight got no answer; nil if there never was one
	inQuick int           // flights that count against mostQuick
	inSlow  int           // flights that count against mostSlow
}

func newFlights(perform func(*flight)) *flights {
	return &flights{perform: perform}
}

// do waits for a read that begins after the call of do. If ctx ends first, do returns
// its cause, and the flight goes on without this waiter.
func (fs *flights) do(ctx context.Context, r snapshot.Read) (*flight, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx) // otherwise a flight might start for nobody
	}
	f := fs.join(r)
	select {
	case <-f.done:
		return f, nil
	case <-ctx.Done():
		fs.leave(f)
		return nil, context.Cause(ctx)
	}
}

// doWhile is do, but it abandons the flight when ctx ends: the flight goes on only if
// another caller waits for it. Otherwise the flight has ended when doWhile returns.
func (fs *flights) doWhile(ctx context.Context, r snapshot.Read) (*flight, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	f := fs.join(r)
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

// join returns the flight that waits to read r, or a new one.
func (fs *flights) join(r snapshot.Read) *flight {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	i := slices.IndexFunc(fs.waiting, func(f *flight) bool { return f.read == r })
	if i < 0 {
		i = len(fs.waiting)
		ctx, cancel := context.WithCancel(context.Background())
		fs.waiting = append(fs.waiting, &flight{read: r, ctx: ctx, cancel: cancel, done: make(chan struct{})})
	}
	f := fs.waiting[i]
	f.waiters++
	fs.start()
	return f
}

// leave gives up waiting for f. A flight that nobody waits for does not start. alone
// reports whether f has started and nobody waits for it any more.
func (fs *flights) leave(f *flight) (alone bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.waiters--
	if f.waiters > 0 {
		return false
	}
	if i := slices.Index(fs.waiting, f); i >= 0 {
		fs.waiting = slices.Delete(fs.waiting, i, i+1)
		f.cancel()
		return false
	}
	return true
}

// start starts every flight that may start now. fs.mu is held.
func (fs *flights) start() {
	fs.waiting = slices.DeleteFunc(fs.waiting, func(f *flight) bool {
		l := laneOf(f.read)
		if slices.Contains(fs.flying, l) {
			return false
		}
		room := &fs.inQuick
		switch {
		case l.document:
			room = new(int)
		case fs.slow[l] && fs.inSlow < mostSlow:
			room = &fs.inSlow
		case fs.slow[l] || fs.inQuick >= mostQuick:
			return false
		}
		*room++
		fs.flying = append(fs.flying, l)
		go fs.fly(f, l, room)
		return true
	})
}

// fly performs f, which counts against room, and lets others start. It ends by
// the timeout of its requests at the latest.
func (fs *flights) fly(f *flight, l lane, room *int) {
	var patience *time.Timer
	fs.mu.Lock() // the function below waits for the lock, so patience is set before it runs
	patience = time.AfterFunc(slowAfter, func() {
		fs.mu.Lock()
		defer fs.mu.Unlock()
		switch {
		case room != &fs.inQuick: // the flight has ended, or holds no quick place
		case fs.inSlow < mostSlow:
			*room--
			room = &fs.inSlow
			*room++
			fs.start()
		default:
			patience.Reset(slowAfter)
		}
	})
	fs.mu.Unlock()
	fs.perform(f)
	patience.Stop()
	f.cancel()

	fs.mu.Lock()
	defer fs.mu.Unlock()
	*room--
	room = nil
	fs.flying = slices.DeleteFunc(fs.flying, func(other lane) bool { return other == l })
	fs.noteSlow(l, discovery.Unanswered(f.outcome.Err))
	close(f.done)
	fs.start()
}

// noteSlow remembers whether the last flight in a lane got no answer. fs.mu is held.
func (fs *flights) noteSlow(l lane, slow bool) {
	switch {
	case !slow:
		delete(fs.slow, l)
	case fs.slow == nil:
		fs.slow = map[lane]bool{l: true}
	case len(fs.slow) < mostRemembered:
		fs.slow[l] = true
	}
}

// hanging returns the lanes whose last flight got no answer.
func (fs *flights) hanging() map[lane]bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return maps.Clone(fs.slow)
}
