// SPDX-License-Identifier: Apache-2.0

package snapshot

import "strings"

// settled reports whether a version of g was read after the last reset, so that a lookup
// may be answered from it.
func (s *Snapshot) settled(g *Group, v *Version) bool {
	return v.Table != nil && !v.doubted && s.fresh(g, v.Read, v.Live)
}

// gaveUp reports whether v could not be read, and was tried after the last reset.
func (s *Snapshot) gaveUp(g *Group, v *Version) bool {
	f := factsOf(g)
	return v.Err != nil && s.fresh(g, f.get(v.Name).tried, true)
}

// listSettled reports whether the list of the group's versions, and their order, were
// read after the last reset.
func (s *Snapshot) listSettled(g *Group) bool {
	if g.own == nil {
		return s.fresh(g, 0, false)
	}
	asked := max(g.own.list, s.half(g.name)) // the last read of the list, from either source
	read := asked
	if _, waiting := s.groupResets[g.name]; waiting || g.own.list > 0 && g.own.listLeads() {
		read = g.own.list
	}
	return asked > g.unlisted && s.fresh(g, read, true) && len(s.outdatedAbsences(g)) == 0
}

// waits reports whether a group, known or not, waits for a live read after a reset of it.
func (s *Snapshot) waits(group string) bool {
	_, waiting := s.groupResets[group]
	return waiting
}

// outdatedAbsences lists the versions of g that the document has but that were found gone
// before the last reset.
func (s *Snapshot) outdatedAbsences(g *Group) []string {
	if g.own == nil || s.reset == 0 && len(s.groupResets) == 0 {
		return nil
	}
	var names []string
	for _, v := range g.own.versions {
		if v.gone && !s.fresh(g, v.read, true) {
			names = append(names, v.name)
		}
	}
	return names
}

// fresh reports whether a part of g was read after the last reset. then is the tick of
// its read, or 0 if it comes from the document; live reports whether it was read live.
func (s *Snapshot) fresh(g *Group, then Tick, live bool) bool {
	if s.reset == 0 && len(s.groupResets) == 0 {
		return true
	}
	if then == 0 {
		then = s.half(g.name)
	}
	reset, waiting := s.groupResets[g.name]
	return then > s.reset && (!waiting || live && then > reset)
}

// awaits reports whether a group whose name begins with prefix was reset and waits for a
// read. A known group waits for a live read. An unknown group, which may have come, waits
// for a read of the document.
func (s *Snapshot) awaits(prefix string) bool {
	for group, reset := range s.groupResets {
		if strings.HasPrefix(group, prefix) && (s.Group(group) != nil || s.half(group) <= reset) {
			return true
		}
	}
	return false
}

// complete reports whether the selected groups may answer without a read: every version
// was read or, outside the group that the lookup names, at least tried. A version may
// fail for days, and lookups in many groups must not read it again each time.
func (s *Snapshot) complete(sel selection) bool {
	if min(s.core, s.named) <= s.reset || s.oldest <= s.reset { // a half that was never read is 0
		return false
	}
	if s.awaits(sel.group) {
		return false
	}
	if sel.group == "" {
		return s.ordered && s.incomplete == 0
	}
	complete, selected := true, 0
	s.each(sel, func(g *Group) {
		complete = complete && (g.complete || g.name != sel.group && g.tried) && (g.own == nil || s.listSettled(g))
		selected++
	})
	return complete && (s.ordered || selected == 1)
}
