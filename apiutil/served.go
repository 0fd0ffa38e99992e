// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// WaitForKinds returns nil once the server serves all of the kinds, at once if it
// does already; or an error that wraps ctx's when ctx ends first. A kind without
// a version waits for any version. It rechecks when the mapper learns of a change,
// and asks by itself, every second at first and every 30 seconds in the end, unless
// Start refreshes in the background.
func (m *DynamicRESTMapper) WaitForKinds(ctx context.Context, gvks ...schema.GroupVersionKind) error {
	backoff := pollBackoff()
	ask := true
	for {
		changed := m.reloader.Changed()
		missing, err := m.missing(ctx, ask, gvks)
		if len(missing) == 0 {
			return nil
		}
		due := m.awaitChange(ctx, changed, backoff.Duration)
		if due {
			backoff.Step()
		}
		// Without the aggregated document a change does not say what is in a new version.
		ask = due || !m.reloader.Snapshot().Aggregated()
		if ctx.Err() != nil {
			return fmt.Errorf("waiting for %v to be served: %w (last: %w)", missing, context.Cause(ctx), err)
		}
	}
}

// missing lists the kinds that are not served, and why not: as the server says if
// ask is true, else as the mapper knows.
func (m *DynamicRESTMapper) missing(ctx context.Context, ask bool, gvks []schema.GroupVersionKind) ([]schema.GroupVersionKind, error) {
	var missing []schema.GroupVersionKind
	var errs []error
	for _, gvk := range gvks {
		_, _, err := m.reloader.Snapshot().RESTMapping(gvk.GroupKind(), []string{gvk.Version})
		if ask && err != nil {
			_, err = m.RESTMappingWithContext(ctx, gvk.GroupKind(), gvk.Version)
		}
		if err != nil {
			missing = append(missing, gvk)
			errs = append(errs, err)
		}
	}
	return missing, errors.Join(errs...)
}

// awaitChange waits until changed is closed or ctx ends. It says whether it is
// time to ask instead: after d, unless Start refreshes.
func (m *DynamicRESTMapper) awaitChange(ctx context.Context, changed <-chan struct{}, d time.Duration) (ask bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-changed:
			return false
		case <-ctx.Done():
			return false
		case <-timer.C:
			if !m.running.Load() {
				return true
			}
			timer.Reset(d) // Start may have ended by then
		}
	}
}

// RunWhileServed runs run while the server serves all of the kinds. It waits for
// them; calls run with a context that it cancels when one of them goes, or is
// served with another scope or resource name; waits for run to return; and begins
// again. It returns run's own error as soon as run returns of its own accord, nil
// included; an error that run returns after it was cancelled, unless that is the
// cancellation; and nil when ctx ends, after run has returned. run is never called
// twice at once.
//
// It fits controller-runtime's manager in one line:
//
//	mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
//		return mapper.RunWhileServed(ctx, startController, gvk)
//	}))
//
// That kinds went is learnt as WaitForKinds learns that they came.
func (m *DynamicRESTMapper) RunWhileServed(
	ctx context.Context, run func(context.Context) error, gvks ...schema.GroupVersionKind,
) error {
	for m.WaitForKinds(ctx, gvks...) == nil {
		stopped, err := m.runOnce(ctx, run, gvks)
		if ctx.Err() != nil {
			return nil
		}
		if !stopped || err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return nil
}

// runOnce runs run until it returns. stopped says that it was told to, because of
// the kinds or because ctx ended.
func (m *DynamicRESTMapper) runOnce(
	ctx context.Context, run func(context.Context) error, gvks []schema.GroupVersionKind,
) (stopped bool, err error) {
	runCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := mappingsOf(m.reloader.Snapshot(), gvks)
	returned := make(chan error, 1)
	go func() { returned <- run(runCtx) }()

	gone := make(chan struct{})
	go func() {
		defer close(gone)
		m.awaitGone(runCtx, served, gvks)
	}()
	select {
	case err = <-returned:
		cancel()
		<-gone
		return false, err
	case <-gone:
		cancel()
		return true, <-returned
	}
}

// awaitGone returns when the kinds are no longer served as they are in served, or ctx ends.
func (m *DynamicRESTMapper) awaitGone(ctx context.Context, served []meta.RESTMapping, gvks []schema.GroupVersionKind) {
	for ctx.Err() == nil {
		changed := m.reloader.Changed()
		if !equalMappings(served, mappingsOf(m.reloader.Snapshot(), gvks)) {
			return
		}
		if m.awaitChange(ctx, changed, mostPoll) {
			m.askAgain(ctx, gvks)
		}
	}
}

// askAgain reads live what the kinds are in; the snapshot takes up what it finds.
func (m *DynamicRESTMapper) askAgain(ctx context.Context, gvks []schema.GroupVersionKind) {
	asked := map[schema.GroupVersion]bool{}
	for _, gvk := range gvks {
		if gv := gvk.GroupVersion(); !asked[gv] {
			asked[gv] = true
			m.reloader.ReadLive(ctx, gv)
		}
	}
}

// mappingsOf returns the mappings of those kinds that are served.
func mappingsOf(s *snapshot.Snapshot, gvks []schema.GroupVersionKind) []meta.RESTMapping {
	mappings := make([]meta.RESTMapping, 0, len(gvks))
	for _, gvk := range gvks {
		if mapping, _, err := s.RESTMapping(gvk.GroupKind(), []string{gvk.Version}); err == nil {
			mappings = append(mappings, *mapping)
		}
	}
	return mappings
}

func equalMappings(a, b []meta.RESTMapping) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Resource != b[i].Resource || a[i].Scope.Name() != b[i].Scope.Name() {
			return false
		}
	}
	return true
}
