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
	incomplete := 0
	names := map[string]bool{}
	for _, g := range s.groups {
		if names[g.name] {
			return fmt.Errorf("two groups %q", g.name)
		}
		names[g.name] = true
		if err := checkGroup(g); err != nil {
			return fmt.Errorf("group %q: %w", g.name, err)
		}
		if !g.tried {
			incomplete++
		}
	}
	if s.incomplete != incomplete {
		return fmt.Errorf("%d groups are incomplete, not %d", incomplete, s.incomplete)
	}
	return cmp.Or(checkOrder(s), checkResets(s), checkNames(s))
}

func checkGroup(g *Group) error {
	complete, tried := g.listed, g.listed
	names := map[string]bool{}
	for i := range g.versions {
		v := &g.versions[i]
		if names[v.Name] {
			return fmt.Errorf("two versions %q", v.Name)
		}
		names[v.Name] = true
		known := v.Table != nil && !v.Outdated
		complete = complete && known
		tried = tried && (known || v.Err != nil)
		if v.Outdated && v.Table == nil {
			return fmt.Errorf("%s has nothing that could be outdated", v.Name)
		}
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
	if t.lower != nil {
		return errors.New("keeps what only making it needs")
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
		var longer []int
		for j, other := range s.groups {
			if i != j && g.name != "" && strings.HasPrefix(other.name, g.name) {
				longer = append(longer, j)
			}
		}
		if !slices.Equal(longer, s.order.longer[g.name]) {
			return fmt.Errorf("groups longer than %q are %v, not %v", g.name, longer, s.order.longer[g.name])
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
			at := slices.Index(s.groups, g)
			if at <= last {
				return fmt.Errorf("group %q, found by %q, is at %d, not after %d", g.name, key, at, last)
			}
			last = at
		}
	}
	for _, g := range s.groups {
		for name := range g.knownNames() {
			if !slices.Contains(s.names.among(s.groups, name), g) {
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
	clock := s.Clock()
	switch {
	case s.resets > clock || s.readAt > clock:
		return fmt.Errorf("clock %d is behind reset %d or read %d", clock, s.resets, s.readAt)
	case s.ordered && !s.read:
		return errors.New("in the order of a list that was never read")
	case s.read && s.generation == 0:
		return errors.New("read, but still of no generation")
	}
	for _, group := range slices.Sorted(maps.Keys(s.groupsResets)) {
		if n := s.groupsResets[group]; n > clock || n <= s.readAt {
			return fmt.Errorf("group %q waits for reset %d, at clock %d with all read at %d", group, n, clock, s.readAt)
		}
	}
	return nil
}

// intact is a snapshot with something of everything.
func intact() *Snapshot {
	foos := NewTable([]Resource{{Name: "foos", Singular: "foo", Kind: "Foo"}})
	clashing := NewTable([]Resource{{Name: "foos", Singular: "foo", Kind: "Foo"}, {Name: "bars", Singular: "foo", Kind: "Bar"}})
	s := new(Snapshot).Reset().WithBulk(NewList([]*Group{
		NewGroup("", "v1", []Version{{Name: "v2", Table: foos}, {Name: "v1", Table: clashing}}, true),
		NewGroup("apps.example", "v1", []Version{{Name: "v1", Table: foos}, {Name: "v2", Table: clashing, Outdated: true}}, true),
		NewGroup("apps", "", []Version{{Name: "v1", Err: errUnread}}, true),
	}, false), 1)
	return s.Reset().ResetGroup("apps").indexed()
}

// nameIndex is what lookups without a group have left behind in s.
func (s *Snapshot) nameIndex() map[string][]*Group { return *s.names.byStem.Load() }

// TestCheckInvariants breaks a snapshot in every way that checkInvariants looks for.
func TestCheckInvariants(t *testing.T) {
	if err := checkInvariants(intact()); err != nil {
		t.Fatalf("intact: %v", err)
	}
	if err := checkInvariants(new(Snapshot)); err != nil {
		t.Fatalf("zero: %v", err)
	}
	tests := map[string]struct {
		breakIt func(*Snapshot)
		want    string
	}{
		"two groups":       {func(s *Snapshot) { s.groups[1].name = "" }, "two groups"},
		"two versions":     {func(s *Snapshot) { s.groups[0].versions[1].Name = "v2" }, "two versions"},
		"incomplete":       {func(s *Snapshot) { s.incomplete++ }, "groups are incomplete"},
		"complete":         {func(s *Snapshot) { s.groups[1].complete = true }, "complete false"},
		"not complete":     {func(s *Snapshot) { s.groups[0].complete = false }, "complete true"},
		"tried":            {func(s *Snapshot) { s.groups[1].tried = true }, "tried false"},
		"not tried":        {func(s *Snapshot) { s.groups[2].tried = false }, "tried true"},
		"outdated nothing": {func(s *Snapshot) { s.groups[2].versions[0].Outdated = true }, "could be outdated"},
		"rank":             {func(s *Snapshot) { s.groups[0].ranked[0], s.groups[0].ranked[1] = 0, 1 }, "rank 0 is v1"},
		"rank missing":     {func(s *Snapshot) { s.groups[0].ranked = s.groups[0].ranked[:1] }, "2 versions ranked"},
		"table of its own": {func(s *Snapshot) { s.groups[0].versions[1].Table = NewTable(s.groups[0].versions[0].Table.rows) }, "table of its own"},
		"subresource":      {func(s *Snapshot) { s.groups[0].versions[0].Table.rows[0].Name = "foos/status" }, "subresource"},
		"kind index":       {func(s *Snapshot) { s.groups[0].versions[0].Table.kinds["Foo"] = 1 }, "index"},
		"name index":       {func(s *Snapshot) { delete(s.groups[0].versions[0].Table.names, "foo") }, "index"},
		"exceptions":       {func(s *Snapshot) { s.groups[0].versions[0].Table.odd = new(exceptions) }, "exceptions"},
		"lower kinds":      {func(s *Snapshot) { s.groups[0].versions[0].Table.lower = map[string]int32{} }, "only making it"},
		"no order":         {func(s *Snapshot) { s.order = nil }, "no order"},
		"positions":        {func(s *Snapshot) { s.order.position["more"] = 3 }, "4 positions"},
		"position":         {func(s *Snapshot) { s.order.position["apps"] = 1 }, `group "apps" is at 2`},
		"longer":           {func(s *Snapshot) { delete(s.order.longer, "apps") }, "groups longer"},
		"clock":            {func(s *Snapshot) { s.readAt = 9 }, "is behind"},
		"ordered":          {func(s *Snapshot) { s.read = false }, "never read"},
		"generation":       {func(s *Snapshot) { s.generation = 0 }, "no generation"},
		"no names":         {func(s *Snapshot) { s.names = nil }, "no index of names"},
		"name missing":     {func(s *Snapshot) { delete(s.nameIndex(), "foo") }, "not found by"},
		"group missing":    {func(s *Snapshot) { s.nameIndex()["bar"] = nil }, "not found by"},
		"group of another": {func(s *Snapshot) { s.nameIndex()["bar"] = intact().groups }, "is at -1"},
		"groups turned":    {func(s *Snapshot) { slices.Reverse(s.nameIndex()["foo"]) }, "not after 1"},
		"reset done":       {func(s *Snapshot) { s.groupsResets["apps"] = 1 }, "waits for reset 1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := intact()
			test.breakIt(s)
			if err := checkInvariants(s); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want something of %q", err, test.want)
			}
		})
	}
}
