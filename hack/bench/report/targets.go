// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"slices"
)

// A target is a figure that was promised and what was measured. Both are plain
// numbers in the unit given, which is "×" for a ratio.
type target struct {
	what    string
	limit   float64
	atLeast bool // limit is a minimum
	unit    string

	measured float64
	where    string // of several, the one shown: the worst
}

func (t target) met() bool {
	if t.atLeast {
		return t.measured >= t.limit
	}
	return t.measured <= t.limit // not for NaN
}

func (t target) mark() string {
	switch {
	case math.IsNaN(t.measured):
		return "–"
	case t.met():
		return "✓"
	default:
		return "✗"
	}
}

func (t target) bound() string {
	if t.atLeast {
		return "≥ " + t.format(t.limit)
	}
	return "≤ " + t.format(t.limit)
}

func (t target) format(v float64) string {
	switch {
	case math.IsNaN(v):
		return "not measured"
	case t.unit == "s":
		return seconds(v)
	case t.unit == "B":
		return bytesOf(v)
	case t.unit == "":
		return number(v)
	default:
		return number(v) + " " + t.unit
	}
}

// worst fills in the worst of several measurements. One that is missing makes
// the whole unmeasured.
func (t target) worst(measure func(yield func(where string, value float64) bool)) target {
	t.measured = math.NaN()
	first := true
	for where, value := range measure {
		worse := t.atLeast && value < t.measured || !t.atLeast && value > t.measured
		if first || worse || math.IsNaN(value) {
			t.measured, t.where = value, where
		}
		if math.IsNaN(value) {
			break
		}
		first = false
	}
	return t
}

type measurements = func(yield func(string, float64) bool)

// targets are the figures of the design, in the order of the table.
func (s *samples) targets() []target {
	return slices.Concat(s.hitTargets(), s.memoryTargets(), s.discoveryTargets(), s.apartTargets(), s.fleetTargets(), s.sinceTargets())
}

func (s *samples) hitTargets() []target {
	most := func(what string, limit float64, unit string, m measurements) target {
		return target{what: what, limit: limit, unit: unit}.worst(m)
	}
	least := func(what string, limit float64, m measurements) target {
		return target{what: what, limit: limit, unit: "×", atLeast: true}.worst(m)
	}
	return []target{
		most("hit with one answer: time ÷ floor", 2.5, "×", s.againstFloor(singles)),
		most("hit with one answer: allocations", 1, "", s.allocations(singles)),
		most("hit with a list: allocations", 2, "", s.allocations(lists)),
		most("hit with one answer: 2,000 groups ÷ 10 groups", 1.5, "×", s.growth(singles)),
		most("hit with a list: 2,000 groups ÷ 10 groups", 1.5, "×", s.growth(lists)),
		most("resource without a version, one answer: 2,000 groups ÷ 10 groups", 1.5, "×", s.growth(versionless)),
		most("ResourceSingularizer: 2,000 groups ÷ 10 groups", 1.5, "×", s.growth([]string{singularizer})),
		least("hit with one answer at 100 groups: stock ÷ ours", 200, s.gain(100, singles)),
		least("any other hit at 100 groups: stock ÷ ours", 200, s.gain(100, slices.Concat(versionless, lists))),
		least("ResourceSingularizer at 100 groups: stock ÷ ours", 200, s.gain(100, []string{singularizer})),
		least("hit with one answer: throughput on 2 cores ÷ 1 core, mean of 4 sizes", 1.7, s.scaling(singles)),
	}
}

func (s *samples) againstFloor(lookups []string) measurements {
	return func(yield func(string, float64) bool) {
		for _, groups := range sizes {
			floor := s.median(hit(groups, "floor", "floor"), perOp)
			for _, l := range lookups {
				if !yield(fmt.Sprintf("%s, %d groups", l, groups), s.median(hit(groups, l, "ours"), perOp)/floor) {
					return
				}
			}
		}
	}
}

func (s *samples) allocations(lookups []string) measurements {
	return func(yield func(string, float64) bool) {
		for _, groups := range sizes {
			for _, l := range lookups {
				if !yield(fmt.Sprintf("%s, %d groups", l, groups), s.median(hit(groups, l, "ours"), allocs)) {
					return
				}
			}
		}
	}
}

func (s *samples) growth(lookups []string) measurements {
	return func(yield func(string, float64) bool) {
		for _, l := range lookups {
			if !yield(l, s.median(hit(2000, l, "ours"), perOp)/s.median(hit(10, l, "ours"), perOp)) {
				return
			}
		}
	}
}

func (s *samples) gain(groups int, lookups []string) measurements {
	return func(yield func(string, float64) bool) {
		for _, l := range lookups {
			if !yield(l, s.median(hit(groups, l, "stock"), perOp)/s.median(hit(groups, l, "ours"), perOp)) {
				return
			}
		}
	}
}

// scaling is the geometric mean over the sizes, on which it cannot depend.
func (s *samples) scaling(lookups []string) measurements {
	return func(yield func(string, float64) bool) {
		for _, l := range lookups {
			if !yield(l, s.scalingOf(l, "ours")) {
				return
			}
		}
	}
}

func (s *samples) scalingOf(lookup, mapper string) float64 {
	product := 1.0
	for _, groups := range sizes {
		product *= s.median(hit(groups, lookup, mapper), perOp) / s.median(hitParallel(groups, lookup, mapper), perOp)
	}
	return math.Pow(product, 1/float64(len(sizes)))
}

func (s *samples) memoryTargets() []target {
	return []target{
		s.ratio("heap of a mapper at 500 groups: ours ÷ stock", 0.1, of("OnceHeap/mapper_of=own_server", 500, "ours"), of("OnceHeap/mapper_of=own_server", 500, "stock"), heap),
		s.value("publishing 1 changed group of 2,000 after a live read", 200e-6, "s", "Publish/after=live", perOp),
		s.value("publishing 1 changed group of 2,000 after a bulk read", 200e-6, "s", "Publish/after=bulk", perOp),
	}
}

func (s *samples) discoveryTargets() []target {
	const absent, oneChanged, fleet, latency = "Miss/version=none", "Refresh/changed=one", "OnceFleet", "OnceLatency"
	list := []target{
		s.ratio("cold first lookup at 500 groups: ours ÷ stock", 0.35, of("Cold", 500, "ours"), of("Cold", 500, "stock"), perOp),
		s.ratio("miss of an absent group, no version: 2,000 groups ÷ 10 groups", 1.5, of(absent, 2000, "ours"), of(absent, 10, "ours"), perOp),
		s.ratio("miss of an absent group, version given: 2,000 groups ÷ 10 groups", 1.5, of("Miss/version=given", 2000, "ours"), of("Miss/version=given", 10, "ours"), perOp),
		s.ratio("miss of an absent group, no version, at 500 groups: ours ÷ stock", 0.1, of(absent, 500, "ours"), of(absent, 500, "stock"), perOp),
		s.ratio("refresh with 1 of 500 groups changed: ours ÷ stock", 0.12, of(oneChanged, 500, "ours"), of(oneChanged, 500, "stock"), perOp),
		s.value("20 mappers on a server with 500 groups: heap of each further one", 32<<10, "B", of(fleet, 500, "ours"), "further-B/mapper"),
		s.value("20 mappers on a server with 500 groups: document bytes of each further one", 0, "B", of(fleet, 500, "ours"), "further-doc-B/mapper"),
		s.value("200 concurrent misses of one kind: requests", 3, "", of("OnceStorm", 500, "ours"), requests),
	}
	for _, groups := range []int{100, 500} {
		name := of(latency, groups, "ours")
		list = append(list, target{
			what: fmt.Sprintf("p99 of hits at %d groups: during a slow discovery ÷ without", groups), limit: 2, unit: "×",
			measured: s.median(name, "busy-p99-sec") / s.median(name, "quiet-p99-sec"),
		})
	}
	return list
}

// apartTargets say that a lookup in one group does not wait for those in others.
func (s *samples) apartTargets() []target {
	reset := func(mode string) string { return of("OnceReset/mode="+mode, apartGroups, "ours") }
	return []target{
		target{what: "10 misses in 10 absent groups, version given: latencies of the server", limit: 2.5}.worst(s.apart("given")),
		target{what: "10 misses in 10 absent groups, no version: latencies of the server", limit: 5}.worst(s.apart("none")),
		target{what: "miss in a group while another hangs, which three goroutines ask: time ÷ undisturbed", limit: 1.5, unit: "×"}.worst(s.beside),
		s.value("known kind after a reset while 3 groups hang: requests, the document's two", 2, "", reset("aggregated"), requests),
		s.value("the same, legacy: requests, the document's and the kind's version", 3, "", reset("legacy"), requests),
		s.value("the same, legacy: latencies of the server", 4, "", reset("legacy"), latencies),
	}
}

func (s *samples) apart(version string) measurements {
	return func(yield func(string, float64) bool) {
		for _, mode := range modes {
			if !yield(mode, s.median(of("OnceApart/mode="+mode+"/version="+version, apartGroups, "ours"), latencies)) {
				return
			}
		}
	}
}

func (s *samples) beside(yield func(string, float64) bool) {
	for _, version := range versionsAsked {
		name := of("OnceBeside/version="+version.name, apartGroups, "ours")
		if !yield(version.text, s.median(name, disturbed)/s.median(name, undisturbed)) {
			return
		}
	}
}

func (s *samples) ratio(what string, limit float64, name, base, unit string) target {
	return target{what: what, limit: limit, unit: "×", measured: s.median(name, unit) / s.median(base, unit)}
}

func (s *samples) value(what string, limit float64, unit, name, sampled string) target {
	return target{what: what, limit: limit, unit: unit, measured: s.median(name, sampled)}
}
