// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/restmapper"
)

// checkInvariants returns what is wrong with s, worked out again from the groups alone.
func checkInvariants(s *Snapshot) error {
	untried, apart := 0, 0
	names := map[string]bool{}
	for _, g := range s.groups {
		if names[g.name] {
			return fmt.Errorf("two groups %q", g.name)
		}
		names[g.name] = true
		if err := cmp.Or(checkVersions(g), checkRanks(g), s.checkDocument(g)); err != nil {
			return fmt.Errorf("group %q: %w", g.name, err)
		}
		if g.reset > 0 || slices.ContainsFunc(g.versions, func(v Version) bool { return !s.needed(&v) }) {
			untried++
		}
		if g.apart {
			apart++
		}
	}
	if s.untried != untried || s.apart != apart {
		return fmt.Errorf("%d groups are untried and %d apart; not %d and %d", untried, apart, s.untried, s.apart)
	}
	switch {
	case s.reset > s.anyReset:
		return fmt.Errorf("reset at %d, after the last at %d", s.reset, s.anyReset)
	case (s.doc == nil) != (s.document == 0):
		return errors.New("a document without its tick, or the tick without it")
	case s.Read() && s.generation == 0:
		return errors.New("read, but of no generation")
	}
	return cmp.Or(checkOrder(s), checkNames(s))
}

func checkVersions(g *Group) error {
	tried := true
	names := map[string]bool{}
	for i := range g.versions {
		v := &g.versions[i]
		if names[v.Name] {
			return fmt.Errorf("two versions %q", v.Name)
		}
		names[v.Name] = true
		tried = tried && (v.Table != nil || v.Err != nil || v.Gone && !v.returned())
		switch {
		case v.Gone && v.Table != nil:
			return fmt.Errorf("%s is gone and has a table", v.Name)
		case v.Gone && v.Tried == 0:
			return fmt.Errorf("%s is gone and was never tried", v.Name)
		case v.Read > 0 && v.Table == nil && !v.Gone:
			return fmt.Errorf("%s was read at %d, and nothing is known of it", v.Name, v.Read)
		case i > 0 && v.Table != g.versions[i-1].Table && v.Table.equal(g.versions[i-1].Table):
			return fmt.Errorf("%s has a table of its own, equal to that of %s", v.Name, g.versions[i-1].Name)
		}
	}
	if g.tried != tried {
		return fmt.Errorf("tried %v, not %v", tried, g.tried)
	}
	return nil
}

// checkRanks puts the versions in order by taking the best out, one after the other.
func checkRanks(g *Group) error {
	var want, got []string
	for left := slices.Clone(g.versions); len(left) > 0; {
		best := slices.IndexFunc(left, func(v Version) bool { return g.name == "" && v.Name == "v1" })
		if best < 0 {
			best = max(0, slices.IndexFunc(left, func(v Version) bool { return v.Name == g.preferred }))
		}
		want = append(want, left[best].Name)
		left = slices.Delete(left, best, best+1)
	}
	for _, at := range g.ranked {
		got = append(got, g.versions[at].Name)
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("ranked %q, not %q", got, want)
	}
	return nil
}

// checkDocument: what a group keeps of the document is what the document says.
func (s *Snapshot) checkDocument(g *Group) error {
	var said *Group
	if s.doc != nil {
		said = s.doc.group(g.name)
	}
	switch {
	case g.Said() != said:
		return errors.New("of another document")
	case !g.apart:
		return nil
	case said == nil && len(g.versions) == 0 && g.reset == 0:
		return errors.New("nothing is known of it")
	}
	for _, v := range g.versions {
		if v.Table != nil && v.Read == 0 && (said.Version(v.Name) == nil || !said.Version(v.Name).Table.equal(v.Table)) {
			return fmt.Errorf("%s is not the document's, and has no tick", v.Name)
		}
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
	}
	if len(s.order.names) != len(s.groups) || !slices.IsSorted(s.order.names) {
		return fmt.Errorf("the names %q are not those of the groups, sorted", s.order.names)
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
	if s.names.byStem.Load() == nil {
		return nil
	}
	for _, g := range s.groups {
		for _, name := range g.knownNames() {
			found := s.names.among(s.groups, name)
			if !slices.Contains(found, g) {
				return fmt.Errorf("group %q is not found by %q, which it knows", g.name, name)
			}
			if !slices.IsSortedFunc(found, func(a, b *Group) int { return cmp.Compare(slices.Index(s.groups, a), slices.Index(s.groups, b)) }) {
				return fmt.Errorf("groups with %q are out of order", name)
			}
		}
	}
	return nil
}

// knownNames lists all names, plural and singular, that stand for something in a version of g.
func (g *Group) knownNames() (names []string) {
	for i := range g.versions {
		if t := g.versions[i].Table; t != nil {
			names = slices.AppendSeq(names, maps.Keys(t.spelled().kindOf))
		}
	}
	return names
}

// intact is a snapshot with something of everything: a group that was read live, one with
// a reset, one dropped, and one of the document alone.
func intact() *Snapshot {
	const doc = "/v2:Foo /v1:Foo,Foos apps.example/v1:Foo apps.example/v2:Foo apps.example/v3! apps/v1!"
	h := newHistory(false, doc+" z/v1:Foo")
	h.document(doc)
	h.live("apps.example/v1:Bar apps.example/v2 apps.example/v3!")
	h.resetAll()
	h.resetGroup("apps")
	return h.indexed()
}

// TestCheckInvariants breaks a snapshot in every way that checkInvariants looks for.
func TestCheckInvariants(t *testing.T) {
	if err := cmp.Or(checkInvariants(intact()), checkInvariants(new(Snapshot))); err != nil {
		t.Fatalf("intact: %v", err)
	}
	byStem := func(s *Snapshot) map[string][]*Group { return *s.names.byStem.Load() }
	for name, test := range map[string]struct {
		breakIt func(*Snapshot)
		want    string
	}{
		"two groups":        {func(s *Snapshot) { s.groups[1].name = "" }, "two groups"},
		"two versions":      {func(s *Snapshot) { s.groups[0].versions[1].Name = "v2" }, "two versions"},
		"untried":           {func(s *Snapshot) { s.untried++ }, "are untried"},
		"apart":             {func(s *Snapshot) { s.apart-- }, "apart"},
		"tried":             {func(s *Snapshot) { s.groups[0].tried = false }, "tried true"},
		"gone and there":    {func(s *Snapshot) { s.groups[1].versions[1].Table = tableOf() }, "gone and has a table"},
		"gone untried":      {func(s *Snapshot) { s.groups[1].versions[1].Tried = 0 }, "never tried"},
		"read, nothing":     {func(s *Snapshot) { s.groups[1].versions[0].Table = nil }, "nothing is known"},
		"own table":         {func(s *Snapshot) { g := s.groups[0]; g.versions[1].Table = NewTable(g.versions[0].Table.rows) }, "table of its own"},
		"rank":              {func(s *Snapshot) { s.groups[0].ranked[0], s.groups[0].ranked[1] = 0, 1 }, "ranked"},
		"rank missing":      {func(s *Snapshot) { s.groups[0].ranked = s.groups[0].ranked[:1] }, "ranked"},
		"other document":    {func(s *Snapshot) { s.doc = intact().doc }, "another document"},
		"nothing dropped":   {func(s *Snapshot) { s.groups[3].versions, s.groups[3].ranked = nil, nil }, "nothing is known of it"},
		"no tick":           {func(s *Snapshot) { s.groups[1].versions[0].Read = 0 }, "has no tick"},
		"no order":          {func(s *Snapshot) { s.order = nil }, "no order"},
		"positions":         {func(s *Snapshot) { s.order.position["more"] = 3 }, "5 positions"},
		"position":          {func(s *Snapshot) { s.order.position["apps"] = 1 }, `group "apps" is at 2`},
		"names of groups":   {func(s *Snapshot) { s.order.names = s.order.names[1:] }, "not those of the groups"},
		"reset":             {func(s *Snapshot) { s.reset = 99 }, "after the last"},
		"document":          {func(s *Snapshot) { s.document = 0 }, "without its tick"},
		"generation":        {func(s *Snapshot) { s.generation = 0 }, "no generation"},
		"no names":          {func(s *Snapshot) { s.names = nil }, "no index of names"},
		"name missing":      {func(s *Snapshot) { delete(byStem(s), "foo") }, "not found by"},
		"group missing":     {func(s *Snapshot) { byStem(s)["bar"] = nil }, "not found by"},
		"names in disorder": {func(s *Snapshot) { slices.Reverse(byStem(s)["foo"]) }, "out of order"},
	} {
		t.Run(name, func(t *testing.T) {
			s := intact()
			test.breakIt(s)
			if err := checkInvariants(s); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want something of %q", err, test.want)
			}
		})
	}
}

// sequence is a server that changes, and a mapper that reads it in any order: reads end
// after others that began later, and fail.
type sequence struct {
	*history
	dice   *rand.Rand
	served string
	begun  []func()
	log    []string
}

// randomWords makes up what a server serves.
func randomWords(dice *rand.Rand) string {
	var all []string
	for _, group := range []string{"", "a", "a.b", "b"} {
		versions := []string{"v1", "v2", "v3"}
		dice.Shuffle(len(versions), func(i, j int) { versions[i], versions[j] = versions[j], versions[i] })
		for _, version := range versions[:dice.IntN(4)] {
			all = append(all, group+"/"+version+":"+pick(dice, []string{"Foo", "Bar", "Foo,Bar", "Foo=get", ""}))
		}
	}
	return strings.Join(all, " ")
}

// step is one event.
func (q *sequence) step() string {
	group, version := pick(q.dice, []string{"", "a", "a.b", "b", "z"}), pick(q.dice, []string{"v1", "v2", "v3", "v4"})
	served := q.served
	switch q.dice.IntN(11) {
	case 10:
		q.Snapshot = q.Whole(1-2*q.whole, q.tick())
		return fmt.Sprintf("%d subscribers", q.whole)
	case 0:
		q.served = randomWords(q.dice)
		return "served " + q.served
	case 1:
		q.resetAll()
		return "reset"
	case 2:
		q.resetGroup(group)
		return "reset of " + group
	case 3, 4:
		if ws := strings.Fields(served); len(ws) > 0 && oneIn(q.dice, 3) {
			i := q.dice.IntN(len(ws))
			ws[i], _, _ = strings.Cut(ws[i], ":")
			ws[i] += "!"
			served = strings.Join(ws, " ")
		}
		now, list := q.tick(), q.list(served)
		q.begin(func() { q.Snapshot = q.WithDocument(list, now) })
		return fmt.Sprintf("document at %d %s", now, served)
	case 5:
		now := q.tick()
		q.begin(func() { q.groupAt(now, group, versionsIn(served, group)...) })
		return fmt.Sprintf("list of %q at %d", group, now)
	default:
		word := wordOf(served, group+"/"+version)
		if oneIn(q.dice, 5) {
			word = group + "/" + version + "!"
		}
		now, from := q.tick(), q.Snapshot
		q.begin(func() { q.liveAt(word, now, from) })
		return fmt.Sprintf("version at %d %s", now, word)
	}
}

// begin begins a read, which ends now or later.
func (q *sequence) begin(end func()) {
	q.begun = append(q.begun, end)
	for len(q.begun) > 0 && !oneIn(q.dice, 4) {
		i := q.dice.IntN(len(q.begun))
		q.begun[i]()
		q.begun = slices.Delete(q.begun, i, i+1)
	}
}

// Whatever is read in whatever order, each snapshot is sound and answers as client-go does
// over the versions that are not gone, and none changes the one before.
func TestRandomSequencesKeepInvariants(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3, 4, uint64(time.Now().UnixNano())} {
		dice := rand.New(rand.NewPCG(seed, 1))
		for range 100 {
			q := &sequence{history: newHistory(oneIn(dice, 3), ""), dice: dice, served: randomWords(dice)}
			for range 40 {
				before, text := q.Snapshot, q.text()
				q.log = append(q.log, q.step())
				err := checkInvariants(q.Snapshot)
				if err == nil && !before.hasLost() && !q.hasLost() {
					err = cmp.Or(q.checkAnswers(), checkDiff(before, q.Snapshot))
				}
				if before.text() != text {
					err = fmt.Errorf("an event has changed the snapshot before it, from %s to %s", text, before.text())
				}
				if err != nil {
					t.Fatalf("seed %d: %v\nknown %s\nafter\n%s", seed, err, q.text(), strings.Join(q.log, "\n"))
				}
			}
		}
	}
}

// hasLost reports whether a version has a table that is not served: of before a reset.
func (s *Snapshot) hasLost() bool {
	return slices.ContainsFunc(s.groups, func(g *Group) bool {
		return slices.ContainsFunc(g.versions, func(v Version) bool { return v.Table != nil && s.table(g, &v) == nil })
	})
}

func (q *sequence) checkAnswers() error {
	if !oneIn(q.dice, 4) {
		return nil
	}
	doc := q.asDocument()
	library := restmapper.NewDiscoveryRESTMapper(doc.library())
	for range 4 {
		query := randomQuery(q.dice, doc)
		got, current := query.ask(q.Snapshot)
		expected := doc.expected(query, got, query.askLibrary(library))
		if current && isNoMatch(got.err) {
			expected = "never current"
		}
		if expected != "" {
			return fmt.Errorf("%v", &disagreement{doc, query, got, expected})
		}
	}
	return nil
}
