// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/restmapper"
)

// sequence is a server that changes, what a mapper knows of it after each of its
// reads, and the model of that. What is served live is in words; the document has
// what was live at some time.
type sequence struct {
	*history
	dice     *rand.Rand
	model    *model
	served   string // live
	document string // what the document says now
	begun    map[string]begun
	log      []string
}

// begun is a live read of a group that has not ended, and what was known when it began.
type begun struct {
	at    Tick
	from  *Snapshot
	words []string // of the document's
}

// randomWords makes up what a server serves.
func randomWords(dice *rand.Rand) string {
	var all []string
	for _, group := range []string{"", "a", "a.b", "b"} {
		if oneIn(dice, 5) {
			continue
		}
		versions := []string{"v1", "v2", "v3"}
		dice.Shuffle(len(versions), func(i, j int) { versions[i], versions[j] = versions[j], versions[i] })
		for _, version := range versions[:1+dice.IntN(3)] {
			all = append(all, group+"/"+version+":"+pick(dice, []string{"Foo", "Bar", "Foo,Bar", ""}))
		}
	}
	return strings.Join(all, " ")
}

// TestRandomSequences compares with the model after each of many random events.
func TestRandomSequences(t *testing.T) {
	seeds := []uint64{1, 2, 3, 4, 5, 6, 7, uint64(time.Now().UnixNano())}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			dice := rand.New(rand.NewPCG(seed, 1))
			for range 40 {
				q := newSequence(dice)
				for range 40 {
					before, text := q.Snapshot, q.text()
					q.step()
					err := q.check(before)
					if err == nil && before.text() != text {
						err = fmt.Errorf("an event has changed the snapshot before it, from %s to %s", text, before.text())
					}
					if err != nil {
						t.Fatalf("%v\nafter\n%s", err, strings.Join(q.log, "\n"))
					}
				}
			}
		})
	}
	t.Logf("the last seed was random: %v", seeds)
}

func newSequence(dice *rand.Rand) *sequence {
	q := &sequence{
		history: newHistory(oneIn(dice, 3), ""), dice: dice, model: &model{groups: map[string]*modelGroup{}},
		served: randomWords(dice), begun: map[string]begun{},
	}
	q.document = q.served
	return q
}

// step is one event, which it logs.
func (q *sequence) step() {
	group, version := pick(q.dice, []string{"", "a", "a.b", "b", "z"}), pick(q.dice, []string{"v1", "v2", "v3", "v4"})
	note := func(format string, args ...any) {
		q.log = append(q.log, fmt.Sprintf("%d ", q.now)+fmt.Sprintf(format, args...))
	}
	switch q.dice.IntN(16) {
	case 0:
		q.served = randomWords(q.dice)
		note("served %s", q.served)
	case 1:
		q.served = q.changed(q.served)
		note("served %s", q.served)
	case 2, 3:
		q.document = q.served
	case 4:
		q.resetAll()
		note("reset")
	case 5:
		q.resetGroup(group)
		note("reset of %q", group)
	case 6, 7, 8:
		note("document %s", q.readDocument())
	case 9:
		q.Snapshot = q.WithoutDropped()
		q.model.withoutDropped()
		note("without dropped")
	case 10:
		if _, ok := q.begun[group]; !ok {
			q.begun[group] = begun{q.tick(), q.Snapshot, q.model.group(group).words}
			note("a read of %q begins", group)
		}
	case 11, 12:
		note("list of %q %v", group, q.readList(group))
	default:
		note("version %s/%s %s", group, version, q.readVersion(group, version))
	}
	q.model.forgetEmpty()
}

// changed changes one version, or takes it away.
func (q *sequence) changed(text string) string {
	words := strings.Fields(text)
	if len(words) == 0 {
		return text
	}
	i := q.dice.IntN(len(words))
	if oneIn(q.dice, 2) {
		return strings.Join(slices.Delete(words, i, i+1), " ")
	}
	name, _, _ := strings.Cut(words[i], ":")
	words[i] = name + ":" + pick(q.dice, []string{"Foo", "Bar", "Foo,Bar", ""})
	return strings.Join(words, " ")
}

// readDocument reads it, or half of it, with some versions marked as stale.
func (q *sequence) readDocument() string {
	text := q.document
	if words := strings.Fields(text); len(words) > 0 && oneIn(q.dice, 3) {
		i := q.dice.IntN(len(words))
		name, _, _ := strings.Cut(words[i], ":")
		words[i] = name + "!"
		text = strings.Join(words, " ")
	}
	now := q.tick()
	core, named := now, now
	if q.Read() && oneIn(q.dice, 3) {
		core, text = 0, q.joined(q.wordsOf(true), strings.Fields(text))
	} else if q.Read() && oneIn(q.dice, 3) {
		named, text = 0, q.joined(strings.Fields(text), q.wordsOf(false))
	}
	q.Snapshot = q.WithDocument(q.list(text), core, named)
	if q.legacy {
		text = listedOnly(text)
	}
	q.model.document(text, core, named)
	return fmt.Sprint(text, " ", core, " ", named)
}

// wordsOf returns the words of the last document of one half.
func (q *sequence) wordsOf(core bool) []string {
	var all []string
	for _, g := range q.doc.groups {
		if (g.name == "") == core {
			all = append(all, q.model.group(g.name).words...)
		}
	}
	return all
}

// joined is a document of the core half of one and the named half of another.
func (q *sequence) joined(core, named []string) string {
	ofCore := func(word string) bool { return strings.HasPrefix(word, "/") }
	core = slices.DeleteFunc(slices.Clone(core), func(word string) bool { return !ofCore(word) })
	named = slices.DeleteFunc(slices.Clone(named), ofCore)
	return strings.Join(slices.Concat(core, named), " ")
}

// listedOnly takes the kinds and the marks away.
func listedOnly(text string) string {
	words := strings.Fields(text)
	for i, word := range words {
		words[i], _, _ = strings.Cut(strings.TrimSuffix(word, "!"), ":")
	}
	return strings.Join(words, " ")
}

// began is when a read of a group began that ends now, and what was known then.
func (q *sequence) began(group string) begun {
	b, ok := q.begun[group]
	if !ok {
		return begun{q.tick(), q.Snapshot, q.model.group(group).words}
	}
	delete(q.begun, group)
	return b
}

// overtaken ends a read that a document has overtaken, and reports whether one has.
func (q *sequence) overtaken(r Read, b begun) bool {
	next, overtaken := q.Overtaken(b.from, r, b.at)
	if q.Snapshot = next; overtaken {
		q.model.overtaken(r, b.at)
	}
	return overtaken
}

func (q *sequence) readList(group string) []string {
	var versions []string
	for _, word := range strings.Fields(q.served) {
		if g, v := parseVersion(word); g == group {
			versions = append(versions, v.Name)
		}
	}
	b, preferred := q.began(group), ""
	if len(versions) > 0 {
		preferred = versions[0]
	}
	if !q.overtaken(listOf(group), b) {
		q.Snapshot = q.WithList(group, versions, preferred, b.at)
		q.model.lists(group, slices.Clone(versions), b.at)
	}
	return versions
}

func (q *sequence) readVersion(group, version string) string {
	b := q.began(group)
	if q.overtaken(versionOf(group, version), b) {
		return "overtaken"
	}
	if oneIn(q.dice, 5) {
		q.Snapshot = q.WithFailedVersion(group, version, errUnread, b.at)
		q.model.failed(group, version, b.at)
		return "failed"
	}
	for _, word := range strings.Fields(q.served) {
		if g, v := parseVersion(word); g == group && v.Name == version {
			_, kinds, _ := strings.Cut(word, ":")
			q.liveAt(word, b.at)
			q.model.live(group, version, true, kinds, b.at)
			return kinds
		}
	}
	q.liveAt(group+"/"+version, b.at)
	q.model.live(group, version, false, "", b.at)
	return "gone"
}

// check compares with the model, and the snapshot with the one before.
func (q *sequence) check(before *Snapshot) error {
	if err := checkInvariants(q.Snapshot); err != nil {
		return err
	}
	if err := checkTicks(q.Snapshot, q.now); err != nil {
		return err
	}
	got := strings.Fields(q.text())
	slices.Sort(got)
	if diff := cmp.Diff(strings.Join(q.model.text(), " "), strings.Join(got, " ")); diff != "" {
		return fmt.Errorf("what is known (-model +snapshot):\n%s", diff)
	}
	if err := checkDiff(before, q.Snapshot); err != nil || !oneIn(q.dice, 4) {
		return err
	}
	return q.checkAnswers()
}

// checkAnswers compares the answers from what is known with those of client-go's
// mapper over the same groups.
func (q *sequence) checkAnswers() error {
	doc := q.asDocument()
	library := restmapper.NewDiscoveryRESTMapper(doc.library())
	for range 4 {
		query := randomQuery(q.dice, doc)
		got, settled := query.ask(q.Snapshot)
		expected := doc.expected(query, got, query.askLibrary(library))
		if settled && isNoMatch(got.err) {
			expected = "never settled"
		}
		if expected != "" {
			return fmt.Errorf("%v", &disagreement{doc, query, got, expected})
		}
	}
	return nil
}
