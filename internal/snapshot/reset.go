// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"maps"
	"slices"
	"strings"
)

// Reset makes everything count as unread that was read before now.
func (s *Snapshot) Reset(now Tick) *Snapshot {
	next := *s
	next.reset, next.resetOfAny = max(now, s.reset), max(now, s.resetOfAny)
	return &next
}

// mostGroupResets bounds the memory that resets of unknown groups can take.
const mostGroupResets = 1024

// ResetGroup makes one group count as unread until it is read live after now.
func (s *Snapshot) ResetGroup(group string, now Tick) *Snapshot {
	next := *s
	next.groupResets = maps.Clone(s.groupResets)
	if next.groupResets == nil {
		next.groupResets = map[string]Tick{}
	}
	if len(next.groupResets) >= mostGroupResets {
		maps.DeleteFunc(next.groupResets, func(name string, _ Tick) bool { return s.Group(name) == nil })
	}
	next.groupResets[group] = max(now, s.groupResets[group])
	next.resetOfAny = max(now, s.resetOfAny)
	return &next
}

// awaitedUnknown lists, sorted, the unknown groups that were reset and that may have what
// q looks for once they are known.
func (s *Snapshot) awaitedUnknown(q Query) []string {
	var unknown []string
	for group := range s.groupResets {
		named := group == q.Group || (q.byPrefix() || q.anyGroup()) && strings.HasPrefix(group, q.Group)
		if named && s.Group(group) == nil {
			unknown = append(unknown, group)
		}
	}
	slices.Sort(unknown)
	return unknown
}

// Since returns s as a lookup sees it that began with the snapshot began: without the
// resets that came later, because these count only for later lookups.
func (s *Snapshot) Since(began *Snapshot) *Snapshot {
	if s.resetOfAny == began.resetOfAny {
		return s
	}
	seen := *s
	seen.reset, seen.resetOfAny, seen.groupResets = began.reset, began.resetOfAny, nil
	for group := range s.groupResets {
		if reset, waited := began.groupResets[group]; waited {
			if seen.groupResets == nil {
				seen.groupResets = map[string]Tick{}
			}
			seen.groupResets[group] = reset
		}
	}
	return &seen
}

// settleReset forgets the reset of a group if all of the group was read live since then.
func (next *Snapshot) settleReset(name string, g *Group, now Tick) {
	reset, waiting := next.groupResets[name]
	if !waiting || now <= reset {
		return
	}
	if g != nil && !g.readSince(reset) {
		return
	}
	next.groupResets = maps.Clone(next.groupResets)
	delete(next.groupResets, name)
}

// readSince reports whether all of the group was read live after reset: its list, its
// versions, and the versions that were found gone but that the document has.
func (g *Group) readSince(reset Tick) bool {
	if g.own == nil || g.own.list <= reset {
		return false
	}
	return !slices.ContainsFunc(g.versions, func(v Version) bool { return !v.Live || v.Read <= reset }) &&
		!slices.ContainsFunc(g.own.versions, func(v fact) bool { return v.gone && v.read <= reset })
}
