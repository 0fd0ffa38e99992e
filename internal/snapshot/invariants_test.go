// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// checkInvariants returns what is wrong with s, worked out again from the groups alone.
func checkInvariants(s *Snapshot) error {
	incomplete, private, oldest := 0, 0, never
	names := map[string]bool{}
	for _, g := range s.groups {
		if names[g.name] {
			return fmt.Errorf("two groups %q", g.name)
		}
		names[g.name] = true
		if err := cmp.Or(checkGroup(g), checkFacts(g), s.checkDocument(g)); err != nil {
			return fmt.Errorf("group %q: %w", g.name, err)
		}
		if !g.tried {
			incomplete++
		}
		if g.own != nil {
			private++
			oldest = min(oldest, oldestOf(g))
		}
	}
	if s.incomplete != incomplete || s.private != private || s.oldest != oldest && (s.doc != nil || private > 0) {
		return fmt.Errorf("%d groups are incomplete and %d private, the oldest fact of %d, not %d, %d, %d",
			incomplete, private, oldest, s.incomplete, s.private, s.oldest)
	}
	return cmp.Or(checkOrder(s), checkResets(s), checkNames(s))
}

// oldestOf returns the least tick of what g serves or was found not to serve, and of the
// list that says in what order, as far as it is not the document's own.
func oldestOf(g *Group) Tick {
	oldest := never
	if g.own.list > 0 && g.own.listLeads() {
		oldest = g.own.list
	}
	for _, f := range g.own.versions {
		if f.gone {
			oldest = min(oldest, max(f.read, f.tried))
		}
	}
	for _, v := range g.versions {
		failed := slices.IndexFunc(g.own.versions, func(f fact) bool { return f.name == v.Name && f.tried > 0 })
		switch {
		case v.Read > 0:
			oldest = min(oldest, v.Read)
		case v.Table == nil && failed >= 0:
			oldest = min(oldest, g.own.versions[failed].tried)
		}
	}
	return oldest
}

func checkGroup(g *Group) error {
	complete, tried := true, true
	names := map[string]bool{}
	for i := range g.versions {
		v := &g.versions[i]
		if names[v.Name] {
			return fmt.Errorf("two versions %q", v.Name)
		}
		names[v.Name] = true
		complete = complete && v.Table != nil && !v.doubted
		tried = tried && (v.Table != nil && !v.doubted || v.Err != nil)
		if i > 0 && v.Table != g.versions[i-1].Table && v.Table.equal(g.versions[i-1].Table) {
			return fmt.Errorf("%s keeps a table of its own, equal to that of %s", v.Name, g.versions[i-1].Name)
		}
		if err := checkTable(v.Table); err != nil {
			return fmt.Errorf("%s: %w", v.Name, err)
		}
	}
	if g.complete != complete || g.tried != tried {
		return fmt.Errorf("complete %v, tried %v, not %v, %v", complete, tried, g.complete, g.tried)
	}
	return checkRanks(g)
}

// checkRanks puts the versions in order by taking the best out, one after the other.
func checkRanks(g *Group) error {
	var ranked []string
	left := slices.Clone(g.versions)
	for len(left) > 0 {
		best := slices.IndexFunc(left, func(v Version) bool { return g.name == "" && v.Name == "v1" })
		if best < 0 {
			best = max(0, slices.IndexFunc(left, func(v Version) bool { return v.Name == g.preferred }))
		}
		ranked = append(ranked, left[best].Name)
		left = slices.Delete(left, best, best+1)
	}
	if len(g.ranked) != len(ranked) {
		return fmt.Errorf("%d versions ranked, not %d", len(ranked), len(g.ranked))
	}
	for i, at := range g.ranked {
		if g.versions[at].Name != ranked[i] {
			return fmt.Errorf("rank %d is %s, not %s", i, ranked[i], g.versions[at].Name)
		}
	}
	return nil
}

func checkTable(t *Table) error {
	if t == nil {
		return nil
	}
	kinds, names := map[string]int32{}, map[string]int32{}
	for i, r := range t.rows {
		if strings.Contains(r.Name, "/") {
			return fmt.Errorf("subresource %s", r.Name)
		}
		kinds[r.Kind] = int32(i)
		for _, name := range []string{r.Singular, r.Name} {
			if name != "" {
				names[name] = int32(i)
			}
		}
	}
	if !maps.Equal(kinds, t.kinds) || !maps.Equal(names, t.names) {
		return errors.New("index is not of these rows")
	}
	if known := t.lower.Load(); known != nil {
		for kind := range t.kinds {
			if i, ok := (*known)[strings.ToLower(kind)]; !ok || !strings.EqualFold(t.rows[i].Kind, kind) {
				return fmt.Errorf("the lower case of %s is not in the index", kind)
			}
		}
	}
	if t.odd != nil && len(t.odd.kinds)+len(t.odd.names)+len(t.odd.singulars) == 0 {
		return errors.New("exceptions without an exception")
	}
	return nil
}

func checkOrder(s *Snapshot) error {
	if s.order == nil {
		if len(s.groups) > 0 {
			return errors.New("no order")
		}
		return nil
	}
	if len(s.order.position) != len(s.groups) {
		return fmt.Errorf("%d positions of %d groups", len(s.order.position), len(s.groups))
	}
	for i, g := range s.groups {
		if at, ok := s.order.position[g.name]; !ok || at != i {
			return fmt.Errorf("group %q is at %d, not %d", g.name, i, at)
		}
		var beginning, got []int
		for j, other := range s.groups {
			if g.name != "" && strings.HasPrefix(other.name, g.name) {
				beginning = append(beginning, j)
			}
		}
		if s.order.eachBeginning(g.name, func(j int) { got = append(got, j) }); g.name != "" && !slices.Equal(beginning, got) {
			return fmt.Errorf("groups that begin with %q are %v, not %v", g.name, beginning, got)
		}
	}
	return nil
}

// checkNames looks every name that a group knows up in the index, if it was made.
func checkNames(s *Snapshot) error {
	if s.names == nil {
		if len(s.groups) > 0 {
			return errors.New("no index of names to make")
		}
		return nil
	}
	byStem := s.names.byStem.Load()
	if byStem == nil {
		return nil
	}
	for key, groups := range *byStem {
		last := -1
		for _, g := range groups {
			at := slices.IndexFunc(s.groups, func(other *Group) bool { return other.answersLike(g) })
			if at <= last {
				return fmt.Errorf("group %q, found by %q, is at %d, not after %d", g.name, key, at, last)
			}
			last = at
		}
	}
	for _, g := range s.groups {
		for name := range g.knownNames() {
			if !slices.ContainsFunc(s.names.among(s.groups, name), func(other *Group) bool { return other.answersLike(g) }) {
				return fmt.Errorf("group %q is not found by %q, which it knows", g.name, name)
			}
		}
	}
	return nil
}

// knownNames collects all names, plural and singular, that stand for something in a version of g.
func (g *Group) knownNames() map[string]bool {
	names := map[string]bool{}
	for i := range g.versions {
		t := g.versions[i].Table
		if t == nil {
			continue
		}
		for name := range spell(t.rows).kindOf {
			_, ok := t.kindOf(name)
			names[name] = ok || t.has(name)
		}
	}
	maps.DeleteFunc(names, func(_ string, known bool) bool { return !known })
	return names
}

func checkResets(s *Snapshot) error {
	switch {
	case s.reset > s.resetOfAny:
		return fmt.Errorf("reset at %d, after the last at %d", s.reset, s.resetOfAny)
	case s.doc == nil && (s.Read() || s.aggregated || s.ordered):
		return errors.New("read without a document")
	case s.Read() && s.generation == 0:
		return errors.New("read, but still of no generation")
	}
	for _, group := range slices.Sorted(maps.Keys(s.groupResets)) {
		if reset := s.groupResets[group]; reset == 0 || reset > s.resetOfAny {
			return fmt.Errorf("group %q waits for reset %d, after the last at %d", group, reset, s.resetOfAny)
		}
	}
	return nil
}

// intact is a snapshot with something of everything: facts of the second group, and
// the last one dropped by the document.
func intact() *Snapshot {
	h := newHistory(false, "/v2:Foo /v1:Foo,Foos apps.example/v1:Foo apps.example/v2:Foo apps.example/v3! apps/v1!")
	h.document("/v2:Foo /v1:Foo,Foos apps.example/v1:Foo apps.example/v2:Foo apps.example/v3! apps/v1! z/v1:Foo")
	h.document("/v2:Foo /v1:Foo,Foos apps.example/v1:Foo apps.example/v2:Foo apps.example/v3! apps/v1!")
	h.live("apps.example/v1:Bar apps.example/v2")
	h.fails("apps.example/v3")
	h.resetAll()
	h.resetGroup("apps")
	return h.indexed()
}

// nameIndex is what lookups without a group have left behind in s.
func (s *Snapshot) nameIndex() map[string][]*Group { return *s.names.byStem.Load() }

// TestTicks: no fact is later than the last event.
func TestTicks(t *testing.T) {
	if err := checkTicks(intact(), 8); err != nil {
		t.Error(err)
	}
	if checkTicks(intact(), 7) == nil {
		t.Error("a reset at 8 is not later than 7")
	}
}
