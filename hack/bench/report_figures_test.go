// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"math"
	"regexp"
	"slices"
	"strings"
)

// A target is a figure that was promised: a median, or a quotient of two.
type target struct {
	what  string
	most  float64
	least float64 // instead of most
	of    string  // "NAME UNIT", see median
	by    string  // the divisor: the same, or only the parts of NAME that differ; empty for no quotient

	// The values of $each and $groups in of and by. The page shows the worst of
	// all.
	each, groups []string
	mean         bool // take the geometric mean of the groups first
}

// What several targets are about.
const (
	hit      = "Hit/groups=$groups/lookup=$each/mapper=ours sec/op"
	allocs   = "Hit/groups=$groups/lookup=$each/mapper=ours allocs/op"
	largeHit = "Hit/groups=2000/lookup=$each/mapper=ours sec/op"
	stockHit = "Hit/groups=100/lookup=$each/mapper=stock sec/op"
	onTwo    = "HitParallel/groups=$groups/lookup=$each/mapper=ours sec/op"
	ofFloor  = "lookup=floor mapper=floor"
)

// targets are the figures of the design.
var targets = []target{
	{what: "hit with one answer: time ÷ floor", most: 2.5, of: hit, by: ofFloor, each: singles, groups: sizes},
	{what: "hit with one answer: allocations", most: 1, of: allocs, each: singles, groups: sizes},
	{what: "hit with a list: allocations", most: 2, of: allocs, each: lists, groups: sizes},
	{what: "hit with one answer: 2,000 groups ÷ 10 groups", most: 1.5, of: largeHit, by: "groups=10", each: singles},
	{what: "hit with a list: 2,000 groups ÷ 10 groups", most: 1.5, of: largeHit, by: "groups=10", each: lists},
	{what: "resource without a version, one answer: 2,000 groups ÷ 10 groups", most: 1.5, of: largeHit, by: "groups=10", each: versionless},
	{what: "ResourceSingularizer: 2,000 groups ÷ 10 groups", most: 1.5, of: largeHit, by: "groups=10", each: singularizer},
	{what: "hit with one answer at 100 groups: stock ÷ ours", least: 200, of: stockHit, by: "mapper=ours", each: singles},
	{what: "any other hit at 100 groups: stock ÷ ours", least: 200, of: stockHit, by: "mapper=ours", each: slices.Concat(versionless, lists)},
	{what: "ResourceSingularizer at 100 groups: stock ÷ ours", least: 200, of: stockHit, by: "mapper=ours", each: singularizer},
	{what: "hit with one answer: throughput on 2 cores ÷ 1 core, mean of 4 sizes", least: 1.7, of: hit, by: onTwo, each: singles, groups: sizes, mean: true},

	{what: "heap of a mapper at 500 groups: ours ÷ stock", most: 0.1, of: "OnceHeap/mapper_of=own_server/groups=500/mapper=ours B/mapper", by: "mapper=stock"},
	{what: "publishing 1 changed group of 2,000 after a live read", most: 200e-6, of: "Publish/after=live sec/op"},
	{what: "publishing 1 changed group of 2,000 after a bulk read", most: 200e-6, of: "Publish/after=bulk sec/op"},

	{what: "cold first lookup at 500 groups: ours ÷ stock", most: 0.35, of: "Cold/groups=500/mapper=ours sec/op", by: "mapper=stock"},
	{what: "miss of an absent group, no version: 2,000 groups ÷ 10 groups", most: 1.5, of: "Miss/version=none/groups=2000/mapper=ours sec/op", by: "groups=10"},
	{what: "miss of an absent group, version given: 2,000 groups ÷ 10 groups", most: 1.5, of: "Miss/version=given/groups=2000/mapper=ours sec/op", by: "groups=10"},
	{what: "miss of an absent group, no version, at 500 groups: ours ÷ stock", most: 0.1, of: "Miss/version=none/groups=500/mapper=ours sec/op", by: "mapper=stock"},
	{what: "refresh with 1 of 500 groups changed: ours ÷ stock", most: 0.12, of: "Refresh/changed=one/groups=500/mapper=ours sec/op", by: "mapper=stock"},
	{what: "20 mappers on a server with 500 groups: heap of each further one", most: 32 << 10, of: "OnceFleet/groups=500/mapper=ours further-B/mapper"},
	{what: "200 concurrent misses of one kind: requests", most: 3, of: "OnceStorm/groups=500/mapper=ours requests/op"},
	{what: "p99 of hits at 100 groups: during a slow discovery ÷ without", most: 2, of: "OnceLatency/groups=100/mapper=ours busy-p99-sec", by: "OnceLatency/groups=100/mapper=ours quiet-p99-sec"},
	{what: "p99 of hits at 500 groups: during a slow discovery ÷ without", most: 2, of: "OnceLatency/groups=500/mapper=ours busy-p99-sec", by: "OnceLatency/groups=500/mapper=ours quiet-p99-sec"},

	// A lookup in one group does not wait for those in others.
	{what: "10 misses in 10 absent groups, version given: latencies of the server", most: 2.5, of: "OnceApart/mode=$each/version=given/groups=100/mapper=ours latencies", each: modeNames},
	{what: "10 misses in 10 absent groups, no version: latencies of the server", most: 5, of: "OnceApart/mode=$each/version=none/groups=100/mapper=ours latencies", each: modeNames},
	{what: "miss, no version, while three goroutines ask a group that hangs: time ÷ undisturbed", most: 1.5, of: "OnceBeside/version=none/groups=100/mapper=ours disturbed-sec", by: "OnceBeside/version=none/groups=100/mapper=ours undisturbed-sec"},
	{what: "miss, version given, while three goroutines ask a group that hangs: time ÷ undisturbed", most: 1.5, of: "OnceBeside/version=given/groups=100/mapper=ours disturbed-sec", by: "OnceBeside/version=given/groups=100/mapper=ours undisturbed-sec"},
	{what: "known kind after a reset while 3 groups hang: requests, the document's two", most: 2, of: "OnceReset/mode=aggregated/groups=100/mapper=ours requests/op"},
	{what: "the same, legacy: requests, the document's and the kind's version", most: 3, of: "OnceReset/mode=legacy/groups=100/mapper=ours requests/op"},
	{what: "the same, legacy: latencies of the server", most: 4, of: "OnceReset/mode=legacy/groups=100/mapper=ours latencies"},

	// Many clusters in one process.
	{what: "1,000 clusters of 300 groups, 80 % of the clusters equal: heap of all mappers", most: 32 << 20, of: "OnceClusters/equal=clusters/groups=300/mapper=ours 1000*B/mapper"},
	{what: "1,000 clusters of 300 groups, 80 % of the groups equal: heap of all mappers", most: 32 << 20, of: "OnceClusters/equal=groups/groups=300/mapper=ours 1000*B/mapper"},
	{what: "300 clients a round on 1,000 CRDs, fork: discovery requests after the first round", most: 4, of: "OnceReplay/of=provider-kubernetes-543/mapper=fork later-requests"},
	{what: "the same: heap of a round's clients, fork ÷ stock", most: 0.1, of: "OnceReplay/of=provider-kubernetes-543/mapper=fork heap-B", by: "mapper=stock"},
}

// A figure is a line about a target.
type figure struct{ What, Measured, Bound, Mark string }

const reached = "✓"

// Figures are in the order of the design.
func (s *samples) Figures() []figure {
	var figures []figure
	for _, t := range targets {
		measured, where := s.worst(t)
		f := figure{What: t.what, Measured: t.say(measured), Bound: "≤ " + t.say(t.most), Mark: reached}
		if t.least > 0 {
			f.Bound = "≥ " + t.say(t.least)
		}
		if where != "" && !math.IsNaN(measured) {
			f.Measured += " (" + where + ")"
		}
		switch {
		case math.IsNaN(measured):
			f.Measured, f.Mark = "not measured", "–"
		case t.least > 0 && measured < t.least, t.least == 0 && measured > t.most:
			f.Mark = "✗"
		}
		figures = append(figures, f)
	}
	return figures
}

func (t target) say(v float64) string {
	if t.by != "" {
		return number(v) + " ×"
	}
	return inUnit(t.of, v)
}

// worst is the worst value of a target, and where it is. It is NaN if any value is
// missing.
func (s *samples) worst(t target) (worst float64, where string) {
	worst = math.Inf(-1)
	if t.least > 0 {
		worst = math.Inf(1)
	}
	consider := func(v float64, at string) {
		next := max(worst, v)
		if t.least > 0 {
			next = min(worst, v)
		}
		if next != worst {
			worst, where = next, at
		}
	}
	for _, each := range orNone(t.each) {
		mean := 1.0
		for _, groups := range orNone(t.groups) {
			v := s.quotient(t, each, groups)
			mean *= math.Pow(v, 1/float64(len(sizes)))
			if !t.mean {
				consider(v, at(each, groups))
			}
		}
		if t.mean {
			consider(mean, each)
		}
	}
	return worst, where
}

func orNone(list []string) []string {
	if len(list) == 0 {
		return []string{""}
	}
	return list
}

func at(each, groups string) string {
	switch {
	case groups == "":
		return each
	case each == "":
		return groups + " groups"
	}
	return each + ", " + groups + " groups"
}

func (s *samples) quotient(t target, each, groups string) float64 {
	named := strings.NewReplacer("$each", each, "$groups", groups)
	of := named.Replace(t.of)
	switch {
	case t.by == "":
		return s.median(of)
	case strings.Contains(t.by, "/"):
		return s.median(of) / s.median(named.Replace(t.by))
	}
	by := of
	for part := range strings.FieldsSeq(t.by) {
		key, _, _ := strings.Cut(part, "=")
		by = regexp.MustCompile(key+"=[^/ ]*").ReplaceAllLiteralString(by, part)
	}
	return s.median(of) / s.median(by)
}
