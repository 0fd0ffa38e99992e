// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Refresh reads the document, and then live what differs from it; see snapshot.Due. It
// returns when all of that is done, or when ctx ends. Its error is that of the document:
// the versions that fail are in the snapshot. Only a refresh that succeeds confirms what
// is known.
func (r *Reloader) Refresh(ctx context.Context) error {
	if err := r.ReadDocument(ctx); err != nil {
		return err
	}
	differing, dropped := r.Snapshot().Due(r.subscribers.Load() > 0)
	ended := make(chan error, 1)
	go func() {
		ended <- r.readInOrder(ctx, dropped, true, func(read snapshot.Read, o snapshot.Outcome) bool {
			return o.Err != nil || r.Snapshot().Serves(read.Group, read.Version)
		})
	}()
	_ = inParallel(differing, func(reads []snapshot.Read) error { return r.readInOrder(ctx, reads, true, silent) })
	<-ended
	if ctx.Err() != nil {
		return discovery.Cause(ctx)
	}
	r.age.next(1)
	return nil
}

// ReadDocument reads the document, and nothing else. It returns when that is done, or when ctx
// ends.
func (r *Reloader) ReadDocument(ctx context.Context) error {
	f, err := r.flights.do(ctx, snapshot.Read{}, never, true)
	if err != nil {
		return err
	}
	return f.outcome.Err
}

// silent reports whether a read got no answer: others of its group would most likely hang as
// long.
func silent(_ snapshot.Read, o snapshot.Outcome) bool { return discovery.Unanswered(o.Err) }

// readInOrder makes reads one after the other. It joins the errors of those that failed. It
// stops when ctx ends, and after the first outcome that is the last. If brief, it waits no longer
// than silentWait for a version that gave no answer the last time, and stops there: else what
// hangs would hold up the next refresh. That read goes on.
func (r *Reloader) readInOrder(ctx context.Context, reads []snapshot.Read, brief bool, last func(snapshot.Read, snapshot.Outcome) bool) error {
	var errs []error
	for _, read := range reads {
		waiting, cancel := ctx, context.CancelFunc(func() {})
		v := r.Snapshot().Group(read.Group).Version(read.Version)
		hung := brief && v != nil && discovery.Unanswered(v.Err)
		if hung {
			waiting, cancel = context.WithTimeout(ctx, silentWait)
		}
		f, err := r.flights.do(waiting, read, never, !hung)
		if cancel(); err != nil {
			return errors.Join(append(errs, fmt.Errorf("read group %q: %w", read.Group, err))...)
		}
		if errs = append(errs, f.outcome.Err); last(read, f.outcome) {
			break
		}
	}
	return errors.Join(errs...)
}

// RefreshGroups reads groups live, each with every version that it has. It reads them
// side by side. Its error joins the errors of all reads that failed.
func (r *Reloader) RefreshGroups(ctx context.Context, groups []string) error {
	groups = slices.Compact(slices.Sorted(slices.Values(groups)))
	lists := make([][]snapshot.Read, len(groups))
	for i, group := range groups {
		lists[i] = []snapshot.Read{{Part: snapshot.PartList, Group: group}}
	}
	return inParallel(lists, func(list []snapshot.Read) error {
		err := r.readInOrder(ctx, list, false, silent)
		if ctx.Err() != nil {
			return err
		}
		versions := r.Snapshot().LiveReads(list[0].Group)
		failed := r.readInOrder(ctx, versions[:len(versions)-1], false, silent)
		return errors.Join(err, failed)
	})
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

// ReadLive reads a version live. It returns the snapshot after that.
func (r *Reloader) ReadLive(ctx context.Context, gv schema.GroupVersion) (*snapshot.Snapshot, error) {
	f, err := r.flights.do(ctx, snapshot.Read{Part: snapshot.PartVersion, Group: gv.Group, Version: gv.Version}, never, false)
	if err != nil {
		return nil, err
	}
	return r.Snapshot(), f.outcome.Err
}
