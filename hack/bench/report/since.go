// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
)

// sinceTargets compare with an earlier run: nothing may cost a tenth more than it
// did. The two runs may be of different machines, so times are first divided by
// what the same run measured of something that this project has no part in.
func (s *samples) sinceTargets() []target {
	if s.before == nil {
		return nil
	}
	since := func(what string, m measurements) target {
		return target{what: what + ": against " + s.before.config["date"], limit: 1.1, unit: "×"}.worst(m)
	}
	const floor2000 = "Hit/groups=2000/lookup=floor/mapper=floor"
	return []target{
		since("hit ÷ floor, mean of 4 sizes", s.hitsSince),
		since("heap of a mapper", s.sizesSince("OnceHeap/mapper_of=own_server", sizes, heap, "")),
		since("cold first lookup ÷ stock's", s.sizesSince("Cold", discoverySizes, perOp, "stock")),
		since("refresh, nothing changed ÷ stock's", s.sizesSince("Refresh/changed=none", discoverySizes, perOp, "stock")),
		since("publishing after a live read ÷ floor", s.since("", "Publish/after=live", perOp, floor2000)),
		since("publishing after a bulk read ÷ floor", s.since("", "Publish/after=bulk", perOp, floor2000)),
	}
}

// hitsSince has the geometric mean over the sizes of each lookup: of 52 single
// figures of a noisy machine some are always a tenth up.
func (s *samples) hitsSince(yield func(string, float64) bool) {
	for _, l := range allLookups() {
		product := 1.0
		for _, groups := range sizes {
			product *= s.change(hit(groups, l, "ours"), perOp, hit(groups, "floor", "floor"))
		}
		if !yield(l, math.Pow(product, 1/float64(len(sizes)))) {
			return
		}
	}
}

// sizesSince compares ours; by is the mapper that it is divided by, if any.
func (s *samples) sizesSince(benchmark string, groups []int, unit, by string) measurements {
	return func(yield func(string, float64) bool) {
		for _, n := range groups {
			base := ""
			if by != "" {
				base = of(benchmark, n, by)
			}
			if !yield(fmt.Sprintf("%d groups", n), s.change(of(benchmark, n, "ours"), unit, base)) {
				return
			}
		}
	}
}

func (s *samples) since(where, name, unit, base string) measurements {
	return func(yield func(string, float64) bool) { yield(where, s.change(name, unit, base)) }
}

// change is how many times as much it is now as it was then; base is the name of
// what it is divided by in each run, or empty.
func (s *samples) change(name, unit, base string) float64 {
	now, then := s.median(name, unit), s.before.median(name, unit)
	if base != "" {
		now, then = now/s.median(base, unit), then/s.before.median(base, unit)
	}
	return now / then
}
