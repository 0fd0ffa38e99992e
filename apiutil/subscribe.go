// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/engine"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// APIChangeType is what happened to a kind.
type APIChangeType string

// The types of an APIChange.
const (
	APIAdded   APIChangeType = "Added"
	APIRemoved APIChangeType = "Removed"
	// APIChanged is for a kind whose scope, resource name or verbs changed, or whose
	// version became the one that a lookup without a version finds.
	APIChanged APIChangeType = "Changed"
)

// ServedKind is one kind in one version of one group.
type ServedKind struct {
	Mapping meta.RESTMapping

	// Verbs are what clients can do with the kind's resource: those of create, delete,
	// deletecollection, get, list, patch, proxy, update and watch that the server names, in
	// this order. A CustomResourceDefinition that is being deleted has no create, patch and
	// update any more.
	Verbs []string
}

// APIChange is what happened to a kind. The ServedKind is as it is now; of a removed kind, as it
// was last.
type APIChange struct {
	Type APIChangeType
	ServedKind
}

// Subscribe returns a channel of the changes of the served API, as the mapper learns of
// them. The first slice has everything that is served now, as Added. To get it, the
// mapper reads the server, and repeats the read until it succeeds. Each later slice has
// first what was removed, then what was added or changed, in the server's order. A slow
// receiver gets changes merged, and nobody waits for it. A version is removed only when
// its own path answers 404. But while replicas of the API server disagree about the kinds
// of a version, a kind may be removed and added again. The channel is closed when ctx
// ends. The slices, Verbs included, belong to the receiver.
//
// Without RefreshInterval and WatchAPIs the mapper learns of changes only through
// lookups: a miss reads the server, and a hit after MaxAge starts a refresh.
func (m *DynamicRESTMapper) Subscribe(ctx context.Context) <-chan []APIChange {
	changes := make(chan []APIChange)
	go func() {
		defer close(changes)
		defer m.engine.Reloader.KeepAll()()
		m.readAll(ctx)
		m.deliver(ctx, changes)
	}()
	return changes
}

// readAll reads everything, and tries again until that succeeds or ctx ends. A server
// without the aggregated document may list its versions and answer for none of them.
func (m *DynamicRESTMapper) readAll(ctx context.Context) {
	backoff := engine.PollBackoff()
	for ctx.Err() == nil && (m.engine.Reloader.Refresh(ctx) != nil || m.engine.Reloader.Snapshot().CountKinds() == 0) {
		discovery.Sleep(ctx, backoff.Step())
	}
}

// deliver sends what has changed since the last slice. While nobody takes a slice, it is made
// again only if more has changed: there are many new snapshots that say the same.
func (m *DynamicRESTMapper) deliver(ctx context.Context, changes chan<- []APIChange) {
	delivered, seen := &snapshot.Snapshot{}, &snapshot.Snapshot{}
	var batch []APIChange
	for ctx.Err() == nil {
		changed := m.engine.Reloader.Changed()
		now := m.engine.Reloader.Snapshot()
		if len(snapshot.Diff(seen, now)) > 0 {
			batch = changesBetween(delivered, now)
		}
		seen = now
		var out chan<- []APIChange // nil, which blocks, if there is nothing to send
		if len(batch) > 0 {
			out = changes
		}
		select {
		case out <- batch:
			delivered, batch = now, nil
		case <-changed:
		case <-ctx.Done():
		}
	}
}

func changesBetween(from, to *snapshot.Snapshot) (batch []APIChange) {
	for _, c := range snapshot.Diff(from, to) {
		batch = append(batch, APIChange{APIChangeType(c.Type), ServedKind{c.Mapping, c.Verbs.Names()}})
	}
	return batch
}
