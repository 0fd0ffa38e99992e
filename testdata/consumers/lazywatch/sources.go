// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/version"
)

// sources runs one source for each kind, each by itself: if one fails, the board shows
// that, and the others are not affected.
type sources struct {
	apis        apis
	kinds       filter
	board       *board
	maxFailures int           // in a row; then a kind is left alone
	rest        time.Duration // for so long
	// run mirrors the objects of a kind. It returns when ctx ends, or on an error.
	run func(ctx context.Context, gvk schema.GroupVersionKind) error
}

// kind is a kind that is mirrored if it can be.
type kind struct {
	versions map[string]resource // served, and not excluded
	chosen   resource            // the one that is mirrored
	stop     func()              // ends what was begun for chosen
	ended    chan struct{}       // closed when that has ended
}

// start blocks until ctx and all sources have ended.
func (s *sources) start(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	for _, pattern := range s.kinds.include {
		s.board.set(pattern, notServed, "") // until a kind is
	}
	kinds := map[schema.GroupKind]*kind{}
	s.apis.Watch(ctx, func(changes []change) {
		for gk, k := range s.note(kinds, changes) {
			r := k.best()
			if r == k.chosen {
				continue
			}
			k.stop()
			before, now := k.ended, make(chan struct{})
			ctx, stop := context.WithCancel(ctx)
			k.chosen, k.stop, k.ended = r, stop, now
			s.board.set(gk.String(), starting, "")
			group.Go(func() {
				defer close(now)
				<-before
				s.supervise(ctx, gk.String(), r)
			})
		}
		s.board.setListed()
	})
	return nil
}

// note takes over changes of selected kinds, and returns these kinds.
func (s *sources) note(kinds map[schema.GroupKind]*kind, changes []change) map[schema.GroupKind]*kind {
	changed := map[schema.GroupKind]*kind{}
	for _, c := range changes {
		if !s.kinds.has(c.gvk) {
			continue
		}
		gk := c.gvk.GroupKind()
		k := kinds[gk]
		if k == nil {
			k = &kind{versions: map[string]resource{}, stop: func() {}, ended: make(chan struct{})}
			close(k.ended) // nothing has begun
			kinds[gk] = k
			s.board.found(s.kinds.include.of(c.gvk))
		}
		delete(k.versions, c.gvk.Version)
		if c.served {
			k.versions[c.gvk.Version] = c.resource
		}
		changed[gk] = k
	}
	return changed
}

// best returns the highest version that is served: v2 before v1, and v1 before v1beta1.
func (k *kind) best() (best resource) {
	for _, r := range k.versions {
		if best.name == "" || version.CompareKubeAwareVersionStrings(r.gvk.Version, best.gvk.Version) > 0 {
			best = r
		}
	}
	return best
}

// supervise keeps a source until ctx ends. A kind that is not served or cannot be mirrored
// costs no request.
func (s *sources) supervise(ctx context.Context, name string, r resource) {
	switch {
	case r == resource{}:
		s.board.set(name, notServed, "")
		return
	case r.obstacle != "":
		s.board.set(name, notMirrorable, r.obstacle)
		return
	}
	err := s.apis.RunWhileServed(ctx, func(run context.Context) error {
		s.retry(run, name, r)
		if ctx.Err() == nil {
			s.board.set(name, notServed, "") // start has not been told yet
		}
		return nil
	}, r.gvk)
	if err != nil {
		s.board.set(name, failed, err.Error())
	}
}

// retry runs a source until ctx ends, which it does when the kind goes. It is a breaker: a
// source that fails again and again is left alone, and tried once after each rest.
func (s *sources) retry(ctx context.Context, name string, r resource) {
	failures, backoff := 0, pauses()
	for ctx.Err() == nil {
		s.board.set(name, starting, "")
		err := s.run(ctx, r.gvk)
		if err == nil || ctx.Err() != nil {
			continue
		}
		if was := s.board.set(name, failed, err.Error()); was == running || was == unused {
			failures, backoff = 0, pauses() // it has worked
		}
		if failures++; failures < s.maxFailures {
			pause(ctx, backoff.Step())
			continue
		}
		s.board.set(name, tripped, fmt.Sprintf("failed %d times in a row, tried again in %s: %v", failures, s.rest, err))
		pause(ctx, s.rest)
	}
}

func pauses() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 30, Cap: time.Minute}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
