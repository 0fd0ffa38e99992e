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
		"incomplete":       {func(s *Snapshot) { s.incomplete++ }, "are incomplete"},
		"private":          {func(s *Snapshot) { s.private-- }, "private"},
		"oldest":           {func(s *Snapshot) { s.oldest = 1 }, "the oldest fact"},
		"complete":         {func(s *Snapshot) { s.groups[2].complete = true }, "complete false"},
		"not complete":     {func(s *Snapshot) { s.groups[0].complete = false }, "complete true"},
		"tried":            {func(s *Snapshot) { s.groups[2].versions[0].Err = nil }, "tried false"},
		"not tried":        {func(s *Snapshot) { s.groups[2].tried = false }, "tried true"},
		"rank":             {func(s *Snapshot) { s.groups[0].ranked[0], s.groups[0].ranked[1] = 0, 1 }, "rank 0 is v1"},
		"rank missing":     {func(s *Snapshot) { s.groups[0].ranked = s.groups[0].ranked[:1] }, "2 versions ranked"},
		"table of its own": {func(s *Snapshot) { g := s.groups[0]; g.versions[1].Table = NewTable(g.versions[0].Table.rows) }, "table of its own"},
		"subresource":      {func(s *Snapshot) { s.groups[0].versions[0].Table.rows[0].Name = "foos/status" }, "subresource"},
		"kind index":       {func(s *Snapshot) { s.groups[0].versions[0].Table.kinds["Foo"] = 1 }, "index"},
		"name index":       {func(s *Snapshot) { delete(s.groups[0].versions[0].Table.names, "foo") }, "index"},
		"exceptions":       {func(s *Snapshot) { s.groups[0].versions[0].Table.odd = new(exceptions) }, "exceptions"},
		"lower kinds":      {func(s *Snapshot) { s.groups[0].versions[0].Table.lower = map[string]int32{} }, "only making it"},
		"no facts":         {func(s *Snapshot) { s.groups[1].own = nil }, "without facts"},
		"idle facts":       {func(s *Snapshot) { s.groups[0].own = &facts{doc: s.groups[0]} }, "say nothing"},
		"other facts":      {func(s *Snapshot) { s.groups[1].preferred = "v2" }, "its facts make of it"},
		"no list":          {func(s *Snapshot) { s.groups[1].own.listed = []string{"v1"} }, "never read"},
		"facts turned":     {func(s *Snapshot) { slices.Reverse(s.groups[1].own.versions) }, "not sorted"},
		"two facts":        {func(s *Snapshot) { s.groups[1].own.versions[1].name = "v1" }, "two of v1"},
		"gone, and there":  {func(s *Snapshot) { s.groups[1].own.versions[1].live = false }, "gone, but not live"},
		"never read":       {func(s *Snapshot) { s.groups[1].own.versions[2].live = true }, "live, but never read"},
		"kept":             {func(s *Snapshot) { s.groups[1].own.versions[0].live, s.groups[1].versions[0].Live = false, false }, "although the document"},
		"never tried":      {func(s *Snapshot) { s.groups[1].own.versions[2].tried = 0 }, "never tried"},
		"failed before":    {func(s *Snapshot) { s.groups[1].own.versions[2].read = 99 }, "before the good read"},
		"about nothing":    {func(s *Snapshot) { f := &s.groups[1].own.versions[2]; f.err, f.tried = nil, 0 }, "about nothing"},
		"other document":   {func(s *Snapshot) { s.doc = intact().doc }, "of another document"},
		"no order":         {func(s *Snapshot) { s.order = nil }, "no order"},
		"positions":        {func(s *Snapshot) { s.order.position["more"] = 3 }, "5 positions"},
		"position":         {func(s *Snapshot) { s.order.position["apps"] = 1 }, `group "apps" is at 2`},
		"longer":           {func(s *Snapshot) { delete(s.order.longer, "apps") }, "groups longer"},
		"reset":            {func(s *Snapshot) { s.reset = 99 }, "after the last"},
		"no document":      {func(s *Snapshot) { s.groups, s.order, s.doc, s.private, s.incomplete = nil, nil, nil, 0, 0 }, "without a document"},
		"generation":       {func(s *Snapshot) { s.generation = 0 }, "no generation"},
		"no names":         {func(s *Snapshot) { s.names = nil }, "no index of names"},
		"name missing":     {func(s *Snapshot) { delete(s.nameIndex(), "foo") }, "not found by"},
		"group missing":    {func(s *Snapshot) { s.nameIndex()["bar"] = nil }, "not found by"},
		"group of another": {func(s *Snapshot) { s.nameIndex()["bar"] = []*Group{parseGroup([]string{"apps/v1:Bar"})} }, "is at -1"},
		"groups turned":    {func(s *Snapshot) { slices.Reverse(s.nameIndex()["foo"]) }, "not after"},
		"group reset":      {func(s *Snapshot) { s.groupResets["apps"] = 99 }, "waits for reset 99"},
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
