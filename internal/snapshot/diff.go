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

// Diff lists the changes from one snapshot to another: first the kinds that went,
// then, in the new order, those that came or changed. A kind counts as changed if its
// scope, resource or verbs changed, or if its version became the one that a lookup without a
// version finds. Kinds are spelled as the server spells them.
func Diff(from, to *Snapshot) []Change {
	var changes []Change
	for i, old := range from.groups {
		if g := to.groupAt(i, old.name); g != old {
			_, now := g.kindStates()
			was, _ := old.kindStates()
			for _, k := range was {
				if _, ok := now[k]; !ok {
					changes = append(changes, old.change(ChangeRemoved, k))
				}
			}
		}
	}
	for i, g := range to.groups {
		if old := from.groupAt(i, g.name); old != g {
			_, was := old.kindStates()
			all, now := g.kindStates()
			for _, k := range all {
				before, existed := was[k]
				switch {
				case !existed:
					changes = append(changes, g.change(ChangeAdded, k))
				case before.Resource != now[k].Resource, now[k].best && !before.best:
					changes = append(changes, g.change(ChangeChanged, k))
				}
			}
		}
	}
	return changes
}

// KindsWhere lists the kinds that are known to be served and are wanted, as added, in server order.
func (s *Snapshot) KindsWhere(wanted func(*Resource) bool) (kinds []Change) {
	for _, g := range s.groups {
		for _, v := range g.versions {
			for i := range v.Table.allRows() {
				if r := &v.Table.rows[i]; wanted(r) && v.Table.byKind(r.Kind) == r {
					kinds = append(kinds, g.change(ChangeAdded, versionKind{v.Name, r.Kind}))
				}
			}
		}
	}
	return kinds
}

// kindIn is a kind, as the server spells it, in a version of a group.
type versionKind struct{ version, kind string }

// kindState is what is known of it.
type kindState struct {
	Resource      // without its singular
	best     bool // a lookup without a version finds it here
}

// kinds returns the kinds of all versions, in server order, and what is known of them; g may
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

// change tells of a kind as g serves it.
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
