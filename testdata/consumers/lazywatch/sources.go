// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
)

// sources runs one source for each kind, each by itself: if one fails, the board shows
// that, and the others are not affected.
type sources struct {
	apis  apis
	kinds filter
	board *board
	// run mirrors the objects of a kind. It returns when ctx ends, or on an error.
	run func(ctx context.Context, kind schema.GroupKind) error
}

// start blocks until ctx and all sources have ended.
func (s *sources) start(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	known := kindSet{}
	begin := func(kind schema.GroupKind, as state) {
		if known[kind] || !s.kinds.has(kind) {
			return
		}
		known[kind] = true
		s.board.set(kind, as, "")
		group.Go(func() { s.supervise(ctx, kind) })
	}
	for _, kind := range s.kinds.include.sorted() {
		begin(kind, notServed) // until it is known to be
	}
	s.apis.Served(ctx, func(kinds []schema.GroupKind) {
		for _, kind := range kinds {
			begin(kind, starting)
		}
		s.board.setListed()
	})
	return nil
}

// supervise keeps a source as long as the program runs. A kind that is not served costs
// waiting goroutines, but no request.
func (s *sources) supervise(ctx context.Context, kind schema.GroupKind) {
	err := s.apis.RunWhileServed(ctx, func(ctx context.Context) error {
		s.retry(ctx, kind)
		s.board.set(kind, notServed, "")
		return nil
	}, kind.WithVersion(""))
	if err != nil {
		s.board.set(kind, failed, err.Error())
	}
}

// retry runs a source until ctx ends. ctx ends when the kind goes.
func (s *sources) retry(ctx context.Context, kind schema.GroupKind) {
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 30, Cap: time.Minute}
	for ctx.Err() == nil {
		s.board.set(kind, starting, "")
		err := s.run(ctx, kind)
		if err != nil && ctx.Err() == nil {
			s.board.set(kind, failed, err.Error())
			pause(ctx, backoff.Step())
		}
	}
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
