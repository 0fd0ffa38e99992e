// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/follow"
	"github.com/freshmapper/freshmapper/internal/reload"
	"github.com/freshmapper/freshmapper/internal/report"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// An engine is what clients and caches ask that keep a mapping.
var _ follow.Source = (*Engine)(nil)

// Known implements follow.Source.
func (e *Engine) Known(gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	return e.mappingIn(e.Reloader.Snapshot(), gvk)
}

// KindsAt implements follow.Source.
func (e *Engine) KindsAt(resource schema.GroupVersionResource) []string {
	return e.Reloader.Snapshot().KindsOfResource(resource)
}

// Changed implements follow.Source.
func (e *Engine) Changed() <-chan struct{} { return e.Reloader.Changed() }

// Generation implements follow.Source.
func (e *Engine) Generation() uint64 {
	now := e.Reloader.Snapshot()
	return now.Generation() + uint64(now.LastReset()) // neither ever falls
}

// Hint implements follow.Source.
func (e *Engine) Hint(err error) string { return report.Hint(e.Reloader.Snapshot(), err) }

// confirmTimeout is how long a caller with follow.WaitBriefly waits at most.
const confirmTimeout = 2 * time.Second

// Confirm implements follow.Source.
func (e *Engine) Confirm(
	ctx context.Context, gvk schema.GroupVersionKind, wait follow.Wait,
) (*meta.RESTMapping, error) {
	confirm := e.confirmBriefly
	if wait == follow.WaitUntilRead {
		confirm = e.confirmUntilRead
	}
	s, err := confirm(ctx, gvk.GroupVersion())
	if err != nil {
		return nil, err
	}
	return e.mappingIn(s, gvk)
}

// confirmBriefly waits for confirmTimeout at most, and not at all if a read has had no answer for so long already, or
// if no read is allowed now.
func (e *Engine) confirmBriefly(ctx context.Context, gv schema.GroupVersion) (*snapshot.Snapshot, error) {
	slow := fmt.Errorf("%s could not be checked: a read of it has had no answer for %v", gv, confirmTimeout)
	if e.Reloader.WaitingFor(gv) >= confirmTimeout {
		return nil, slow
	}
	ctx, cancel := context.WithTimeoutCause(ctx, confirmTimeout, slow)
	defer cancel()
	s, err := e.Reloader.ReadLimited(ctx, e.confirms.of(gv, follow.WaitBriefly), e.Reloader.LastSeq())
	if errors.Is(err, reload.ErrLimited) {
		return nil, fmt.Errorf("%s could not be checked again yet: after %d reads in a row only one is sent in %v",
			gv, confirmBurst, confirmPeriod)
	}
	return s, err
}

// confirmUntilRead waits until a read is allowed and has ended, or ctx ends.
func (e *Engine) confirmUntilRead(ctx context.Context, gv schema.GroupVersion) (*snapshot.Snapshot, error) {
	began := e.Reloader.LastSeq()
	limit := e.confirms.of(gv, follow.WaitUntilRead)
	for {
		s, err := e.Reloader.ReadLimited(ctx, limit, began)
		if !errors.Is(err, reload.ErrLimited) {
			return s, err
		}
		discovery.Sleep(ctx, confirmPeriod/4)
		if ctx.Err() != nil {
			return nil, discovery.Cause(ctx)
		}
	}
}

// pollAge is how old the answer to Poll may be. A cache polls every 30 seconds, each at times of its own: they share
// answers, and no cache gets its own last answer again.
const pollAge = 20 * time.Second

// Poll implements follow.Source. The aggregated document has all kinds, and costs two requests without a body if
// nothing has changed. A legacy document has only groups and versions, so each version is asked.
func (e *Engine) Poll(ctx context.Context, kinds []schema.GroupVersionKind) error {
	var versions []schema.GroupVersion
	for _, gvk := range kinds {
		if !slices.Contains(versions, gvk.GroupVersion()) {
			versions = append(versions, gvk.GroupVersion())
		}
	}
	if len(versions) > 1 && e.Reloader.Snapshot().Aggregated() {
		return e.pollDocument(ctx)
	}
	var errs []error
	for _, gv := range versions {
		errs = append(errs, e.PollVersion(ctx, gv, pollAge))
	}
	return errors.Join(errs...)
}

// pollDocument refreshes, unless there is an answer of a poll that began less than pollAge ago.
func (e *Engine) pollDocument(ctx context.Context) error {
	_, err := e.Polls.Ask(
		ctx,
		e.Reloader.LastSeq(),
		pollAge,
		Question{},
		func(ctx context.Context, _ snapshot.Seq) error {
			return e.Reloader.Refresh(ctx)
		},
	)
	return err
}

// PollVersion reads a version live, unless there is an answer of a poll that began less than age ago.
func (e *Engine) PollVersion(ctx context.Context, gv schema.GroupVersion, age time.Duration) error {
	live := Question{GroupVersionKind: gv.WithKind(""), Live: true}
	_, err := e.Polls.Ask(ctx, e.Reloader.LastSeq(), age, live, func(ctx context.Context, _ snapshot.Seq) error {
		_, err := e.Reloader.ReadLive(ctx, gv)
		return err
	})
	return err
}

var errNotRead = errors.New("the version was never read")

// mappingIn returns the mapping of a kind in a snapshot. A version that was never read, or could not be read the last
// time, proves no absence.
func (e *Engine) mappingIn(s *snapshot.Snapshot, gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	mapping, _, err := s.RESTMapping(gvk.GroupKind(), []string{gvk.Version})
	if err == nil {
		return mapping, nil
	}
	v := s.Group(gvk.Group).Version(gvk.Version)
	switch {
	case v == nil:
		return nil, err
	case v.Err != nil:
		return nil, e.Options.DiscoveryFailed(map[schema.GroupVersion]error{gvk.GroupVersion(): v.Err})
	case v.Table == nil:
		return nil, e.Options.DiscoveryFailed(map[schema.GroupVersion]error{gvk.GroupVersion(): errNotRead})
	}
	return nil, err
}
