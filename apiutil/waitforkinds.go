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

// WaitForKinds returns nil once the server serves all of the kinds. If ctx ends first, it
// returns an error that wraps the cause. For a kind without a version, any version will
// do. WaitForKinds rechecks when the mapper learns of a change. It also asks the server
// itself, at first after a second and in the end every 30 seconds, unless Start watches
// or refreshes at least that often.
func (m *DynamicRESTMapper) WaitForKinds(ctx context.Context, gvks ...schema.GroupVersionKind) error {
	_, err := m.awaitServed(ctx, gvks)
	return err
}

// awaitServed is WaitForKinds. It returns the mappings with which it found the
// kinds served, all in one snapshot.
func (m *DynamicRESTMapper) awaitServed(ctx context.Context, gvks []schema.GroupVersionKind) ([]meta.RESTMapping, error) {
	backoff := pollBackoff()
	var asked uint64   // the generation when the server was last asked
	var err error      // why that failed, or nil
	var next time.Time // when the server may be asked again
	for ask := true; ; {
		if ask {
			asked = m.Generation()
			err = m.askUntilKnown(ctx, gvks)
			next = time.Now().Add(backoff.Step())
		}
		changed, s := m.reloader.Changed(), m.reloader.Snapshot()
		mappings, missing := mappingsOf(s, gvks)
		if len(missing) == 0 {
			if doubtful := doubtful(s, gvks); len(doubtful) > 0 {
				m.askLive(ctx, doubtful)
				mappings, missing = mappingsOf(m.reloader.Snapshot(), gvks)
			}
		}
		if len(missing) == 0 {
			return mappings, nil
		}
		if ctx.Err() != nil {
			return nil, errors.Join(fmt.Errorf("waiting for %v to be served: %w", missing, context.Cause(ctx)), err)
		}
		ask = m.awaitChange(ctx, changed, next, func() bool {
			// Without the aggregated document a refresh lists new versions without
			// their kinds.
			return !m.refreshes() || !s.Aggregated() && (err != nil || s.Generation() != asked)
		})
	}
}

// askUntilKnown is ask, but does not wait for the server any longer once all kinds are
// known, because others have learned of them: the read that it waits for may hang.
func (m *DynamicRESTMapper) askUntilKnown(ctx context.Context, gvks []schema.GroupVersionKind) error {
	if _, missing := mappingsOf(m.reloader.Snapshot(), gvks); len(missing) == 0 {
		return m.ask(ctx, gvks)
	}
	ctx, cancel := context.WithCancel(ctx)
	known := make(chan struct{})
	go func() {
		defer close(known)
		m.awaitKnown(ctx, gvks)
		cancel()
	}()
	err := m.ask(ctx, gvks)
	cancel()
	<-known
	return err
}

// awaitKnown returns when all of the kinds are known, or when ctx ends.
func (m *DynamicRESTMapper) awaitKnown(ctx context.Context, gvks []schema.GroupVersionKind) {
	for {
		changed := m.reloader.Changed()
		if _, missing := mappingsOf(m.reloader.Snapshot(), gvks); len(missing) == 0 {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// ask makes the reads that are missing to settle the mappings of the kinds. The results
// are in the snapshot afterwards. This is no lookup, so NegativeTTL does not apply.
func (m *DynamicRESTMapper) ask(ctx context.Context, gvks []schema.GroupVersionKind) error {
	var errs []error
	for _, gvk := range gvks {
		versions := []string{gvk.Version}
		find := func(s *snapshot.Snapshot) (known, settled bool) {
			_, settled, err := s.RESTMapping(gvk.GroupKind(), versions)
			return err == nil, settled
		}
		q := snapshot.KindQuery(gvk.GroupKind(), versions)
		if found := m.reloader.Lookup(ctx, q, find); found.Err != nil || len(found.Failed) > 0 {
			errs = append(errs, lookupError(q, found.Failed, found.Err))
		}
	}
	return errors.Join(errs...)
}

// awaitChange waits until changed is closed, ctx ends, or it is time to ask the server.
// It is time when next has come and must returns true; awaitChange reports whether it is.
func (m *DynamicRESTMapper) awaitChange(ctx context.Context, changed <-chan struct{}, next time.Time, must func() bool) (ask bool) {
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	for {
		select {
		case <-changed:
			return false
		case <-ctx.Done():
			return false
		case <-timer.C:
			if must() {
				return true
			}
			timer.Reset(mostPoll) // Start may have ended by then
		}
	}
}
