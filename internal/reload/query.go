// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Query says which part of the server a lookup is about.
type Query struct {
	// Group is the group asked for. Lookups by resource may give the beginning of
	// its name, or nothing at all.
	Group string
	// Versions are the versions asked for; none means all that the group has.
	Versions []string
	// ByResource says that Group is matched as client-go matches it for resources:
	// by its beginning where no version is given, and any group where it is empty.
	ByResource bool
}

// anyGroup says that every group of the server may answer.
func (q Query) anyGroup() bool { return q.ByResource && q.Group == "" }

// anyVersion says that every version of the group may answer.
func (q Query) anyVersion() bool { return len(q.Versions) == 0 }

// byPrefix says that groups with a longer name may answer as well.
func (q Query) byPrefix() bool { return q.ByResource && q.anyVersion() }

// groups lists the groups of s in which something may answer, in server order.
func (q Query) groups(s *snapshot.Snapshot) []*snapshot.Group {
	if !q.byPrefix() && !q.anyGroup() {
		if g := s.Group(q.Group); g != nil {
			return []*snapshot.Group{g}
		}
		return nil
	}
	return slices.DeleteFunc(slices.Clone(s.Groups()), func(g *snapshot.Group) bool {
		return !strings.HasPrefix(g.Name(), q.Group) // which is empty where any group may answer
	})
}

// Read reads the part of the server that q is about, so that what the snapshot
// says afterwards, NoMatch included, comes from a read that began after Read was
// called. settled says whether a snapshot answers the lookup as it stands, in
// which case reading ends early.
//
// It returns those group-versions in question that could not be read while the
// server as such could; or an error if it could not, or if ctx ended.
func (r *Reloader) Read(ctx context.Context, q Query, settled func(*snapshot.Snapshot) bool) (map[schema.GroupVersion]error, error) {
	s := r.Snapshot()
	known := s.Group(q.Group)
	switch {
	case q.anyGroup():
		_, err := r.do(ctx, scope{kind: everything})
		return r.failedIn(q), err
	case !s.Read() || s.Outdated() || known == nil && q.anyVersion():
		return r.readBulkThenRest(ctx, q, settled)
	case s.GroupOutdated(q.Group) || len(q.Versions) > 1 && known != nil && !isListed(known):
		return r.readGroupThenRest(ctx, q, settled)
	case !q.anyVersion():
		return r.readVersionsOf(ctx, q, q.Versions)
	case s.Aggregated():
		return r.readBulkThenGroup(ctx, q, settled)
	default:
		return r.readListedThenList(ctx, q, settled)
	}
}

// do waits for a read of s that begins now or later.
func (r *Reloader) do(ctx context.Context, s scope) (failures, error) {
	return r.flights.do(ctx, s)
}

// readBulkThenRest reads the bulk document and, where that only lists versions
// or could not get at them, those that q is about.
func (r *Reloader) readBulkThenRest(ctx context.Context, q Query, settled func(*snapshot.Snapshot) bool) (failures, error) {
	if _, err := r.do(ctx, scope{kind: bulk}); err != nil {
		return nil, err
	}
	s := r.Snapshot()
	if settled(s) {
		return nil, nil
	}
	if !q.anyVersion() {
		return r.readVersionsOf(ctx, q, slices.DeleteFunc(slices.Clone(q.Versions), func(name string) bool {
			return s.Aggregated() && !listedUnread(s.Group(q.Group), name)
		}))
	}
	if !s.Aggregated() && q.byPrefix() {
		// Of groups with a longer name there may be tables that are older than this lookup.
		_, err := r.readListed(ctx, q, settled)
		return r.failedIn(q), err
	}
	if len(unread(s, q)) > 0 {
		rest := scope{kind: fill, group: q.Group, prefix: q.byPrefix()}
		if _, err := r.do(ctx, rest); err != nil {
			return nil, err
		}
	}
	return r.failedIn(q), nil
}

// listedUnread says that the aggregated document names the version but does not
// say what is in it.
func listedUnread(g *snapshot.Group, name string) bool {
	if g == nil {
		return false
	}
	v := g.Version(name)
	return v != nil && !v.Known()
}

// readBulkThenGroup is for a known group of a server with the aggregated
// document. That has a new version of a CustomResourceDefinition as soon as it is
// served, while the list at /apis/<group> waits for an APIService to be made for
// it; of an APIService's own versions it may hear a minute late. So it is read
// first, and the group live unless the document shows it changed.
func (r *Reloader) readBulkThenGroup(ctx context.Context, q Query, settled func(*snapshot.Snapshot) bool) (failures, error) {
	before := r.Snapshot().Group(q.Group)
	if _, err := r.do(ctx, scope{kind: bulk}); err != nil {
		return nil, err
	}
	s := r.Snapshot()
	if settled(s) {
		return nil, nil
	}
	if s.Aggregated() && changed(before, s.Group(q.Group)) {
		return r.failedIn(q), nil
	}
	_, err := r.do(ctx, scope{kind: group, group: q.Group})
	return r.failedIn(q), err
}

// readGroupThenRest reads a group live, and what its list, which may be behind,
// leaves open: versions that are asked for and not in it, or else what the
// aggregated document says.
func (r *Reloader) readGroupThenRest(ctx context.Context, q Query, settled func(*snapshot.Snapshot) bool) (failures, error) {
	if _, err := r.do(ctx, scope{kind: group, group: q.Group}); err != nil {
		return nil, err
	}
	s := r.Snapshot()
	if settled(s) {
		return nil, nil
	}
	if q.anyVersion() && s.Aggregated() {
		_, err := r.do(ctx, scope{kind: bulk})
		return r.failedIn(q), err
	}
	g := s.Group(q.Group)
	unlisted := slices.DeleteFunc(slices.Clone(q.Versions), func(name string) bool { return g != nil && g.Version(name) != nil })
	failed, err := r.readVersionsOf(ctx, q, unlisted)
	if err == nil {
		maps.Copy(failed, r.failedIn(q))
	}
	return failed, err
}

// changed says that a group shows something else than before. That one of its
// versions still fails is no change, whatever the error.
func changed(before, now *snapshot.Group) bool {
	return now == nil || now.Preferred() != before.Preferred() ||
		!slices.EqualFunc(now.Versions(), before.Versions(), func(a, b snapshot.Version) bool {
			return a.Name == b.Name && a.Table == b.Table && (a.Err == nil) == (b.Err == nil)
		})
}

// readListedThenList is the same for a server without the aggregated document.
// The versions that are known are read first and the list is read last, unless
// one of them has gone: then the list is most likely behind, and is left for the
// next lookup, which will not do without it.
func (r *Reloader) readListedThenList(ctx context.Context, q Query, settled func(*snapshot.Snapshot) bool) (failures, error) {
	complete := isListed(r.Snapshot().Group(q.Group))
	if done, err := r.readListed(ctx, q, settled); done || err != nil {
		return nil, err
	}
	g := r.Snapshot().Group(q.Group)
	if versionGone := complete && g != nil && !g.Listed(); versionGone {
		return r.failedIn(q), nil
	}
	_, err := r.do(ctx, scope{kind: list, group: q.Group})
	return r.failedIn(q), err
}

// readListed reads the versions, as they are listed, of every group that q is
// about. It says whether that settles the lookup.
func (r *Reloader) readListed(ctx context.Context, q Query, settled func(*snapshot.Snapshot) bool) (bool, error) {
	for _, g := range q.groups(r.Snapshot()) {
		if _, err := r.do(ctx, scope{kind: listed, group: g.Name()}); err != nil {
			return false, err
		}
		if settled(r.Snapshot()) {
			return true, nil
		}
	}
	return false, nil
}

func isListed(g *snapshot.Group) bool { return g != nil && g.Listed() }

// readVersionsOf reads versions of the group of q live.
func (r *Reloader) readVersionsOf(ctx context.Context, q Query, versions []string) (failures, error) {
	failed := failures{}
	for _, name := range versions {
		gv := schema.GroupVersion{Group: q.Group, Version: name}
		one, err := r.do(ctx, scope{kind: version, group: q.Group, version: name})
		if err != nil {
			return nil, err
		}
		if one[gv] != nil {
			failed[gv] = one[gv]
		}
	}
	return failed, nil
}

// failedIn lists the versions that q is about whose last read failed.
func (r *Reloader) failedIn(q Query) failures {
	failed := failures{}
	for _, g := range q.groups(r.Snapshot()) {
		for _, v := range g.Versions() {
			if v.Err != nil && (q.anyVersion() || slices.Contains(q.Versions, v.Name)) {
				failed[schema.GroupVersion{Group: g.Name(), Version: v.Name}] = v.Err
			}
		}
	}
	return failed
}

// unread lists the versions that q is about which have not been read since they
// were listed, or since they were reset.
func unread(s *snapshot.Snapshot, q Query) []schema.GroupVersion {
	var gvs []schema.GroupVersion
	for _, g := range q.groups(s) {
		for _, v := range g.Versions() {
			if !v.Known() {
				gvs = append(gvs, schema.GroupVersion{Group: g.Name(), Version: v.Name})
			}
		}
	}
	return gvs
}
