// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestRandomLookups makes lookups after random pasts, while the server stays as it
// is, and holds what they end in against what the server serves.
func TestRandomLookups(t *testing.T) {
	seeds := []uint64{1, 2, 3, 4, 5, 6, 7, uint64(time.Now().UnixNano())}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			dice := rand.New(rand.NewPCG(seed, 2))
			for range 60 {
				q := newSequence(dice)
				for range 2 + dice.IntN(30) {
					q.step()
				}
				if q.legacy {
					q.document = q.served // a list of versions is as new as the versions
				}
				for range 20 {
					if err := newTrial(q).run(); err != nil {
						t.Fatalf("%v\nafter\n%s", err, strings.Join(q.log, "\n"))
					}
				}
			}
		})
	}
	t.Logf("the last seed was random: %v", seeds)
}

// trial is a lookup after a random past, and after a reset perhaps.
type trial struct {
	h     history // a copy
	on    server
	q     Query
	reset string // "all", "group", or none
	cold  bool
	known bool // the group that is asked for, at the beginning
}

func newTrial(q *sequence) *trial {
	dice := q.dice
	t := &trial{h: *q.history, on: server{document: q.document, live: q.served}}
	t.q = Query{Group: pick(dice, []string{"", "a", "a.b", "b", "z"}), Name: pick(dice, []string{"Foo", "Bar", "Baz"})}
	if t.q.ByResource = oneIn(dice, 3); t.q.ByResource {
		t.q.Name = strings.ToLower(t.q.Name) + "s"
	}
	for range dice.IntN(3) {
		if version := pick(dice, []string{"v1", "v2", "v3", "v4"}); len(t.q.Versions) == 0 || !t.q.ByResource && t.q.Versions[0] != version {
			t.q.Versions = append(t.q.Versions, version)
		}
	}
	switch t.reset = pick(dice, []string{"", "all", "group"}); t.reset {
	case "all":
		t.h.resetAll()
	case "group":
		t.h.resetGroup(t.q.Group)
	}
	t.cold, t.known = !t.h.Read(), t.h.Group(t.q.Group) != nil
	return t
}

func (t *trial) run() error {
	p := t.h.lookup(t.on, t.q)
	why := ""
	switch answer := p.answer(); {
	case len(p.reads) == 20:
		why = "there is no end to it"
	case slices.ContainsFunc(p.mostRead(), func(times int) bool { return times > mostPasses }):
		why = "too many reads of one thing"
	case answer == "no match" && len(p.reads) == 0:
		why = "no match, and no read"
	case answer == "no match":
		why = t.doubtAbsence(p)
	case answer != "failed" && t.reset != "":
		why = t.doubtPresence(p, answer)
	}
	if err := checkInvariants(p.Snapshot); err != nil {
		why += err.Error()
	}
	if why == "" {
		return nil
	}
	return fmt.Errorf("%s: %+v, reset %q, cold %v, known %v, legacy %v\ndocument %s\nlive     %s\nreads    %s → %s",
		why, t.q, t.reset, t.cold, t.known, t.h.legacy, t.on.document, t.on.live, strings.Join(p.reads, "; "), p.answer())
}

func (p *proof) mostRead() (times []int) {
	for _, o := range p.progress.Done {
		times = append(times, o.Times)
	}
	return times
}

// doubtAbsence returns why p should not have ended in "no match", or "".
func (t *trial) doubtAbsence(p *proof) string {
	inDocument, live := serving(t.on.document, t.q), serving(t.on.live, t.q)
	versioned := len(t.q.Versions) > 0 && !t.q.anyGroup()
	many := t.q.byPrefix() || t.q.anyGroup()
	goneAll := t.known && p.Group(t.q.Group) == nil // every version that was known, live, and the document has none
	inReset := slices.ContainsFunc(live, func(gv string) bool { return strings.HasPrefix(gv, t.q.Group+"/") })
	switch {
	// Lookups in any group do not read unknown groups.
	case t.reset == "group" && inReset && (p.Group(t.q.Group) != nil || !t.q.anyGroup()) && !p.Partial(t.q, p.progress):
		return "the group that was reset has it live"
	case many || t.cold || !versioned && (!t.known || goneAll):
		if both := slices.DeleteFunc(inDocument, func(gv string) bool { return !slices.Contains(live, gv) }); len(both) > 0 {
			return "document and live have it"
		}
	case versioned || !p.Partial(t.q, p.progress):
		if len(live) > 0 {
			return "the live group has it"
		}
	}
	return ""
}

// doubtPresence returns why p should not have ended in answer after a reset, or "".
func (t *trial) doubtPresence(p *proof, answer string) string {
	inDocument, live := serving(t.on.document, t.q), serving(t.on.live, t.q)
	group, _, _ := strings.Cut(answer, "/")
	switch {
	case t.reset == "group" && group == t.q.Group && !t.cold && t.known && !slices.Contains(live, answer):
		return "the live group does not have it"
	case t.reset == "all" && !slices.Contains(live, answer) && !slices.Contains(inDocument, answer):
		return "nobody has it"
	case t.reset == "all" && len(p.reads) == 0:
		return "nothing was read"
	}
	return ""
}

// serving lists the versions in words that have what q looks for.
func serving(text string, q Query) (found []string) {
	for _, word := range strings.Fields(text) {
		group, v := parseVersion(word)
		switch {
		case !v.Table.serves(q) || !q.wants(v.Name):
		case group == q.Group, q.anyGroup(), q.byPrefix() && strings.HasPrefix(group, q.Group):
			found = append(found, group+"/"+v.Name)
		}
	}
	return found
}
