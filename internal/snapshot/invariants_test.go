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

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/restmapper"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// checkInvariants returns what is wrong with s: where what follows from the groups is not
// what follows from them, or what is known of a version contradicts itself.
func checkInvariants(s *Snapshot) error {
	order := indexed(s.groups).order
	if len(order.position) != len(s.groups) {
		return errors.New("two groups of one name")
	}
	left := 0
	var open []int
	for i, g := range s.groups {
		if !s.settled(g) {
			open = append(open, i)
		}
		if err := s.checkGroup(g); err != nil {
			return fmt.Errorf("group %q: %w", g.name, err)
		}
		if g.hasMore() {
			left++
		}
	}
	switch {
	case len(s.groups) > 0 && (s.lazy == nil || !maps.Equal(s.order.position, order.position) || !slices.Equal(s.order.names, order.names)):
		return errors.New("the index is not that of the groups")
	case s.read > s.reset && !slices.Equal(s.open(), open):
		return fmt.Errorf("the open groups are %v, not %v", open, s.open())
	case left > mostLeft:
		return fmt.Errorf("%d groups have more than the document", left)
	case s.reset > s.lastReset:
		return fmt.Errorf("reset at %d, after the last at %d", s.reset, s.lastReset)
	case s.news > s.read:
		return fmt.Errorf("news at %d, after the last read at %d", s.news, s.read)
	case (s.doc == nil) != (s.read == 0) || s.Read() && s.generation == 0:
		return errors.New("a document without its tick or generation")
	}
	return nil
}

func (s *Snapshot) checkGroup(g *Group) error {
	again := *g
	again.versions = slices.Clone(g.versions)
	again.rank()
	var document *Group
	if s.doc != nil {
		document = s.doc.Group(g.name)
	}
	over := cmp.Or(g.over, &overlay{document: g})
	switch {
	case !slices.Equal(g.ranked, again.ranked):
		return fmt.Errorf("ranked %v, not %v", again.ranked, g.ranked)
	case over.document != document:
		return errors.New("of another document")
	case !again.isLeftOf(over):
		return errors.New("nothing is known of it")
	case over.reset > 0 && over.listed > over.reset && !slices.ContainsFunc(g.versions, func(v Version) bool { return over.awaits(&v) }):
		return errors.New("a reset is pending, and all was read since")
	case len(g.versions)-document.count() > mostUnnamed:
		return fmt.Errorf("%d versions", len(g.versions))
	}
	names := map[string]bool{}
	for i, v := range g.versions {
		switch {
		case names[v.Name]:
			return fmt.Errorf("two versions %q", v.Name)
		case v.Gone && (v.Table != nil || v.Err != nil || v.Asked == 0):
			return fmt.Errorf("%s is gone, and has a table or an error, or was never asked", v.Name)
		case v.Table != again.versions[i].Table:
			return fmt.Errorf("%s does not share the table of the version before it", v.Name)
		case g.over == nil && (v.Read > 0 || v.Asked > 0 || v.named > 0):
			return fmt.Errorf("%s has ticks, and all mappers share it", v.Name)
		case g.over != nil && v.Read == 0 && (v.Table != nil || v.Gone), v.Read > 0 && !v.known() && !v.Gone:
			return fmt.Errorf("%s was read at %d, and what is known of it is not of that", v.Name, v.Read)
		case v.Read > max(v.Asked, s.read):
			return fmt.Errorf("%s was read at %d, after all reads", v.Name, v.Read)
		}
		names[v.Name] = true
	}
	return nil
}

// isLeftOf is isLeft, also for a group of the document.
func (g *Group) isLeftOf(over *overlay) bool {
	g.over = over
	return g.isLeft()
}

// TestCheckInvariants breaks a snapshot in every way that checkInvariants looks for: one with
// a group that was read live, one with a reset, one dropped, and one of the document alone.
func TestCheckInvariants(t *testing.T) {
	intact := func() *Snapshot {
		const doc = "/v2:Foo /v1:Foo,Foos apps.example/v1:Foo apps.example/v2:Foo apps.example/v3! apps/v1!"
		h := newHistory(false, doc+" z/v1:Foo")
		h.play(t, "doc "+doc, "live apps.example/v1:Bar apps.example/v2 apps.example/v3!", "reset", "reset apps")
		return h.Snapshot
	}
	if err := cmp.Or(checkInvariants(intact()), checkInvariants(new(Snapshot))); err != nil {
		t.Fatalf("intact: %v", err)
	}
	core := func(s *Snapshot) *Group { // a copy: all mappers share the document's
		g := *s.groups[0]
		g.versions, g.ranked, s.groups[0] = slices.Clone(g.versions), slices.Clone(g.ranked), &g
		s.doc.groups = slices.Clone(s.doc.groups)
		s.doc.groups[0] = &g
		return &g
	}
	for want, breakIt := range map[string]func(*Snapshot){
		"two groups":      func(s *Snapshot) { s.groups[1].name = "" },
		"the index":       func(s *Snapshot) { s.order.position["apps"] = 1 },
		"the open groups": func(s *Snapshot) { s.reset = 0; s.open(); s.lazy.open.Load().positions = []int{0} },
		"more than the docum": func(s *Snapshot) {
			for range mostLeft {
				s.groups = append(s.groups, leftover(s))
			}
			s.index = indexed(s.groups)
		},
		"after the last at":   func(s *Snapshot) { s.reset = 99 },
		"after the last read": func(s *Snapshot) { s.news = 99 },
		"without its tick":    func(s *Snapshot) { s.doc, s.groups = nil, nil },
		"or generation":       func(s *Snapshot) { s.generation = 0 },
		"ranked":              func(s *Snapshot) { g := core(s); g.ranked = g.ranked[:1] },
		"of another document": func(s *Snapshot) { s.doc = intact().doc },
		"nothing is known of": func(s *Snapshot) { s.groups[3].versions, s.groups[3].ranked = nil, nil },
		"and all was read": func(s *Snapshot) {
			g := s.groups[1]
			g.over.reset, g.over.listed, g.versions[2].Err = 1, 9, nil
		},
		"versions": func(s *Snapshot) {
			g := s.groups[1]
			for range mostUnnamed + 1 {
				g.versions = append(g.versions, Version{Name: "v9"})
			}
			g.rank()
		},
		"two versions": func(s *Snapshot) {
			g := core(s)
			g.versions[0].Name = "v1"
			g.rank()
		},
		"is gone":         func(s *Snapshot) { s.groups[1].versions[1].Table = tableOf("") },
		"or an error":     func(s *Snapshot) { s.groups[1].versions[1].Err = errors.New("unread") },
		"never asked":     func(s *Snapshot) { s.groups[1].versions[1].Asked = 0 },
		"is not of that":  func(s *Snapshot) { s.groups[1].versions[0].Read = 0 },
		"after all reads": func(s *Snapshot) { s.groups[1].versions[0].Read = 99 },
		"has ticks":       func(s *Snapshot) { core(s).versions[0].named = 1 },
		"share the table": func(s *Snapshot) {
			g := s.groups[3]
			g.versions = append(g.versions, Version{Name: "v2", Table: NewTable(g.versions[0].Table.rows), Read: 1})
			g.ranked = []int32{0, 1}
		},
	} {
		s := intact()
		breakIt(s)
		if err := checkInvariants(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want something of %q", err, want)
		}
	}
}

// leftover is a group that a live read has found, and the document does not have.
func leftover(s *Snapshot) *Group {
	g := s.fork(nil, fmt.Sprintf("left%d", len(s.groups)))
	g.versions = []Version{{Name: "v1", Table: tableOf("Foo"), Read: 1, Asked: 1}}
	g.rank()
	return g
}

// sequence is a server that changes, and a mapper that reads it in any order: reads end
// after others that began later, and fail.
type sequence struct {
	*history
	dice   *rand.Rand
	served []string // words
	begun  []func()
	log    []string
}

// serve makes up what the server serves.
func (q *sequence) serve() {
	q.served = nil
	for _, group := range []string{"", "a", "a.b", "b"} {
		versions := []string{"v1", "v2", "v3"}
		q.dice.Shuffle(len(versions), func(i, j int) { versions[i], versions[j] = versions[j], versions[i] })
		for _, version := range versions[:q.dice.IntN(4)] {
			q.served = append(q.served, group+"/"+version+":"+pick(q.dice, []string{"Foo", "Bar", "Foo,Bar", "Foo=get", ""}))
		}
	}
}

// step is one event.
func (q *sequence) step() string {
	group, version := pick(q.dice, []string{"", "a", "a.b", "b", "z"}), pick(q.dice, []string{"v1", "v2", "v3", "v4"})
	switch q.dice.IntN(10) {
	case 0:
		q.serve()
		return fmt.Sprint("served ", q.served)
	case 1:
		q.Snapshot = q.Reset(q.tick())
		return "reset"
	case 2:
		q.Snapshot = q.ResetGroup(group, q.tick())
		return "reset of " + group
	case 3, 4:
		served := slices.Clone(q.served)
		if len(served) > 0 && oneIn(q.dice, 3) {
			i := q.dice.IntN(len(served))
			served[i], _, _ = strings.Cut(served[i], ":")
			served[i] += "!"
		}
		now, document := q.tick(), q.parse(strings.Join(served, " "))
		q.begin(func() { q.Snapshot = q.WithDocument(document, now) })
		return fmt.Sprintf("document at %d %q", now, served)
	case 5:
		var versions []string
		for _, word := range q.served {
			if g, v := parseVersion(word); g == group {
				versions = append(versions, v.Name)
			}
		}
		now := q.tick()
		q.begin(func() { q.list(group, versions, now, q.Snapshot) })
		return fmt.Sprintf("list of %q at %d: %q", group, now, versions)
	default:
		word := group + "/" + version
		for _, served := range q.served {
			if strings.HasPrefix(served, word+":") {
				word = served
			}
		}
		if oneIn(q.dice, 5) {
			word = group + "/" + version + "!"
		}
		now, from := q.tick(), q.Snapshot
		q.begin(func() { q.version(word, now, from) })
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
			q := &sequence{history: newHistory(oneIn(dice, 3), ""), dice: dice}
			q.serve()
			for range 40 {
				before, text := q.Snapshot, q.text()
				q.log = append(q.log, q.step())
				err := cmp.Or(checkInvariants(q.Snapshot), q.checkAnswers(), q.checkGeneration(before), checkDiff(before, q.Snapshot))
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

// checkGeneration checks that no answer moves without the generation, also by order alone: but that
// of a version that was listed, and is read for the first time.
func (q *sequence) checkGeneration(before *Snapshot) error {
	if before.Generation() != q.Generation() || !before.allRead() || !q.allRead() {
		return nil
	}
	doc := q.asDocument()
	for range 4 {
		query := randomQuery(q.dice, doc)
		was, _, _ := query.ask(before)
		is, _, _ := query.ask(q.Snapshot)
		if was != is {
			return fmt.Errorf("%+v: the generation is still %d, and the answer has moved from %v to %v", query, q.Generation(), was, is)
		}
	}
	return nil
}

// allRead reports whether each version that is served was read.
func (s *Snapshot) allRead() bool {
	return !slices.ContainsFunc(s.groups, func(g *Group) bool {
		return slices.ContainsFunc(g.versions, func(v Version) bool { return v.Table == nil && !v.Gone })
	})
}

func (q *sequence) checkAnswers() error {
	if !oneIn(q.dice, 4) {
		return nil
	}
	doc := q.asDocument()
	library := restmapper.NewDiscoveryRESTMapper(doc)
	for range 4 {
		if _, _, err := randomQuery(q.dice, doc).compare(q.Snapshot, library); err != nil {
			return err
		}
	}
	return nil
}

// checkDiff compares the changes from a to b with what lookups find in both.
func checkDiff(a, b *Snapshot) error {
	before, was := a.served()
	now, is := b.served()
	var want, got []string
	for _, gvk := range before {
		if _, stays := is[gvk]; !stays {
			want = append(want, fmt.Sprint(ChangeRemoved, " ", gvk, was[gvk].as))
		}
	}
	for _, gvk := range now {
		old, existed := was[gvk]
		switch {
		case !existed:
			want = append(want, fmt.Sprint(ChangeAdded, " ", gvk, is[gvk].as))
		case old.as != is[gvk].as, is[gvk].best && !old.best: // that a kind loses this place is not listed
			want = append(want, fmt.Sprint(ChangeChanged, " ", gvk, is[gvk].as))
		}
	}
	for _, c := range Diff(a, b) {
		got = append(got, fmt.Sprint(c.Type, " ", c.Mapping.GroupVersionKind, asServed(&c.Mapping, c.Verbs)))
	}
	if !slices.Equal(want, got) {
		return fmt.Errorf("subscribers are told\n%q\nwant\n%q", got, want)
	}
	return nil
}

// servedKind is how lookups find a kind in a version.
type servedKind struct {
	as   string
	best bool // they find it there, too, if they name no version
}

// served lists the kinds of s in the server's order; of one listed twice, the last counts.
func (s *Snapshot) served() (order []schema.GroupVersionKind, kinds map[schema.GroupVersionKind]servedKind) {
	kinds = map[schema.GroupVersionKind]servedKind{}
	for _, g := range s.groups {
		for _, v := range g.versions {
			for i, r := range v.Table.all() {
				if slices.ContainsFunc(v.Table.rows[i+1:], func(later Resource) bool { return later.Kind == r.Kind }) {
					continue
				}
				gvk := schema.GroupVersionKind{Group: g.name, Version: v.Name, Kind: r.Kind}
				found, _, _ := s.RESTMapping(gvk.GroupKind(), []string{v.Name})
				best, _, _ := s.RESTMapping(gvk.GroupKind(), nil)
				order = append(order, gvk)
				kinds[gvk] = servedKind{asServed(found, r.Verbs), best.GroupVersionKind == gvk}
			}
		}
	}
	return order, kinds
}

func asServed(m *meta.RESTMapping, verbs Verbs) string {
	return fmt.Sprint(" as ", m.Resource.Resource, " of a ", m.Scope.Name(), verbs.Names())
}
