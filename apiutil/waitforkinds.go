// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// WaitForKinds returns nil once the server serves all of the kinds, as a read that began
// after the call has found. If ctx ends first, it returns an error that wraps the cause.
// For a kind without a version, any version will do. WaitForKinds rechecks when the mapper
// learns of a change. It also asks the server itself, whatever Start does: at once, then
// after a second, and in the end every 30 seconds.
func (m *DynamicRESTMapper) WaitForKinds(ctx context.Context, gvks ...schema.GroupVersionKind) error {
	_, err := m.awaitServed(ctx, gvks)
	return err
}

// awaitServed is WaitForKinds. It returns the mappings with which it found the
// kinds served, all in one snapshot.
func (m *DynamicRESTMapper) awaitServed(ctx context.Context, gvks []schema.GroupVersionKind) ([]meta.RESTMapping, error) {
	var asking sync.WaitGroup
	defer asking.Wait()
	asks, cancel := context.WithCancel(ctx)
	defer cancel()
	began, backoff, due := m.reloader.Now(), pollBackoff(), time.After(0) // began: when the server was last asked
	asked := make(chan error, 1)
	var err error // why the server could not be asked the last time, or nil
	for {
		changed := m.reloader.Changed()
		mappings, missing := mappingsSince(m.reloader.Snapshot(), began, gvks)
		if len(missing) == 0 {
			return mappings, nil
		}
		if ctx.Err() != nil {
			return nil, errors.Join(fmt.Errorf("waiting for %v to be served: %w", missing, context.Cause(ctx)), err)
		}
		select {
		case <-due:
			began = m.reloader.Now()
			asking.Add(1)
			go func(began snapshot.Tick) {
				defer asking.Done()
				asked <- m.ask(asks, began, gvks)
			}(began)
		case err = <-asked:
			due = time.After(backoff.Step())
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// ask makes the reads that show whether the kinds are served since began. The results are in the
// snapshot afterwards. This is no lookup, so NegativeTTL does not apply.
func (m *DynamicRESTMapper) ask(ctx context.Context, began snapshot.Tick, gvks []schema.GroupVersionKind) error {
	var errs []error
	for _, gvk := range gvks {
		versions := []string{gvk.Version}
		q := snapshot.KindQuery(gvk.GroupKind(), versions)
		found := m.reloader.LookupSince(ctx, began, q, func(s *snapshot.Snapshot) (known, current bool) {
			_, current, err := s.RESTMapping(gvk.GroupKind(), versions)
			return err == nil, current
		})
		if found.Err != nil || len(found.Failed) > 0 {
			errs = append(errs, lookupError(q, found.Failed, found.Err))
		}
	}
	return errors.Join(errs...)
}

// mappingsSince returns the mappings of those kinds that are served as a read has found
// that began after began, and the others.
func mappingsSince(s *snapshot.Snapshot, began snapshot.Tick, gvks []schema.GroupVersionKind) (served []meta.RESTMapping, missing []schema.GroupVersionKind) {
	s = s.Reset(began)
	for _, gvk := range gvks {
		if mapping, current, err := s.RESTMapping(gvk.GroupKind(), []string{gvk.Version}); err == nil && current {
			served = append(served, *mapping)
		} else {
			missing = append(missing, gvk)
		}
	}
	return served, missing
}
