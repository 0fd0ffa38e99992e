// SPDX-License-Identifier: Apache-2.0

package discoverycache

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	clientgo "k8s.io/client-go/discovery"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/engine"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// cachedDiscovery answers from what a mapper knows.
type cachedDiscovery struct {
	clientgo.DiscoveryInterface // answers what is not cached
	engine                      *engine.Engine

	last        atomic.Pointer[view]    // of the last read that has succeeded; nil: there was none
	failure     atomic.Pointer[failure] // the last read, if that has failed; else nil
	invalidated atomic.Uint64           // the sequence number of the last Invalidate

	given   atomic.Pointer[view]           // what a deferred mapper has: the first since Invalidate
	retries flowcontrol.PassiveRateLimiter // of deferred mappers that would read again at once
}

// state is one of the four that the package's doc describes.
type state int

const (
	empty state = iota
	current
	stale
	failing
)

// failure is an attempt to read the server that has failed.
type failure struct {
	err   error
	began time.Time     // when the attempt began
	reset snapshot.Seq  // the last reset of the mapper then
	ended time.Time     // when the attempt had failed
	pause time.Duration // from then on, until the next attempt
}

const (
	firstPause = 3 * time.Second // as for a read that gets no answer, see R7 in DESIGN.md
	maxPause   = 30 * time.Second
)

// state returns the state of the cache. last is the view to answer with if that is current, and failed is why it fails
// if it is failing. It sends no request.
func (d *cachedDiscovery) state() (s state, last *view, failed *failure) {
	now := d.engine.Reloader.Snapshot()
	last, failed = d.last.Load(), d.failure.Load()
	if failed.holds(d.engine, now) {
		return failing, nil, failed
	}
	if last == nil || !d.known(last.snapshot) {
		return empty, nil, nil
	}
	if last.snapshot != now || d.engine.Reloader.Outdated() {
		return stale, nil, nil
	}
	return current, last, nil
}

// holds reports whether f is a reason not to read the server now: f is recent, and nothing has happened since that
// makes another attempt worthwhile. f may be nil.
func (f *failure) holds(e *engine.Engine, now *snapshot.Snapshot) bool {
	if f == nil || time.Since(f.ended) >= f.pause {
		return false
	}
	readSince := !e.Reloader.AllRead().Before(f.began)
	resetSince := now.LastReset() != f.reset
	return !readSince && !resetSince
}

// known reports whether a snapshot has something to answer with: it was read, and since Invalidate.
func (d *cachedDiscovery) known(s *snapshot.Snapshot) bool {
	return s.HasDocumentSince(snapshot.Seq(d.invalidated.Load()))
}

// use returns what the cache answers with. In an outage that is what is known, with the error beside each version: then
// outage is not nil, and the view is nil if nothing is known.
func (d *cachedDiscovery) use() (v *view, outage error) {
	state, last, failed := d.state()
	switch state {
	case current:
		d.engine.NoteUse()
		return last, nil
	case failing:
		d.engine.NoteUse()
		return d.whatIsKnown(failed)
	default:
		return d.read()
	}
}

// read makes the mapper read what is missing. Many uses at once share its requests.
func (d *cachedDiscovery) read() (v *view, outage error) {
	last := d.failure.Load()
	attempt := &failure{began: time.Now(), reset: d.engine.Reloader.Snapshot().LastReset(), pause: firstPause}
	if last != nil {
		attempt.pause = min(2*last.pause, maxPause)
	}
	timeout := d.engine.Options.RequestTimeout
	ctx, cancel := context.WithTimeoutCause(
		context.Background(),
		timeout,
		discovery.NotAwaited(snapshot.Read{}, timeout),
	)
	defer cancel()
	all := d.engine.ReadAll(ctx)
	v = newView(all.Snapshot, all.Failed)
	attempt.err = cmp.Or(all.Err, all.NotConfirmed)
	if attempt.err == nil && len(v.lists) == 0 {
		// A view without a list would look like an empty API.
		attempt.err = d.engine.Options.DiscoveryFailed(all.Failed)
	}
	if attempt.err != nil {
		attempt.ended = time.Now()
		d.failure.CompareAndSwap(last, attempt) // of uses that fail together, one makes the pause longer
		return d.whatIsKnown(attempt)
	}
	d.failure.CompareAndSwap(last, nil)
	d.last.Store(v)
	return v, nil
}

// whatIsKnown returns what is known although the server could not be read, with the error, or the error alone.
func (d *cachedDiscovery) whatIsKnown(f *failure) (*view, error) {
	now := d.engine.Reloader.Snapshot()
	if !d.known(now) {
		return nil, fmt.Errorf("the served APIs could not be read: %w", f.err)
	}
	v := newView(now, engine.FailedVersions(now))
	if len(v.lists) == 0 {
		return nil, fmt.Errorf("the served APIs could not be read: %w", f.err)
	}
	err := fmt.Errorf("the served APIs are known, but could not be confirmed: %w", f.err)
	return v.unconfirmed(err), err
}
