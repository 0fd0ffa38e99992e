// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/engine"
	"github.com/freshmapper/freshmapper/internal/follow"
	"github.com/freshmapper/freshmapper/internal/report"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// source is what clients and caches ask a mapper that switch to the new REST path of a kind.
type source struct {
	engine *engine.Engine

	mu sync.Mutex // held for short work in memory only; guards the rest, and what is in confirmations

	confirmations map[confirmationKey]*confirmations
	polled        map[schema.GroupVersion]time.Time // when a version, or under the empty one the document, was last polled
}

var _ follow.Source = (*source)(nil)

// Known returns the mapping of a kind as the mapper knows it now.
func (s *source) Known(gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	return mappingIn(s.engine.Reloader.Snapshot(), gvk)
}

// KindsAt returns the kinds that are known to have a resource.
func (s *source) KindsAt(resource schema.GroupVersionResource) []string {
	return s.engine.Reloader.Snapshot().KindsAt(resource)
}

// Changed returns a channel that is closed when the mapper next learns anything.
func (s *source) Changed() <-chan struct{} { return s.engine.Reloader.Changed() }

// Generation grows when the served API changes, and with each reset: neither of the numbers ever falls.
func (s *source) Generation() uint64 {
	now := s.engine.Reloader.Snapshot()
	return now.Generation() + uint64(now.LastReset())
}

const (
	// confirmTimeout is how long a caller waits that cannot wait: it has an answer of the server already.
	confirmTimeout = 2 * time.Second
	// A version may be read confirmBurst times in a row, and then once in each confirmInterval: 19 times in a minute.
	confirmBurst    = 4
	confirmInterval = 4 * time.Second
	// maxTracked bounds of how many versions the mapper keeps when they were read. When there are more, it forgets all.
	maxTracked = 4096
)

// confirmationKey says which callers share live reads of a version: those that can wait do so among themselves.
type confirmationKey struct {
	schema.GroupVersion
	canWait bool
}

// confirmations are the live reads for one key. At most one is running, and one is queued behind it.
type confirmations struct {
	limiter flowcontrol.PassiveRateLimiter
	queued  *confirmation // callers join it; nil: nobody waits for another read
	running *confirmation // it began before callers that come now, so it tells them nothing; nil: none
}

// confirmation is one live read. It is queued until none is running and the rate limit allows it.
type confirmation struct {
	allowed bool      // the rate limit has allowed it
	began   time.Time // zero while it is queued
	done    chan struct{}

	// Written before done is closed.
	after *snapshot.Snapshot
	err   error
}

// Confirm reads the version of a kind live, by a read that begins after the call, and returns the mapping that it has
// found. Callers share reads. A caller that cannot wait does so for confirmTimeout, and not at all if the rate limit
// allows no read now. One that can wait does so until ctx ends.
func (s *source) Confirm(ctx context.Context, gvk schema.GroupVersionKind, canWait bool) (*meta.RESTMapping, error) {
	c, err := s.join(confirmationKey{gvk.GroupVersion(), canWait})
	if err != nil {
		return nil, err
	}
	var timeout <-chan time.Time // nil, which blocks, for a caller that can wait
	if !canWait {
		timer := time.NewTimer(confirmTimeout)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-c.done:
	case <-timeout:
		return nil, errSlow(gvk.GroupVersion())
	case <-ctx.Done():
		return nil, discovery.Cause(ctx)
	}
	if c.err != nil {
		return nil, c.err
	}
	return mappingIn(c.after, gvk)
}

func errSlow(gv schema.GroupVersion) error {
	return fmt.Errorf("%s is not confirmed: a read of it has had no answer for %v", gv, confirmTimeout)
}

func errTooOften(gv schema.GroupVersion) error {
	return fmt.Errorf("%s is not confirmed: it was read %d times in a row, and once in %v since", gv, confirmBurst, confirmInterval)
}

// join returns the read that is queued, or queues one. It returns an error if the caller cannot wait for that.
func (s *source) join(key confirmationKey) (*confirmation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.confirmationsOf(key)
	if !key.canWait && of.running != nil && time.Since(of.running.began) >= confirmTimeout {
		return nil, errSlow(key.GroupVersion)
	}
	if of.queued != nil {
		return of.queued, nil
	}
	allowed := of.limiter.TryAccept()
	if !key.canWait && !allowed {
		return nil, errTooOften(key.GroupVersion)
	}
	queued := &confirmation{allowed: allowed, done: make(chan struct{})}
	of.queued = queued
	s.startQueued(key.GroupVersion, of)
	return queued, nil
}

// confirmationsOf returns the reads for a key. The caller holds mu.
func (s *source) confirmationsOf(key confirmationKey) *confirmations {
	of := s.confirmations[key]
	if of != nil {
		return of
	}
	if s.confirmations == nil || len(s.confirmations) >= maxTracked {
		s.confirmations = map[confirmationKey]*confirmations{}
	}
	perSecond := 1 / float32(confirmInterval.Seconds())
	of = &confirmations{limiter: flowcontrol.NewTokenBucketPassiveRateLimiter(perSecond, confirmBurst)}
	s.confirmations[key] = of
	return of
}

// startQueued starts the queued read, if there is one and none is running. If the rate limit does not allow it yet, it
// tries again later. The caller holds mu.
func (s *source) startQueued(gv schema.GroupVersion, of *confirmations) {
	next := of.queued
	if next == nil || of.running != nil {
		return
	}
	if !next.allowed {
		next.allowed = of.limiter.TryAccept()
	}
	if !next.allowed {
		time.AfterFunc(confirmInterval/4, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.startQueued(gv, of)
		})
		return
	}
	of.queued = nil
	of.running = next
	next.began = time.Now()
	go func() {
		next.after, next.err = s.engine.Reloader.ReadLive(context.Background(), gv)
		close(next.done)
		s.mu.Lock()
		defer s.mu.Unlock()
		of.running = nil
		s.startQueued(gv, of)
	}()
}

// pollAge is how old the answer to a poll may be. Each caller polls every 30 seconds, at moments of its own.
const pollAge = 20 * time.Second

// Poll asks whether kinds are served now. The aggregated document has all of them, and costs two requests without a
// body if nothing has changed. A legacy document has only groups and versions, so each version is asked.
func (s *source) Poll(ctx context.Context, kinds []schema.GroupVersionKind) error {
	var versions []schema.GroupVersion
	for _, gvk := range kinds {
		if !slices.Contains(versions, gvk.GroupVersion()) {
			versions = append(versions, gvk.GroupVersion())
		}
	}
	if len(versions) > 1 && s.engine.Reloader.Snapshot().Aggregated() {
		if !s.pollIsDue(schema.GroupVersion{}) {
			return nil
		}
		return s.engine.Reloader.Refresh(ctx)
	}
	var errs []error
	for _, version := range versions {
		if !s.pollIsDue(version) {
			continue
		}
		_, err := s.engine.Reloader.ReadLive(ctx, version)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// pollIsDue reports whether nobody has polled a version, or under the empty one the document, for pollAge. If so, the
// caller does.
func (s *source) pollIsDue(version schema.GroupVersion) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.polled[version]) < pollAge {
		return false
	}
	if s.polled == nil || len(s.polled) >= maxTracked {
		s.polled = map[schema.GroupVersion]time.Time{}
	}
	s.polled[version] = time.Now()
	return true
}

// Watching reports whether watches tell the mapper of changes of the served API.
func (s *source) Watching() bool { return s.engine.Watching() }

// Hint says in which other versions or groups the kind of a NoMatch error is served, or "".
func (s *source) Hint(err error) string { return report.Hint(s.engine.Reloader.Snapshot(), err) }

var errNotRead = errors.New("it was never read")

// mappingIn returns the mapping of a kind in a snapshot. A version that was never read, or could not
// be read the last time, proves no absence.
func mappingIn(s *snapshot.Snapshot, gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	mapping, _, err := s.RESTMapping(gvk.GroupKind(), []string{gvk.Version})
	if err == nil {
		return mapping, nil
	}
	v := s.Group(gvk.Group).Version(gvk.Version)
	if v == nil || v.Gone {
		return nil, err
	}
	if v.Err != nil {
		return nil, &ErrResourceDiscoveryFailed{gvk.GroupVersion(): v.Err}
	}
	if v.Table == nil {
		return nil, &ErrResourceDiscoveryFailed{gvk.GroupVersion(): errNotRead}
	}
	return nil, err
}
