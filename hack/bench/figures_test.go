// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
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

// A target is a figure that was promised: a median, or a quotient of two. Of all that match of,
// the worst counts.
type target struct {
	what  string
	most  float64
	least float64 // instead of most
	of    string  // a pattern of "NAME UNIT"
	by    string  // "OLD NEW": the divisor has NEW for OLD in its name; empty for no quotient
	mean  bool    // take the geometric mean of all sizes first
}

// Lookups with one answer that name all they can, those with one answer that leave out the
// version, and those with many answers.
const (
	singles     = `(RESTMapping|RESTMapping.version|KindFor.version|ResourceFor.version)`
	versionless = `(KindFor|ResourceFor)`
	lists       = `(RESTMappings|KindsFor|ResourcesFor)(.version)?`
	singular    = `ResourceSingularizer`
)

var targets = []target{
	{what: "hit with one answer: time ÷ floor", most: 1.5, of: `Hit/groups=\d+/lookup=` + singles + `/mapper=ours ns/op`, by: "lookup=.*/mapper=ours lookup=floor/mapper=floor"},
	{what: "hit with one answer: allocations", most: 1, of: `Hit/groups=\d+/lookup=` + singles + `/mapper=ours allocs/op`},
	{what: "hit with a list: allocations", most: 2, of: `Hit/groups=\d+/lookup=` + lists + `/mapper=ours allocs/op`},
	{what: "hit with one answer: 2,000 groups ÷ 10 groups", most: 1.5, of: `Hit/groups=2000/lookup=` + singles + `/mapper=ours ns/op`, by: "groups=2000 groups=10"},
	{what: "hit with a list: 2,000 groups ÷ 10 groups", most: 1.5, of: `Hit/groups=2000/lookup=` + lists + `/mapper=ours ns/op`, by: "groups=2000 groups=10"},
	{what: "resource without a version, one answer: 2,000 groups ÷ 10 groups", most: 1.5, of: `Hit/groups=2000/lookup=` + versionless + `/mapper=ours ns/op`, by: "groups=2000 groups=10"},
	{what: "ResourceSingularizer: 2,000 groups ÷ 10 groups", most: 1.5, of: `Hit/groups=2000/lookup=` + singular + `/mapper=ours ns/op`, by: "groups=2000 groups=10"},
	{what: "hit with one answer at 100 groups: stock ÷ ours", least: 200, of: `Hit/groups=100/lookup=` + singles + `/mapper=stock ns/op`, by: "mapper=stock mapper=ours"},
	{what: "any other hit at 100 groups: stock ÷ ours", least: 200, of: `Hit/groups=100/lookup=(` + versionless + `|` + lists + `)/mapper=stock ns/op`, by: "mapper=stock mapper=ours"},
	{what: "ResourceSingularizer at 100 groups: stock ÷ ours", least: 200, of: `Hit/groups=100/lookup=` + singular + `/mapper=stock ns/op`, by: "mapper=stock mapper=ours"},
	{what: "hit with one answer: throughput on 2 cores ÷ 1 core, mean of 4 sizes", least: 1.7, mean: true, of: `Hit/groups=\d+/lookup=` + singles + `/mapper=ours ns/op`, by: "^Hit HitParallel"},

	{what: "heap of a mapper at 500 groups: ours ÷ stock", most: 1.0 / 14, of: `OnceHeap/mapper_of=own_server/groups=500/mapper=ours B/mapper`, by: "mapper=ours mapper=stock"},
	{what: "publishing 1 changed group of 2,000 after a live read", most: 200e3, of: `Publish/after=live ns/op`},
	{what: "publishing 1 changed group of 2,000 after a bulk read", most: 200e3, of: `Publish/after=bulk ns/op`},

	{what: "cold first lookup at 500 groups: ours ÷ stock", most: 1.0 / 8, of: `Cold/groups=500/mapper=ours ns/op`, by: "mapper=ours mapper=stock"},
	{what: "miss of an absent group, no version: 2,000 groups ÷ 10 groups", most: 1.5, of: `Miss/version=none/groups=2000/mapper=ours ns/op`, by: "groups=2000 groups=10"},
	{what: "miss of an absent group, version given: 2,000 groups ÷ 10 groups", most: 1.5, of: `Miss/version=given/groups=2000/mapper=ours ns/op`, by: "groups=2000 groups=10"},
	{what: "miss of an absent group, no version, at 500 groups: ours ÷ stock", most: 0.1, of: `Miss/version=none/groups=500/mapper=ours ns/op`, by: "mapper=ours mapper=stock"},
	{what: "refresh with 1 of 500 groups changed: ours ÷ stock", most: 0.12, of: `Refresh/changed=one/groups=500/mapper=ours ns/op`, by: "mapper=ours mapper=stock"},
	{what: "20 mappers on a server with 500 groups: heap of each further one, ours ÷ stock", most: 1.0 / 5000, of: `OnceFleet/groups=500/mapper=ours further-B/mapper`, by: "mapper=ours mapper=stock"},
	{what: "200 concurrent misses of one kind: requests", most: 3, of: `OnceStorm/groups=500/mapper=ours requests/op`},
	{what: "p99 of hits at 100 groups: during a slow discovery ÷ without", most: 2, of: `OnceLatency/groups=100/mapper=ours busy-p99-ns`, by: "busy quiet"},
	{what: "p99 of hits at 500 groups: during a slow discovery ÷ without", most: 2, of: `OnceLatency/groups=500/mapper=ours busy-p99-ns`, by: "busy quiet"},

	// A lookup in one group does not wait for those in others.
	{what: "10 misses in 10 absent groups, version given: latencies of the server", most: 2.5, of: `OnceApart/mode=.*/version=given/groups=100/mapper=ours latencies`},
	{what: "10 misses in 10 absent groups, no version: latencies of the server", most: 5, of: `OnceApart/mode=.*/version=none/groups=100/mapper=ours latencies`},

	// Many clusters in one process: 32 MiB for 1,000 of them.
	{what: "1,000 clusters of 300 groups, 80 % of the clusters equal: heap of each mapper", most: 32 << 20 / 1000, of: `OnceClusters/equal=clusters/groups=300/mapper=ours B/mapper`},
	{what: "1,000 clusters of 300 groups, 80 % of the groups equal: heap of each mapper", most: 32 << 20 / 1000, of: `OnceClusters/equal=groups/groups=300/mapper=ours B/mapper`},
	// What a client and a cache that follow add to upstream's, which they use.
	{what: "Get from a cache: time, fresh ÷ stock", most: 1.15, of: `OnceGets/mapper=ours cached-ns`, by: "mapper=ours mapper=stock"},
	{what: "Get from a cache: allocations, fresh ÷ stock", most: 1, of: `OnceGets/mapper=ours cached-allocs`, by: "mapper=ours mapper=stock"},
	{what: "List of 100 objects from a cache: time, fresh ÷ stock", most: 1.15, of: `OnceGets/mapper=ours list-ns`, by: "mapper=ours mapper=stock"},
	{what: "List of 100 objects from a cache: allocations, fresh ÷ stock", most: 1, of: `OnceGets/mapper=ours list-allocs`, by: "mapper=ours mapper=stock"},
	{what: "Get through a client, over a loopback connection: time, fresh ÷ stock", most: 1.1, of: `OnceGets/mapper=ours connected-ns`, by: "mapper=ours mapper=stock"},
	{what: "Get through a client, without a connection: time, fresh ÷ stock", most: 1.1, of: `OnceGets/mapper=ours live-ns`, by: "mapper=ours mapper=stock"},
	{what: "informers for 100 kinds: time until they have synced, fresh ÷ stock", most: 1.15, of: `OnceKinds/mapper=ours sync-ns/kind`, by: "mapper=ours mapper=stock"},
	{what: "informers for 100 kinds: heap, fresh ÷ stock", most: 1.25, of: `OnceKinds/mapper=ours B/kind`, by: "mapper=ours mapper=stock"},
	{what: "10,000 objects whose kind moves: time until a handler is told, fresh ÷ a restart of stock", most: 2, of: `OnceMove/mapper=ours told-ns`, by: "mapper=ours mapper=stock"},
	{what: "10,000 objects in a cache with a handler: heap, fresh ÷ stock", most: 1.25, of: `OnceMove/mapper=ours B/object`, by: "mapper=ours mapper=stock"},
	{what: "10,000 objects whose kind moves: peak of the heap ÷ what they keep", most: 4, of: `OnceMove/mapper=ours peak/kept`},

	{what: "300 clients a round on 1,000 CRDs, fork: discovery requests after the first round", most: 4, of: `OnceReplay/of=provider-kubernetes-543/mapper=fork later-requests`},
	{what: "the same: heap of a round's clients, fork ÷ stock", most: 0.1, of: `OnceReplay/of=provider-kubernetes-543/mapper=fork heap-B`, by: "mapper=fork mapper=stock"},
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

// row is a row of the page: what was measured, the worst of all, and whether that is good
// enough.
func (s samples) row(t target) string {
	values := map[string][]float64{}
	pattern, divisor := regexp.MustCompile("^"+t.of+"$"), strings.Fields(t.by)
	for name := range s {
		if !pattern.MatchString(name) {
			continue
		}
		v, key := s.median(name), name
		if len(divisor) > 0 {
			v /= s.median(regexp.MustCompile(divisor[0]).ReplaceAllLiteralString(name, divisor[1]))
		}
		if t.mean {
			key = size.ReplaceAllString(name, "")
		}
		values[key] = append(values[key], v)
	}
	worst, where := math.NaN(), ""
	for _, key := range slices.Sorted(maps.Keys(values)) {
		v := 1.0
		for _, of := range values[key] {
			v *= math.Pow(of, 1/float64(len(values[key])))
		}
		if where == "" || math.IsNaN(v) || t.least > 0 && v < worst || t.least == 0 && v > worst {
			worst, where = v, key
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
	if regexp.QuoteMeta(t.of) != t.of { // there were several
		where = " (" + strings.Join(varies.FindAllString(where, -1), " ") + ")"
	} else {
		where = ""
	}
	return fmt.Sprintf("| %s | %s%s | %s | %s |\n", t.what, say(worst, unit), where, bound, mark)
}

// varies is what tells apart those that match a target.
var (
	varies = regexp.MustCompile(`(groups|lookup|mode)=[^/ ]*`)
	size   = regexp.MustCompile(`groups=[^/ ]*`)
)

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

Machine: %s, %s cores, %s/%s, %s, %s, commit %s.

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
	for _, key := range []string{"cpu", "cores", "goos", "goarch", "go", "date", "commit", "controller-runtime", "client-go"} {
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
