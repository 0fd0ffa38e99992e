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

// violated returns an error if one of the invariants does not hold.
func violated(invariants map[string]bool) error {
	for says, holds := range invariants {
		if !holds {
			return errors.New("not true: " + says)
		}
	}
	return nil
}

// checkInvariants returns what is wrong with s: where what follows from the groups is not
// what follows from them, or what is known of a version contradicts itself.
func checkInvariants(s *Snapshot) error {
	order := newIndex(s.groups).order
	if len(order.places) != len(s.groups) {
		return errors.New("two groups have one name")
	}

	var outdated []int
	undocumented := 0
	for i, g := range s.groups {
		if !s.groupCurrent(g) {
			outdated = append(outdated, i)
		}
		if err := s.checkGroup(g); err != nil {
			return fmt.Errorf("group %q: %w", g.name, err)
		}
		if s.exceedsDocument(g) {
			undocumented++
		}
	}

	if len(s.groups) > 0 && s.cache == nil {
		return errors.New("the groups have no index")
	}
	sameOrder := len(s.groups) == 0 ||
		maps.Equal(s.order.places, order.places) && slices.Equal(s.order.sorted, order.sorted)
	return violated(map[string]bool{
		"the index is that of the groups":                        sameOrder,
		"the outdated groups are those that are not current":     s.docSeq <= s.resetSeq || slices.Equal(s.outdated(), outdated),
		"no more groups than may be have more than the document": undocumented <= maxUndocumentedGroups,
		"news is no later than the document":                     s.newsSeq <= s.docSeq,
		"a document has its sequence number":                     (s.doc == nil) == (s.docSeq == 0),
		"a document has a generation":                            !s.HasDocument() || s.generation > 0,
	})
}

func (s *Snapshot) checkGroup(g *Group) error {
	documented := s.documented(g.name)
	again := *g
	again.versions = slices.Clone(g.versions)
	again.rank()
	isUnknown := func(v Version) bool { return g.indexOf(v.Name) < 0 }
	if err := violated(map[string]bool{
		"its ranks follow from its versions":          slices.Equal(g.ranked, again.ranked),
		"without an overlay it is the document's own": g.overlay != nil || g == documented,
		"it has each version of the document":         documented == nil || !slices.ContainsFunc(documented.versions, isUnknown),
		"something is known of it":                    len(g.versions) > 0 || documented != nil,
		"it has no more versions than may be":         len(g.versions)-documented.count() <= maxUndocumentedVersions,
		"it has the reads of each version":            g.overlay == nil || len(g.overlay.reads) == len(g.versions),
	}); err != nil {
		return err
	}
	for i := range g.versions {
		if err := s.checkVersion(g, i, again.versions[i].Table); err != nil {
			return fmt.Errorf("version %s: %w", g.versions[i].Name, err)
		}
	}
	return nil
}

// checkVersion returns what is wrong with a version of g. shared is the table that it has if it shares that of the
// version before it whenever both serve the same.
func (s *Snapshot) checkVersion(g *Group, i int, shared *Table) error {
	v, reads := g.versions[i], s.readsOf(g, i)
	answered, tried := reads.answered > 0, reads.lastTried() > 0
	known := !v.onlyListed() || reads.removed
	return violated(map[string]bool{
		"each version has a name of its own":            g.indexOf(v.Name) == i,
		"it shares the table of the version before it":  v.Table == shared,
		"what was removed has no table and no error":    !reads.removed || v.onlyListed(),
		"what was removed was tried":                    !reads.removed || reads.tried > 0,
		"what is served or removed was found by a read": answered || v.Table == nil && !reads.removed,
		"what a read has found is known":                !answered || known,
		"what has failed was tried":                     v.Err == nil || tried,
		"what was tried is known":                       !tried || known,
		"it was read no later than anything":            reads.answered <= max(reads.tried, s.docSeq),
	})
}

// randomHistory is a server that changes, and a mapper that reads it in any order: reads end
// after others that began later, and fail.
type randomHistory struct {
	*history
	dice         *rand.Rand
	servedWords  []string // words
	pendingReads []func()
	events       []string
}

// serve makes up what the server serves.
func (q *randomHistory) serve() {
	q.servedWords = nil
	for _, group := range []string{"", "a", "a.b", "b"} {
		versions := []string{"v1", "v2", "v3"}
		q.dice.Shuffle(len(versions), func(i, j int) { versions[i], versions[j] = versions[j], versions[i] })
		for _, version := range versions[:q.dice.IntN(4)] {
			kinds := pick(q.dice, []string{"Foo", "Bar", "Foo,Bar", "Foo=get", ""})
			q.servedWords = append(q.servedWords, group+"/"+version+":"+kinds)
		}
	}
}

// step is one event.
func (q *randomHistory) step() string {
	group, version := pick(q.dice, []string{"", "a", "a.b", "b", "z"}), pick(q.dice, []string{"v1", "v2", "v3", "v4"})
	switch q.dice.IntN(9) {
	case 0:
		q.serve()
		return fmt.Sprint("served ", q.servedWords)
	case 1:
		q.Snapshot = q.Reset(q.seq())
		return "reset"
	case 2, 3:
		served := slices.Clone(q.servedWords)
		if len(served) > 0 && oneIn(q.dice, 3) {
			i := q.dice.IntN(len(served))
			served[i], _, _ = strings.Cut(served[i], ":")
			served[i] += "!"
		}
		now, document := q.seq(), q.parse(strings.Join(served, " "))
		q.begin(func() { q.Snapshot = q.WithDocument(document, now) })
		return fmt.Sprintf("document at %d %q", now, served)
	case 4:
		var versions []string
		for _, word := range q.servedWords {
			if g, v := parseVersion(word); g == group {
				versions = append(versions, v.Name)
			}
		}
		now := q.seq()
		q.begin(func() { q.list(group, versions, now, q.Snapshot) })
		return fmt.Sprintf("list of %q at %d: %q", group, now, versions)
	default:
		word := group + "/" + version
		for _, served := range q.servedWords {
			if strings.HasPrefix(served, word+":") {
				word = served
			}
		}
		if oneIn(q.dice, 5) {
			word = group + "/" + version + "!"
		}
		now, from := q.seq(), q.Snapshot
		q.begin(func() { q.version(word, now, from) })
		return fmt.Sprintf("version at %d %s", now, word)
	}
}

// begin begins a read, which ends now or later.
func (q *randomHistory) begin(end func()) {
	q.pendingReads = append(q.pendingReads, end)
	for len(q.pendingReads) > 0 && !oneIn(q.dice, 4) {
		i := q.dice.IntN(len(q.pendingReads))
		q.pendingReads[i]()
		q.pendingReads = slices.Delete(q.pendingReads, i, i+1)
	}
}

// Whatever is read in whatever order, each snapshot is sound and answers as client-go does
// over the versions that were not removed, and none changes the one before.
func TestRandomSequencesKeepInvariants(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3, 4, uint64(time.Now().UnixNano())} {
		dice := rand.New(rand.NewPCG(seed, 1))
		for range 100 {
			q := &randomHistory{history: newHistory(oneIn(dice, 3), ""), dice: dice}
			q.serve()
			for range 40 {
				before, text := q.Snapshot, q.text()
				q.events = append(q.events, q.step())
				err := cmp.Or(checkInvariants(q.Snapshot), q.checkAnswers(before), checkDiff(before, q.Snapshot))
				if before.text() != text {
					err = fmt.Errorf("an event has changed the snapshot before it, from %s to %s", text, before.text())
				}
				if err != nil {
					t.Fatalf("seed %d: %v\nknown %s\nafter\n%s", seed, err, q.text(), strings.Join(q.events, "\n"))
				}
			}
		}
	}
}

// checkAnswers compares random answers with client-go's, and with those before. The generation grows with each
// answer that changes, also by order alone, except that of a version that was listed and is read for the first time.
func (q *randomHistory) checkAnswers(before *Snapshot) error {
	doc := q.asDocument()
	library := restmapper.NewDiscoveryRESTMapper(doc)
	still := before.Generation() == q.Generation() && doc.complete() && before.asDocument().complete()
	for range 4 {
		query := randomQuery(q.dice, doc)
		if _, _, err := query.compare(q.Snapshot, library); err != nil {
			return err
		}
		was, _, _ := query.ask(before)
		is, _, _ := query.ask(q.Snapshot)
		if still && was != is {
			return fmt.Errorf("%v: the generation is still %d, and the answer has changed from %s to %s",
				query, q.Generation(), was, is)
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
		return fmt.Errorf("subscribers are notified of\n%q\nwant\n%q", got, want)
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
			for i, r := range v.Table.allRows() {
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
