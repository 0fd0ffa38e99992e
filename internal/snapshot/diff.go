// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"

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

// Diff lists the changes from one snapshot to another: first the kinds that were removed,
// then, in the new order, those that were added or changed. A kind counts as changed if its
// scope, resource or verbs changed, or if its version became the one that a lookup without a
// version finds. Kinds are spelled as the server spells them.
func Diff(from, to *Snapshot) []Change {
	var changes []Change
	for i, old := range from.groups {
		if g := to.groupAt(i, old.name); g != old {
			changes = append(changes, removedKinds(old, g)...)
		}
	}
	for i, g := range to.groups {
		if old := from.groupAt(i, g.name); old != g {
			changes = append(changes, changedKinds(old, g)...)
		}
	}
	return changes
}

// removedKinds lists the kinds that g does not have any more. g may be nil.
func removedKinds(old, g *Group) (changes []Change) {
	before, _ := old.kindStates()
	_, now := g.kindStates()
	for _, kind := range before {
		if _, stays := now[kind]; !stays {
			changes = append(changes, old.change(ChangeRemoved, kind))
		}
	}
	return changes
}

// changedKinds lists the kinds of g that were added or changed. old may be nil.
func changedKinds(old, g *Group) (changes []Change) {
	_, before := old.kindStates()
	kinds, now := g.kindStates()
	for _, kind := range kinds {
		was, existed := before[kind]
		if !existed {
			changes = append(changes, g.change(ChangeAdded, kind))
		} else if now[kind].differs(was) {
			changes = append(changes, g.change(ChangeChanged, kind))
		}
	}
	return changes
}

// KindsWhere lists the kinds that are known to be served and are wanted, as added, in server order.
func (s *Snapshot) KindsWhere(wanted func(*Resource) bool) (kinds []Change) {
	for _, g := range s.groups {
		for _, v := range g.versions {
			for i := range v.Table.allRows() {
				r := &v.Table.rows[i]
				if wanted(r) && v.Table.byKind(r.Kind) == r {
					kinds = append(kinds, g.change(ChangeAdded, versionKind{v.Name, r.Kind}))
				}
			}
		}
	}
	return kinds
}

// versionKind is a kind, as the server spells it, in a version of a group.
type versionKind struct{ version, kind string }

// kindState is what is known of it.
type kindState struct {
	Resource      // without its singular
	best     bool // a lookup without a version finds it here
}

// differs reports whether subscribers are notified of the difference. They are not if a lookup without a version finds
// the kind elsewhere now: there it is listed.
func (k kindState) differs(before kindState) bool {
	becameBest := k.best && !before.best
	return becameBest || k.Resource != before.Resource
}

// kindStates returns the kinds of all versions, in server order, and what is known of them; g may
// be nil.
func (g *Group) kindStates() (all []versionKind, states map[versionKind]kindState) {
	if g == nil {
		return nil, nil
	}
	best := map[string]string{}
	for _, i := range g.ranked {
		for kind := range g.versions[i].Table.kindNames() {
			best[kind] = cmp.Or(best[kind], g.versions[i].Name)
		}
	}
	states = map[versionKind]kindState{}
	for _, v := range g.versions {
		for kind := range v.Table.kindNames() {
			to := *v.Table.findKind(kind)
			to.Singular = ""
			all = append(all, versionKind{v.Name, kind})
			states[versionKind{v.Name, kind}] = kindState{to, best[kind] == v.Name}
		}
	}
	return all, states
}

// change returns what happened to a kind, with its mapping in g.
func (g *Group) change(what ChangeType, k versionKind) Change {
	i := g.indexOf(k.version)
	m := match{g, i, g.versions[i].Table.findKind(k.kind)}
	c := Change{Type: what, Verbs: m.row.Verbs}
	m.fillMapping(&c.Mapping, k.kind)
	return c
}

// groupAt is Group. It is fast if the group at i has that name, as it mostly has.
func (s *Snapshot) groupAt(i int, name string) *Group {
	if i < len(s.groups) && s.groups[i].name == name {
		return s.groups[i]
	}
	return s.Group(name)
}
