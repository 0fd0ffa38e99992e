// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Reloader holds the current snapshot of one server and reloads it on demand.
// All methods may be called from any goroutine.
type Reloader struct {
	current atomic.Pointer[snapshot.Snapshot] // stored by publish alone
	changed atomic.Pointer[chan struct{}]     // closed and replaced by publish
	health  atomic.Pointer[Health]            // stored by the one flight that runs
	client  *discovery.Client                 // used by the one flight that runs
	flights *flights

	patience time.Duration // see healthAfter
	all      atomic.Bool   // everything was asked for once, so refreshes read everything
}

// New makes a reloader that knows nothing yet. It sends no request and starts no
// goroutine. patience is how long a server need not be heard of before it is asked
// whether it is what fails. report, which may be nil, is called after every flight,
// in their order.
func New(client *discovery.Client, patience time.Duration, report func(Report)) *Reloader {
	r := &Reloader{client: client, patience: patience}
	r.flights = newFlights(r.read, report)
	changed := make(chan struct{})
	r.changed.Store(&changed)
	r.health.Store(&Health{})
	r.current.Store(&snapshot.Snapshot{})
	return r
}

// Snapshot returns what is known now. It takes no lock and never waits.
func (r *Reloader) Snapshot() *snapshot.Snapshot { return r.current.Load() }

// Changed returns a channel that is closed at the next change of the snapshot.
// Whoever must not miss one gets the channel first and then the snapshot.
func (r *Reloader) Changed() <-chan struct{} { return *r.changed.Load() }

// Health says how the reads of the server have gone so far.
func (r *Reloader) Health() Health { return *r.health.Load() }

// Refresh reads everything again that has been read before, and what is new.
// It returns an error if the server did not answer. When ctx ends it stops
// reading, and returns once that has stopped. It returns when its report has been
// made, so a report must not call it.
func (r *Reloader) Refresh(ctx context.Context) error {
	f := r.flights.join(ctx, scope{kind: refresh})
	select {
	case <-f.reported:
	case <-ctx.Done():
		if r.flights.leave(f) {
			return context.Cause(ctx)
		}
		<-f.reported // its requests end with ctx
	}
	if f.err == nil && ctx.Err() == nil {
		return f.failure()
	}
	return f.err
}

// ReadAll reads everything that the server serves, and makes every later Refresh do so.
func (r *Reloader) ReadAll(ctx context.Context) error {
	r.all.Store(true)
	_, err := r.do(ctx, scope{kind: everything})
	return err
}

// ReadLive reads a version live, or the whole group where gv names none. Failing,
// it leaves what is known.
func (r *Reloader) ReadLive(ctx context.Context, gv schema.GroupVersion) {
	s := scope{kind: version, group: gv.Group, version: gv.Version}
	if gv.Version == "" {
		s.kind = group
	}
	_, _ = r.do(ctx, s)
}

// Reset asks that everything be read again before it is answered from. It does
// not wait, and sends no request itself.
func (r *Reloader) Reset() {
	r.publish(func(s *snapshot.Snapshot) *snapshot.Snapshot { return s.Reset() })
}

// ResetGroup is Reset for one group.
func (r *Reloader) ResetGroup(group string) {
	r.publish(func(s *snapshot.Snapshot) *snapshot.Snapshot { return s.ResetGroup(group) })
}

// publish replaces the current snapshot by the one that follows from it. It is
// the only place that stores one. follow may be called again if another
// goroutine was faster.
func (r *Reloader) publish(follow func(*snapshot.Snapshot) *snapshot.Snapshot) {
	for {
		current := r.current.Load()
		next := follow(current)
		if next == current {
			return
		}
		if r.current.CompareAndSwap(current, next) {
			changed := make(chan struct{})
			close(*r.changed.Swap(&changed))
			return
		}
	}
}

// read performs a flight and keeps its record. Only one runs at a time.
func (r *Reloader) read(f *flight) {
	start, from, before := time.Now(), r.Snapshot(), r.Health()
	r.fly(f)
	if f.ctx.Err() != nil {
		return // given up, which says nothing of the server
	}
	took, err := time.Since(start), f.failure()
	then := r.healthAfter(f, before, err)
	then.Clock = from.Clock()
	r.health.Store(&then)
	f.report = &Report{
		Reason: f.scope.kind.String(), Duration: took, Err: err,
		From: from, To: r.Snapshot(), Before: before, Then: then,
	}
}

func (r *Reloader) fly(f *flight) {
	ctx, s := f.ctx, f.scope
	switch s.kind {
	case everything:
		f.err = r.readEverything(f)
	case bulk:
		f.err = r.readBulk(ctx)
	case group:
		f.err = r.readGroup(ctx, s.group)
	case listed:
		r.readVersions(f, versionsOf(r.Snapshot().Group(s.group)))
	case list:
		f.err = r.readList(f, s.group)
	case version:
		r.readVersions(f, []schema.GroupVersion{{Group: s.group, Version: s.version}})
	case refresh:
		f.err = r.refresh(f)
	case fill:
		r.readVersions(f, unread(r.Snapshot(), Query{Group: s.group, ByResource: s.prefix}))
	}
}

// refresh is readBulk and, on a server without the aggregated document, every
// version that was read before; or every version at all, if somebody wants to
// know of all.
func (r *Reloader) refresh(f *flight) error {
	if err := r.readBulk(f.ctx); err != nil {
		return err
	}
	s := r.Snapshot()
	if s.Aggregated() {
		return nil
	}
	all := r.all.Load()
	var gvs []schema.GroupVersion
	for _, g := range s.Groups() {
		for _, v := range g.Versions() {
			if all || v.Table != nil || v.Err != nil {
				gvs = append(gvs, schema.GroupVersion{Group: g.Name(), Version: v.Name})
			}
		}
	}
	r.readVersions(f, gvs)
	return nil
}

// readEverything is readBulk and, on a server without the aggregated document,
// every version that it lists.
func (r *Reloader) readEverything(f *flight) error {
	if err := r.readBulk(f.ctx); err != nil {
		return err
	}
	s := r.Snapshot()
	if s.Aggregated() {
		return nil
	}
	var gvs []schema.GroupVersion
	for _, g := range s.Groups() {
		gvs = append(gvs, versionsOf(g)...)
	}
	r.readVersions(f, gvs)
	return nil
}

func versionsOf(g *snapshot.Group) []schema.GroupVersion {
	if g == nil {
		return nil
	}
	gvs := make([]schema.GroupVersion, 0, len(g.Versions()))
	for _, v := range g.Versions() {
		gvs = append(gvs, schema.GroupVersion{Group: g.Name(), Version: v.Name})
	}
	return gvs
}

// readList reads one group's list of versions, and of those the ones that are
// new. It comes after a read of the others: those that are known stay if they are
// served, whether the list, which runs behind, has them or not, and those that
// failed are not waited for twice.
func (r *Reloader) readList(f *flight, name string) error {
	clock := r.Snapshot().Clock()
	g, _, err := r.client.List(f.ctx, name)
	if err != nil {
		return err
	}
	versions := map[string]snapshot.Version{}
	for _, v := range g.Versions() {
		versions[v.Name] = v
	}
	if before := r.Snapshot().Group(name); before != nil {
		for _, v := range before.Versions() {
			if v.Known() {
				versions[v.Name] = v
			}
		}
	}
	g = g.Keep(versions)
	r.publishGroup(g, len(versions) > 0, clock)
	s := r.Snapshot()
	r.readVersions(f, slices.DeleteFunc(unread(s, Query{Group: name}), func(gv schema.GroupVersion) bool {
		return s.Group(name).Version(gv.Version).Err != nil // as a moment ago
	}))
	f.silent = nil // the list was read
	return nil
}

func (r *Reloader) readBulk(ctx context.Context) error {
	clock := r.Snapshot().Clock()
	doc, err := r.client.Bulk(ctx)
	if err != nil {
		return err
	}
	r.publish(func(s *snapshot.Snapshot) *snapshot.Snapshot { return s.WithBulk(doc.List, clock) })
	return nil
}

func (r *Reloader) readGroup(ctx context.Context, name string) error {
	clock := r.Snapshot().Clock()
	g, served, err := r.client.Group(ctx, name, r.knownVersions(name))
	if err != nil {
		return err
	}
	r.publishGroup(g, served, clock)
	return nil
}

func (r *Reloader) knownVersions(group string) []string {
	var names []string
	for _, gv := range versionsOf(r.Snapshot().Group(group)) {
		names = append(names, gv.Version)
	}
	return names
}

// publishGroup publishes what a read of a group, begun at clock, has found.
func (r *Reloader) publishGroup(g *snapshot.Group, served bool, clock uint64) {
	r.publish(func(s *snapshot.Snapshot) *snapshot.Snapshot {
		if !served {
			return s.WithoutGroup(g.Name(), clock)
		}
		return s.WithGroup(g, clock)
	})
}

// readVersions reads and publishes one version after the other, and notes in f
// which failed.
func (r *Reloader) readVersions(f *flight, gvs []schema.GroupVersion) {
	f.failed, f.silent = failures{}, nil
	r.client.Versions(f.ctx, gvs, func(gv schema.GroupVersion, table *snapshot.Table, served bool, err error) {
		if f.ctx.Err() != nil {
			return // given up, which says nothing of the version
		}
		r.publish(func(s *snapshot.Snapshot) *snapshot.Snapshot {
			switch {
			case err != nil:
				return s.WithFailedVersion(gv.Group, gv.Version, err)
			case !served:
				return s.WithoutVersion(gv.Group, gv.Version)
			default:
				return s.WithVersion(gv.Group, snapshot.Version{Name: gv.Version, Table: table})
			}
		})
		if err != nil {
			f.failed[gv] = err
		}
		if f.silent == nil || certain(err) && !certain(f.silent) {
			f.silent = err
		}
	})
	if len(f.failed) < len(gvs) {
		f.silent = nil
	}
}
