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
)

// checkInvariants returns what is wrong with s: where what follows from the groups is not
// what follows from them, or what is known of a version contradicts itself.
func checkInvariants(s *Snapshot) error {
	again, order := *s, index(s.groups).order
	if len(order.position) != len(s.groups) {
		return errors.New("two groups of one name")
	}
	for _, g := range s.groups {
		if err := s.checkGroup(g); err != nil {
			return fmt.Errorf("group %q: %w", g.name, err)
		}
	}
	again.follow(s)
	switch {
	case len(s.groups) > 0 && (s.names == nil || !maps.Equal(s.order.position, order.position) || !slices.Equal(s.order.names, order.names)):
		return errors.New("the index is not that of the groups")
	case s.untried != again.untried || s.apart != again.apart || s.marked != again.marked:
		return fmt.Errorf("%d groups are untried, %d apart and %d marked; not %d, %d and %d",
			again.untried, again.apart, again.marked, s.untried, s.apart, s.marked)
	case s.reset > s.anyReset:
		return fmt.Errorf("reset at %d, after the last at %d", s.reset, s.anyReset)
	case (s.doc == nil) != (s.document == 0) || s.Read() && s.generation == 0:
		return errors.New("a document without its tick or generation")
	}
	return nil
}

func (s *Snapshot) checkGroup(g *Group) error {
	again := *g
	again.versions = slices.Clone(g.versions)
	again.index()
	var said *Group
	if s.doc != nil {
		said = s.doc.Group(g.name)
	}
	switch {
	case g.tried != again.tried || !slices.Equal(g.ranked, again.ranked):
		return fmt.Errorf("tried %v and ranked %v, not %v and %v", again.tried, again.ranked, g.tried, g.ranked)
	case g.Said() != said:
		return errors.New("of another document")
	case g.apart && said == nil && len(g.versions) == 0 && g.reset == 0:
		return errors.New("nothing is known of it")
	}
	names := map[string]bool{}
	for i, v := range g.versions {
		switch {
		case names[v.Name]:
			return fmt.Errorf("two versions %q", v.Name)
		case v.Gone && (v.Table != nil || v.Tried == 0):
			return fmt.Errorf("%s is gone, and has a table or was never tried", v.Name)
		case v.Read > 0 && v.Table == nil && !v.Gone:
			return fmt.Errorf("%s was read at %d, and nothing is known of it", v.Name, v.Read)
		case v.Table != again.versions[i].Table:
			return fmt.Errorf("%s does not share the table of the version before it", v.Name)
		case g.apart && v.Table != nil && v.Read == 0 && (said.Version(v.Name) == nil || !said.Version(v.Name).Table.equal(v.Table)):
			return fmt.Errorf("%s is not the document's, and has no tick", v.Name)
		}
		names[v.Name] = true
	}
	return nil
}

// TestCheckInvariants breaks a snapshot in every way that checkInvariants looks for: one with
// a group that was read live, one with a reset, one dropped, and one of the document alone.
func TestCheckInvariants(t *testing.T) {
	intact := func() *Snapshot {
		const doc = "/v2:Foo /v1:Foo,Foos apps.example/v1:Foo apps.example/v2:Foo apps.example/v3! apps/v1!"
		h := newHistory(false, doc+" z/v1:Foo")
		h.document(doc)
		h.live("apps.example/v1:Bar apps.example/v2 apps.example/v3!")
		h.resetAll()
		h.resetGroup("apps")
		return h.Snapshot
	}
	if err := cmp.Or(checkInvariants(intact()), checkInvariants(new(Snapshot))); err != nil {
		t.Fatalf("intact: %v", err)
	}
	for want, breakIt := range map[string]func(*Snapshot){
		"two groups":          func(s *Snapshot) { s.groups[1].name = "" },
		"the index":           func(s *Snapshot) { s.order.position["apps"] = 1 },
		"untried":             func(s *Snapshot) { s.untried++ },
		"apart":               func(s *Snapshot) { s.apart-- },
		"marked":              func(s *Snapshot) { s.marked++ },
		"after the last":      func(s *Snapshot) { s.reset = 99 },
		"without its tick":    func(s *Snapshot) { s.document = 0 },
		"or generation":       func(s *Snapshot) { s.generation = 0 },
		"tried true":          func(s *Snapshot) { s.groups[0].tried = false },
		"ranked":              func(s *Snapshot) { s.groups[0].ranked = s.groups[0].ranked[:1] },
		"of another document": func(s *Snapshot) { s.doc = intact().doc },
		"nothing is known of": func(s *Snapshot) { s.groups[3].versions, s.groups[3].ranked = nil, nil },
		"two versions": func(s *Snapshot) {
			s.groups[0].versions[0].Name, s.groups[0].ranked[0], s.groups[0].ranked[1] = "v1", 0, 1
		},
		"is gone":            func(s *Snapshot) { s.groups[1].versions[1].Table = tableOf() },
		"never tried":        func(s *Snapshot) { s.groups[1].versions[1].Tried = 0 },
		"was read at":        func(s *Snapshot) { s.groups[1].versions[0].Table, s.groups[1].tried = nil, false },
		"share the table":    func(s *Snapshot) { g := s.groups[0]; g.versions[1].Table = NewTable(g.versions[0].Table.rows) },
		"not the document's": func(s *Snapshot) { s.groups[1].versions[0].Read = 0 },
	} {
		s := intact()
		breakIt(s)
		if err := checkInvariants(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want something of %q", err, want)
		}
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
	switch q.dice.IntN(10) {
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
		q.begin(func() { q.groupAt(now, q.Snapshot, group, versionsIn(served, group)...) })
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
		return slices.ContainsFunc(g.versions, func(v Version) bool { return v.Table != nil && s.lost(g, &v) })
	})
}

func (q *sequence) checkAnswers() error {
	if !oneIn(q.dice, 4) {
		return nil
	}
	doc := q.asDocument()
	library := doc.library()
	for range 4 {
		if _, _, err := randomQuery(q.dice, doc).compare(q.Snapshot, library); err != nil {
			return err
		}
	}
	return nil
}
