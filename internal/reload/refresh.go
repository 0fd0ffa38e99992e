// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Refresh reads the document, and then live what differs from it; see RefreshReads of the snapshot. It returns when
// each of these reads has ended or is slow, or when ctx ends. Its error is that of the document: those of versions
// are in the snapshot. Only a refresh that succeeds confirms what is known.
func (r *Reloader) Refresh(ctx context.Context) error { return r.refresh(ctx, waitIfResponsive) }

// refresh is Refresh, with how long it waits for versions and lists.
func (r *Reloader) refresh(ctx context.Context, waits waitPolicy) error {
	began := time.Now()
	if err := r.ReadDocument(ctx); err != nil {
		return err
	}
	everything := r.keepers.Load() > 0
	differing, dropped := r.Snapshot().RefreshReads(everything, r.usage.idle(r.Snapshot()))

	c := r.newCaller(onlyNewCalls, waits)
	c.cancels = true
	workqueue.ParallelizeUntil(ctx, maxParallel, 1+len(differing), func(i int) {
		if i == 0 {
			c.readDropped(ctx, dropped)
		} else {
			c.readInTurn(ctx, differing[i-1])
		}
	})
	if err := discovery.Cause(ctx); err != nil {
		return err
	}

	r.age.confirmed()
	if everything {
		r.NoteAllRead(began)
	}
	return nil
}

// RefreshIfDue starts a refresh in the background if one is due, and returns at once. The refresh ends by the timeouts
// of its requests.
func (r *Reloader) RefreshIfDue() {
	if !r.age.due.CompareAndSwap(true, false) {
		return
	}
	go func() {
		if r.Refresh(context.Background()) != nil {
			r.age.failed()
		}
	}()
}

// readDropped reads the versions of groups that the document no longer has. It stops at the first one that is still
// served, or that cannot be read: then the document is behind.
func (c *caller) readDropped(ctx context.Context, dropped []snapshot.Read) {
	for _, read := range dropped {
		outcome, err := c.read(ctx, read)
		if err != nil || outcome.Err != nil || c.r.Snapshot().Serves(read.Group, read.Version) {
			return
		}
	}
}

// ConfirmAll refreshes everything that is known if it is outdated, and waits for that. On a server without the
// aggregated document a refresh alone leaves out what nobody uses. ConfirmAll waits no longer than a lookup that has an
// old answer. It does not wait at all if the server is unresponsive, or if an attempt has failed a moment ago (R7):
// then it returns an error that says so. Nor does it wait for a version that is known to give no answer: a caller that
// asks once a minute would wait for it each time.
func (r *Reloader) ConfirmAll(ctx context.Context) error {
	if !r.Outdated() {
		return nil
	}
	failed := r.notConfirmed.Load()
	if failed != nil && time.Since(failed.at) < slowThreshold {
		return failed.err
	}
	if r.isUnresponsive(snapshot.ReadDocument) {
		return discovery.NotAwaited(snapshot.ReadDocument, slowThreshold)
	}

	ctx, cancel := context.WithTimeoutCause(ctx, maxWait, discovery.NotAwaited(snapshot.ReadDocument, maxWait))
	defer cancel()
	release := r.KeepAll()
	defer release()
	err := r.refresh(ctx, waitIfAnsweredBefore)
	if err != nil {
		r.notConfirmed.Store(&failedAttempt{at: time.Now(), err: err})
	}
	return err
}

// failedAttempt is an attempt of ConfirmAll that has failed.
type failedAttempt struct {
	at  time.Time
	err error
}

// NotAnswering returns the versions that are being read and do not answer, each with an error. Only a read
// of the version's own path can confirm what is known of it. An aggregated document confirms all versions, so there are
// none.
func (r *Reloader) NotAnswering() map[schema.GroupVersion]error {
	if r.Snapshot().Aggregated() {
		return nil
	}
	errs := map[schema.GroupVersion]error{}
	for _, read := range r.inFlight.unresponsiveVersions() {
		gv := schema.GroupVersion{Group: read.Group, Version: read.Version}
		errs[gv] = discovery.NotAwaited(read, slowThreshold)
	}
	return errs
}

// RefreshGroups reads groups live, each with every version that it has, side by side. Its error joins the errors of all
// reads that failed.
func (r *Reloader) RefreshGroups(ctx context.Context, groups []string) error {
	groups = slices.Compact(slices.Sorted(slices.Values(groups)))
	c := r.newCaller(onlyNewCalls, waitUntilSlow)
	c.cancels = true
	defer c.close()

	lists := make([][]snapshot.Read, len(groups))
	for i, group := range groups {
		lists[i] = []snapshot.Read{snapshot.ReadGroup(group)}
	}
	if err := c.readGroups(ctx, lists); err != nil {
		return err
	}
	versions := make([][]snapshot.Read, len(groups))
	for i, group := range groups {
		reads := r.Snapshot().LiveReads(group)
		versions[i] = reads[:len(reads)-1] // the last one is that of the list
	}
	if err := c.readGroups(ctx, versions); err != nil {
		return err
	}
	for len(c.slow) > 0 {
		if err := c.awaitSlow(ctx, 0); err != nil {
			return err
		}
	}

	var errs []error
	for i := range groups {
		for _, read := range slices.Concat(lists[i], versions[i]) {
			errs = append(errs, c.done[read].Err)
		}
	}
	return errors.Join(errs...)
}

// KeepResourceLists makes reads keep what the server sends of each version, for a discovery cache. What was read before
// does not have that, so it counts as reset. Refreshes read every version from now on.
func (r *Reloader) KeepResourceLists() {
	if before := r.client.KeepResourceLists(); before {
		return
	}
	r.KeepAll()
	r.Reset()
}

// KeepAll makes refreshes read every version of a server without the aggregated document, until release is called. When
// nobody needs all of them any more, a refresh soon reads only what is in use.
func (r *Reloader) KeepAll() (release func()) {
	r.keepers.Add(1)
	return func() { r.keepers.Add(-1) }
}
