// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"errors"
	"slices"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Refresh reads the document, and then live what differs from it; see snapshot.Due. It
// returns when all of that is done or unanswered, or when ctx ends. Its error is that of the document:
// the versions that fail are in the snapshot. Only a refresh that succeeds confirms what
// is known.
func (r *Reloader) Refresh(ctx context.Context) error {
	if err := r.ReadDocument(ctx); err != nil {
		return err
	}
	differing, dropped := r.Snapshot().Due(r.subscribers.Load() > 0)
	x := r.newReading(never)
	x.hasAnswer, x.abandon = true, true
	err := x.run(ctx, append([][]snapshot.Read{dropped}, differing...), func(list int, read snapshot.Read, o snapshot.Outcome) bool {
		return list > 0 || o.Err == nil && !r.Snapshot().Serves(read.Group, read.Version) // else the document is behind
	})
	if err != nil {
		return err
	}
	r.age.next(1)
	return nil
}

// RefreshGroups reads groups live, each with every version that it has. It reads them
// side by side. Its error joins the errors of all reads that failed.
func (r *Reloader) RefreshGroups(ctx context.Context, groups []string) error {
	groups = slices.Compact(slices.Sorted(slices.Values(groups)))
	lists, versions := make([][]snapshot.Read, len(groups)), make([][]snapshot.Read, len(groups))
	for i, group := range groups {
		lists[i] = []snapshot.Read{snapshot.ReadList(group)}
	}
	x := r.newReading(never)
	x.abandon = true
	defer x.close()
	all := func(int, snapshot.Read, snapshot.Outcome) bool { return true }
	if err := x.run(ctx, lists, all); err != nil {
		return err
	}
	for i, group := range groups {
		reads := r.Snapshot().LiveReads(group)
		versions[i] = reads[:len(reads)-1]
	}
	if err := x.run(ctx, versions, all); err != nil {
		return err
	}
	for len(x.open) > 0 {
		if err := x.awaitOne(ctx); err != nil {
			return err
		}
	}
	var errs []error
	for i := range groups {
		for _, read := range slices.Concat(lists[i], versions[i]) {
			errs = append(errs, x.done[read].Err)
		}
	}
	return errors.Join(errs...)
}

// KeepAll makes refreshes read every version of a server without the aggregated document,
// until release is called. When nobody needs all any more, that is a reset: a refresh reads
// only what lookups have needed since.
func (r *Reloader) KeepAll() (release func()) {
	r.subscribers.Add(1)
	return func() {
		if r.subscribers.Add(-1) == 0 && !r.Snapshot().Aggregated() {
			r.Reset()
		}
	}
}
