// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
)

// ChangeType is what happened to a kind.
type ChangeType string

// The types of a Change, by the names that users see.
const (
	ChangeAdded   ChangeType = "Added"
	ChangeRemoved ChangeType = "Removed"
	ChangeChanged ChangeType = "Changed"
)

// Change is what happened to one kind in one version of one group.
type Change struct {
	Type    ChangeType
	Mapping meta.RESTMapping // as it is now; of a removed kind, as it was last
	Verbs   Verbs            // likewise
}

// Diff lists the changes from one snapshot to another: first the kinds that went,
// then, in the new order, those that came or changed. A kind counts as changed if its
// scope, resource or verbs changed, or if its version became the one that a lookup without a
// version finds. Kinds are spelled as the server spells them.
func Diff(from, to *Snapshot) []Change {
	var changes []Change
	for i, old := range from.groups {
		if g := to.groupAt(i, old.name); g != old {
			changes = appendRemoved(changes, old, g)
		}
	}
	for i, g := range to.groups {
		if old := from.groupAt(i, g.name); old != g {
			changes = appendArrived(changes, old, g)
		}
	}
	return changes
}

func appendRemoved(changes []Change, old, g *Group) []Change {
	for i := range old.versions {
		v := &old.versions[i]
		now := g.tableOf(v.Name)
		if now == v.Table {
			continue
		}
		for _, kind := range v.Table.spelledKinds() {
			if _, ok := now.exactKind(kind); !ok {
				changes = append(changes, old.change(ChangeRemoved, v, kind))
			}
		}
	}
	return changes
}

func appendArrived(changes []Change, old, g *Group) []Change {
	for i := range g.versions {
		v := &g.versions[i]
		before := old.tableOf(v.Name)
		for _, kind := range v.Table.spelledKinds() {
			was, existed := before.exactKind(kind)
			now, _ := v.Table.exactKind(kind)
			switch {
			case !existed:
				changes = append(changes, g.change(ChangeAdded, v, kind))
			case was != now || g.becamePreferred(old, v, kind):
				changes = append(changes, g.change(ChangeChanged, v, kind))
			}
		}
	}
	return changes
}

// becamePreferred reports whether a lookup of kind without a version finds v, and did
// not find the same version in old.
func (g *Group) becamePreferred(old *Group, v *Version, kind string) bool {
	return g.preferredVersion(kind) == v.Name && old.preferredVersion(kind) != v.Name
}

func (g *Group) preferredVersion(kind string) string {
	for _, i := range g.ranked {
		if _, ok := g.versions[i].Table.exactKind(kind); ok {
			return g.versions[i].Name
		}
	}
	return ""
}

// change tells of a kind as v serves it.
func (g *Group) change(what ChangeType, v *Version, kind string) Change {
	found, _ := v.Table.exactKind(kind)
	c := Change{Type: what, Verbs: found.verbs}
	g.fill(&c.Mapping, v, kind, found)
	return c
}

// tableOf returns the table of a version, or nil; g may be nil.
func (g *Group) tableOf(version string) *Table {
	if v := g.Version(version); v != nil {
		return v.Table
	}
	return nil
}

// exactKind is target, but only for a kind as the server spells it; t may be nil.
func (t *Table) exactKind(kind string) (target, bool) {
	if t == nil {
		return target{}, false
	}
	if _, ok := t.kinds[kind]; !ok {
		return target{}, false
	}
	return t.target(kind)
}

// spelledKinds lists the kinds of the table, each once, in server order; t may be nil.
func (t *Table) spelledKinds() []string {
	if t == nil {
		return nil
	}
	kinds := make([]string, 0, len(t.kinds))
	for i, r := range t.rows {
		if t.kinds[r.Kind] == int32(i) {
			kinds = append(kinds, r.Kind)
		}
	}
	return kinds
}

// groupAt is Group. It is fast if the group at i has that name, as it mostly has.
func (s *Snapshot) groupAt(i int, name string) *Group {
	if i < len(s.groups) && s.groups[i].name == name {
		return s.groups[i]
	}
	return s.Group(name)
}

// servedDifferently reports whether the served API differs between two snapshots. A
// version that was listed before and is now read for the first time is no difference:
// it was served all along.
func servedDifferently(a, b *Snapshot) bool {
	differ := func(from, to *Snapshot) bool {
		for i, g := range to.groups {
			if !from.groupAt(i, g.name).servesLike(g) {
				return true
			}
		}
		return false
	}
	return !a.Read() && b.Read() || differ(a, b) || differ(b, a)
}

// servesLike reports whether both groups serve the same in the same versions, and prefer
// them in the same order; g may be nil.
func (g *Group) servesLike(other *Group) bool {
	return g == other || slices.EqualFunc(g.served(), other.served(), func(a, b *Version) bool {
		return a.Name == b.Name && (a.Table == nil || b.Table == nil || a.Table.servesLike(b.Table))
	})
}

// served lists the versions that are not gone, the best one first; g may be nil.
func (g *Group) served() (versions []*Version) {
	if g != nil {
		for _, i := range g.ranked {
			if v := &g.versions[i]; !v.Gone {
				versions = append(versions, v)
			}
		}
	}
	return versions
}

// servesLike reports whether both tables give the same answers. The order of the rows
// matters only where two of them claim the same form.
func (t *Table) servesLike(other *Table) bool {
	return t.equal(other) || spell(t.rows).equal(spell(other.rows))
}
