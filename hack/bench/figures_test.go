// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var raw = flag.String("raw", "", "the raw.txt that hack/bench.sh has written")

// A target is a figure that was promised: a median, or a quotient of two.
type target struct {
	what  string
	most  float64
	least float64 // instead of most
	of    string  // "NAME UNIT"; in it and in by are $each and $groups, of which the worst counts
	by    string  // the divisor: the same, or only the part of NAME that differs; empty for no quotient
	each  []string

	groups []string
	mean   bool // take the geometric mean of the groups first
}

// Lookups with one answer that name all they can, those with one answer that leave out the
// version, and those with many answers.
var (
	sizes       = []string{"10", "100", "500", "2000"}
	modeNames   = []string{"aggregated", "legacy"}
	singles     = []string{"RESTMapping+version", "RESTMapping", "KindFor+version", "ResourceFor+version"}
	versionless = []string{"KindFor", "ResourceFor"}
	lists       = []string{"RESTMappings+version", "RESTMappings", "KindsFor+version", "KindsFor", "ResourcesFor+version", "ResourcesFor"}
	singular    = []string{"ResourceSingularizer"}
)

// What several targets are about.
const (
	hit      = "Hit/groups=$groups/lookup=$each/mapper=ours ns/op"
	allocs   = "Hit/groups=$groups/lookup=$each/mapper=ours allocs/op"
	largeHit = "Hit/groups=2000/lookup=$each/mapper=ours ns/op"
	stockHit = "Hit/groups=100/lookup=$each/mapper=stock ns/op"
)

var targets = []target{
	{what: "hit with one answer: time ÷ floor", most: 1.5, of: hit, by: "Hit/groups=$groups/lookup=floor/mapper=floor ns/op", each: singles, groups: sizes},
	{what: "hit with one answer: allocations", most: 1, of: allocs, each: singles, groups: sizes},
	{what: "hit with a list: allocations", most: 2, of: allocs, each: lists, groups: sizes},
	{what: "hit with one answer: 2,000 groups ÷ 10 groups", most: 1.5, of: largeHit, by: "groups=10", each: singles},
	{what: "hit with a list: 2,000 groups ÷ 10 groups", most: 1.5, of: largeHit, by: "groups=10", each: lists},
	{what: "resource without a version, one answer: 2,000 groups ÷ 10 groups", most: 1.5, of: largeHit, by: "groups=10", each: versionless},
	{what: "ResourceSingularizer: 2,000 groups ÷ 10 groups", most: 1.5, of: largeHit, by: "groups=10", each: singular},
	{what: "hit with one answer at 100 groups: stock ÷ ours", least: 200, of: stockHit, by: "mapper=ours", each: singles},
	{what: "any other hit at 100 groups: stock ÷ ours", least: 200, of: stockHit, by: "mapper=ours", each: slices.Concat(versionless, lists)},
	{what: "ResourceSingularizer at 100 groups: stock ÷ ours", least: 200, of: stockHit, by: "mapper=ours", each: singular},
	{what: "hit with one answer: throughput on 2 cores ÷ 1 core, mean of 4 sizes", least: 1.7, of: hit, by: "HitParallel/groups=$groups/lookup=$each/mapper=ours ns/op", each: singles, groups: sizes, mean: true},

	{what: "heap of a mapper at 500 groups: ours ÷ stock", most: 1.0 / 14, of: "OnceHeap/mapper_of=own_server/groups=500/mapper=ours B/mapper", by: "mapper=stock"},
	{what: "publishing 1 changed group of 2,000 after a live read", most: 200e3, of: "Publish/after=live ns/op"},
	{what: "publishing 1 changed group of 2,000 after a bulk read", most: 200e3, of: "Publish/after=bulk ns/op"},

	{what: "cold first lookup at 500 groups: ours ÷ stock", most: 1.0 / 8, of: "Cold/groups=500/mapper=ours ns/op", by: "mapper=stock"},
	{what: "miss of an absent group, no version: 2,000 groups ÷ 10 groups", most: 1.5, of: "Miss/version=none/groups=2000/mapper=ours ns/op", by: "groups=10"},
	{what: "miss of an absent group, version given: 2,000 groups ÷ 10 groups", most: 1.5, of: "Miss/version=given/groups=2000/mapper=ours ns/op", by: "groups=10"},
	{what: "miss of an absent group, no version, at 500 groups: ours ÷ stock", most: 0.1, of: "Miss/version=none/groups=500/mapper=ours ns/op", by: "mapper=stock"},
	{what: "refresh with 1 of 500 groups changed: ours ÷ stock", most: 0.12, of: "Refresh/changed=one/groups=500/mapper=ours ns/op", by: "mapper=stock"},
	{what: "20 mappers on a server with 500 groups: heap of each further one, ours ÷ stock", most: 1.0 / 5000, of: "OnceFleet/groups=500/mapper=ours further-B/mapper", by: "mapper=stock"},
	{what: "200 concurrent misses of one kind: requests", most: 3, of: "OnceStorm/groups=500/mapper=ours requests/op"},
	{what: "p99 of hits at 100 groups: during a slow discovery ÷ without", most: 2, of: "OnceLatency/groups=100/mapper=ours busy-p99-ns", by: "OnceLatency/groups=100/mapper=ours quiet-p99-ns"},
	{what: "p99 of hits at 500 groups: during a slow discovery ÷ without", most: 2, of: "OnceLatency/groups=500/mapper=ours busy-p99-ns", by: "OnceLatency/groups=500/mapper=ours quiet-p99-ns"},

	// A lookup in one group does not wait for those in others.
	{what: "10 misses in 10 absent groups, version given: latencies of the server", most: 2.5, of: "OnceApart/mode=$each/version=given/groups=100/mapper=ours latencies", each: modeNames},
	{what: "10 misses in 10 absent groups, no version: latencies of the server", most: 5, of: "OnceApart/mode=$each/version=none/groups=100/mapper=ours latencies", each: modeNames},

	// Many clusters in one process: 32 MiB for 1,000 of them.
	{what: "1,000 clusters of 300 groups, 80 % of the clusters equal: heap of each mapper", most: 32 << 20 / 1000, of: "OnceClusters/equal=clusters/groups=300/mapper=ours B/mapper"},
	{what: "1,000 clusters of 300 groups, 80 % of the groups equal: heap of each mapper", most: 32 << 20 / 1000, of: "OnceClusters/equal=groups/groups=300/mapper=ours B/mapper"},
	{what: "300 clients a round on 1,000 CRDs, fork: discovery requests after the first round", most: 4, of: "OnceReplay/of=provider-kubernetes-543/mapper=fork later-requests"},
	{what: "the same: heap of a round's clients, fork ÷ stock", most: 0.1, of: "OnceReplay/of=provider-kubernetes-543/mapper=fork heap-B", by: "mapper=stock"},
}

// samples are the measured values, by "NAME UNIT": NAME is without the word Benchmark and
// the number of processors.
type samples map[string][]float64

var processors = regexp.MustCompile(`-\d+$`)

func read(text string) samples {
	s := samples{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := processors.ReplaceAllString(strings.TrimPrefix(fields[0], "Benchmark"), "")
		for i := 2; i+1 < len(fields); i += 2 {
			v, _ := strconv.ParseFloat(fields[i], 64) // the testing package has written it
			s[name+" "+fields[i+1]] = append(s[name+" "+fields[i+1]], v)
		}
	}
	return s
}

// median is NaN for what was not measured.
func (s samples) median(what string) float64 {
	sorted := slices.Sorted(slices.Values(s[what]))
	n := len(sorted)
	if n == 0 {
		return math.NaN()
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// value is the figure of a target for one of each and one of groups.
func (s samples) value(t target, each, groups string) float64 {
	named := strings.NewReplacer("$each", each, "$groups", groups)
	of, by := named.Replace(t.of), named.Replace(t.by)
	if by == "" {
		return s.median(of)
	}
	if key, _, _ := strings.Cut(by, "="); !strings.Contains(key, "/") {
		by = regexp.MustCompile(key+"=[^/ ]*").ReplaceAllLiteralString(of, by)
	}
	return s.median(of) / s.median(by)
}

// row is a row of the page: what was measured, the worst of all, and whether that is good
// enough.
func (s samples) row(t target) string {
	worst, where := math.NaN(), ""
	consider := func(v float64, at string) {
		worse := v > worst
		if t.least > 0 {
			worse = v < worst
		}
		if where == "" || worse || math.IsNaN(v) {
			worst, where = v, at
		}
	}
	for _, each := range append(t.each, "")[:max(1, len(t.each))] {
		mean := 1.0
		for _, groups := range append(t.groups, "")[:max(1, len(t.groups))] {
			v := s.value(t, each, groups)
			if mean *= math.Pow(v, 1/float64(max(1, len(t.groups)))); !t.mean {
				consider(v, strings.TrimSpace(each+" "+groups))
			}
		}
		if t.mean {
			consider(mean, each)
		}
	}
	unit := t.of[strings.LastIndex(t.of, " ")+1:]
	if t.by != "" {
		unit = "×"
	}
	bound, mark := "≤ "+say(t.most, unit), "✓"
	if t.least > 0 {
		bound = "≥ " + say(t.least, unit)
	}
	switch {
	case math.IsNaN(worst):
		return fmt.Sprintf("| %s | not measured | %s | – |\n", t.what, bound)
	case t.least > 0 && worst < t.least, t.least == 0 && worst > t.most:
		mark = "✗"
	}
	if where != "" {
		where = " (" + where + ")"
	}
	return fmt.Sprintf("| %s | %s%s | %s | %s |\n", t.what, say(worst, unit), where, bound, mark)
}

// say returns the text of a value.
func say(v float64, unit string) string {
	switch {
	case unit == "×":
		return fmt.Sprintf("%.3g ×", v)
	case strings.HasSuffix(unit, "ns") || unit == "ns/op":
		return fmt.Sprintf("%.3g µs", v/1e3)
	case strings.HasSuffix(unit, "B") || strings.HasSuffix(unit, "B/mapper"):
		return fmt.Sprintf("%.3g KiB", v/1024)
	}
	return fmt.Sprintf("%.3g", v)
}

const page = `# Benchmark results

Written by ` + "`hack/bench.sh`" + `: medians of interleaved rounds. [benchstat.txt](benchstat.txt) has all measurements of that run, and how much
they vary. What each benchmark does is in the comments of [hack/bench](..).

Machine: %s, %s cores, %s/%s, %s, %s.

- **ours**: this project's mapper. **stock**: controller-runtime's own, %s. **deferred**: client-go's
  ` + "`DeferredDiscoveryRESTMapper`" + ` on a cache in memory, %s.
- **floor**: one lookup in a Go map by group and kind, and a copy of the mapping for the caller.
- All talk to the same API server in memory, which costs no network. Groups have 2 versions with 3 kinds each.

![time of a hit](hit.svg)

A figure of several lookups or sizes shows the worst of them.

| figure | measured | target |  |
| --- | ---: | ---: | ---: |
`

// TestPage writes the page and the plot beside raw.txt.
func TestPage(t *testing.T) {
	if *raw == "" {
		t.Skip("hack/bench.sh runs it with -raw")
	}
	text, err := os.ReadFile(*raw)
	if err != nil {
		t.Fatal(err)
	}
	var head []any
	for _, key := range []string{"cpu", "cores", "goos", "goarch", "go", "date", "controller-runtime", "client-go"} {
		_, after, _ := bytes.Cut(append([]byte("\n"), text...), []byte("\n"+key+": "))
		value, _, _ := bytes.Cut(after, []byte("\n"))
		head = append(head, string(value))
	}
	s, filled := read(string(text)), fmt.Sprintf(page, head...)
	for _, target := range targets {
		filled += s.row(target)
	}
	fmt.Print(filled)
	dir := filepath.Dir(*raw)
	if err := os.WriteFile(filepath.Join(dir, "README.md"), []byte(filled), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.drawHit(filepath.Join(dir, "hit.svg")); err != nil {
		t.Fatal(err)
	}
}
