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

// source is what clients and caches that follow a mapper ask it.
type source struct {
	engine *engine.Engine

	mu sync.Mutex // held for a moment only; guards what is in confirming, too

	confirming map[confirmers]*confirming
	polled     map[schema.GroupVersion]time.Time // when a version, or under the empty one the document, was polled last
}

var _ follow.Source = (*source)(nil)

func (s *source) Known(gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	return mappingIn(s.engine.Reloader.Snapshot(), gvk)
}

func (s *source) KindsAt(resource schema.GroupVersionResource) []string {
	return s.engine.Reloader.Snapshot().KindsAt(resource)
}

func (s *source) Changed() <-chan struct{} { return s.engine.Reloader.Changed() }

func (s *source) Generation() uint64 {
	now := s.engine.Reloader.Snapshot()
	return now.Generation() + uint64(now.LastReset()) // neither ever falls
}

const (
	confirmTimeout = 2 * time.Second // of who is not patient: the caller has an answer of the server already
	confirmPace    = 4 * time.Second // between live reads of a version, after the burst
	confirmBurst   = 4               // so at most 19 in a minute
	mostConfirming = 4096            // versions
)

// confirmers are those who share the reads of a version.
type confirmers struct {
	schema.GroupVersion
	patient bool
}

// confirming is what is known of their reads.
type confirming struct {
	allowed       flowcontrol.PassiveRateLimiter
	next, running *confirmation // callers join next, which has not begun
}

// confirmation is a live read.
type confirmation struct {
	allowed bool // it has its token
	began   time.Time
	done    chan struct{}
	now     *snapshot.Snapshot // written before done is closed
	err     error              // likewise
}

func (s *source) Confirm(ctx context.Context, gvk schema.GroupVersionKind, patient bool) (*meta.RESTMapping, error) {
	c, err := s.join(confirmers{gvk.GroupVersion(), patient})
	if err != nil {
		return nil, err
	}
	var late <-chan time.Time // nil, which blocks, for who is patient
	if !patient {
		timer := time.NewTimer(confirmTimeout)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-c.done:
	case <-late:
		return nil, errHangs(gvk.GroupVersion())
	case <-ctx.Done():
		return nil, discovery.Cause(ctx)
	}
	if c.err != nil {
		return nil, c.err
	}
	return mappingIn(c.now, gvk)
}

func errHangs(gv schema.GroupVersion) error {
	return fmt.Errorf("%s is not confirmed: a read of it has had no answer for %v", gv, confirmTimeout)
}

// join returns the next read, or an error if the caller is not patient and there is none now.
func (s *source) join(of confirmers) (*confirmation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.confirming[of]
	if c == nil {
		if s.confirming == nil || len(s.confirming) >= mostConfirming {
			s.confirming = map[confirmers]*confirming{}
		}
		c = &confirming{allowed: flowcontrol.NewTokenBucketPassiveRateLimiter(1/float32(confirmPace.Seconds()), confirmBurst)}
		s.confirming[of] = c
	}
	if hangs := c.running != nil && time.Since(c.running.began) >= confirmTimeout; hangs && !of.patient {
		return nil, errHangs(of.GroupVersion)
	}
	if c.next != nil {
		return c.next, nil
	}
	next := &confirmation{done: make(chan struct{}), allowed: c.allowed.TryAccept()}
	if !next.allowed && !of.patient {
		return nil, fmt.Errorf("%s is not confirmed: it was read %d times in a row, and once in %v since", of.GroupVersion, confirmBurst, confirmPace)
	}
	c.next = next
	s.begin(of, c)
	return next, nil
}

// begin begins the next read, if there is one and none is running. If it is not allowed yet, begin is called
// again later. The caller holds mu.
func (s *source) begin(of confirmers, c *confirming) {
	read := c.next
	if read == nil || c.running != nil {
		return
	}
	again := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.begin(of, c)
	}
	if read.allowed = read.allowed || c.allowed.TryAccept(); !read.allowed {
		time.AfterFunc(confirmPace/4, again)
		return
	}
	c.next, c.running, read.began = nil, read, time.Now()
	go func() {
		read.now, read.err = s.engine.Reloader.ReadLive(context.Background(), of.GroupVersion)
		close(read.done)
		s.mu.Lock()
		c.running = nil
		s.mu.Unlock()
		again()
	}()
}

// pollAge is how old the answer to a poll may be: who polls does so every 30 seconds, each at moments of its own.
const pollAge = 20 * time.Second

// Poll asks whether kinds are served now. The aggregated document has all of them, and costs two requests without a body if
// nothing has changed. A legacy document has only groups and versions, so each version is asked.
func (s *source) Poll(ctx context.Context, kinds []schema.GroupVersionKind) error {
	var versions []schema.GroupVersion
	for _, gvk := range kinds {
		if !slices.Contains(versions, gvk.GroupVersion()) {
			versions = append(versions, gvk.GroupVersion())
		}
	}
	if len(versions) > 1 && s.engine.Reloader.Snapshot().Aggregated() {
		if s.polledLately(schema.GroupVersion{}) {
			return nil
		}
		return s.engine.Reloader.Refresh(ctx)
	}
	var errs []error
	for _, version := range versions {
		if !s.polledLately(version) {
			_, err := s.engine.Reloader.ReadLive(ctx, version)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// polledLately reports whether a version, or under the empty one the document, was polled a moment ago. If not, it is now.
func (s *source) polledLately(version schema.GroupVersion) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.polled[version]) < pollAge {
		return true
	}
	if s.polled == nil || len(s.polled) >= mostConfirming {
		s.polled = map[schema.GroupVersion]time.Time{}
	}
	s.polled[version] = time.Now()
	return false
}

func (s *source) Watching() bool { return s.engine.Watching() }

func (s *source) Hint(err error) string { return report.Hint(s.engine.Reloader.Snapshot(), err) }

var errNotRead = errors.New("it was never read")

// mappingIn returns the mapping of a kind in a snapshot. A version that was never read, or could not
// be read the last time, proves no absence.
func mappingIn(s *snapshot.Snapshot, gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	mapping, _, err := s.RESTMapping(gvk.GroupKind(), []string{gvk.Version})
	v := s.Group(gvk.Group).Version(gvk.Version)
	switch {
	case err == nil || v == nil || v.Gone:
		return mapping, err
	case v.Err != nil:
		return nil, &ErrResourceDiscoveryFailed{gvk.GroupVersion(): v.Err}
	case v.Table == nil:
		return nil, &ErrResourceDiscoveryFailed{gvk.GroupVersion(): errNotRead}
	}
	return nil, err
}
