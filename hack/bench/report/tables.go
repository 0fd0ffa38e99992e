// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// writeReadme writes the page of the results.
func (s *samples) writeReadme(w io.Writer) {
	fmt.Fprintf(w, `# Benchmark results

Written by `+"`hack/bench.sh`"+`: medians of %d rounds, interleaved. Every line of it is in [raw.txt](raw.txt), and what
benchstat makes of that in [benchstat.txt](benchstat.txt).

%s

- **ours**: this project's mapper. **stock**: controller-runtime's own, %s. **deferred**: client-go's
  %s on a cache in memory, %s.
- **floor**: one lookup in a Go map by group and kind, and a copy of the mapping for the caller.
- All talk to the same API server in memory, which costs no network. Groups have 2 versions with 3 kinds each.

`, s.rounds, s.machine(), s.config["controller-runtime"], "`DeferredDiscoveryRESTMapper`", s.config["client-go"])
	s.writeTargets(w)
	s.writeHits(w)
	s.writeHeap(w)
	s.writeDiscovery(w)
}

func (s *samples) machine() string {
	return fmt.Sprintf("Machine: %s, %s cores, %s/%s, %s, %s.",
		s.config["cpu"], s.config["cores"], s.config["goos"], s.config["goarch"], s.config["go"], s.config["date"])
}

func (s *samples) writeTargets(w io.Writer) {
	fmt.Fprint(w, "## Figures to reach\n\nOf several lookups or sizes the worst is shown.")
	if s.before != nil {
		fmt.Fprintf(w, " What is compared with a date is ours then, %d rounds on: %s", s.before.rounds, strings.TrimPrefix(s.before.machine(), "Machine: "))
	}
	fmt.Fprint(w, "\n\n")
	t := newTable("figure", "measured", "target", "")
	for _, target := range s.targets() {
		measured := target.format(target.measured)
		if target.where != "" && !math.IsNaN(target.measured) {
			measured += " (" + target.where + ")"
		}
		t.row(target.what, measured, target.bound(), target.mark())
	}
	t.write(w)
	fmt.Fprintf(w, "For comparison, the floor has %s times the throughput on 2 cores that it has on 1.\n\n", number(s.scalingOf("floor", "floor")))
}

func (s *samples) writeHits(w io.Writer) {
	fmt.Fprint(w, "## Hits\n\nTime of a lookup of something known, on one core, and its allocations.\n\n![time of a hit](hit.svg)\n\n")
	for _, groups := range sizes {
		fmt.Fprintf(w, "%s groups; the floor is %s.\n\n", number(float64(groups)), seconds(s.median(hit(groups, "floor", "floor"), perOp)))
		t := newTable("lookup", "ours", "stock", "deferred", "stock ÷ ours", "ours, 2 cores")
		for _, l := range allLookups() {
			cells := []string{strings.Replace(l, "+version", ", version given", 1)}
			for _, m := range mappers {
				name := hit(groups, l, m)
				cells = append(cells, fmt.Sprintf("%s, %s", seconds(s.median(name, perOp)), number(s.median(name, allocs))))
			}
			gain := s.median(hit(groups, l, "stock"), perOp) / s.median(hit(groups, l, "ours"), perOp)
			t.row(append(cells, number(gain)+" ×", seconds(s.median(hitParallel(groups, l, "ours"), perOp)))...)
		}
		t.write(w)
	}
}

func (s *samples) writeHeap(w io.Writer) {
	fmt.Fprint(w, "## Heap\n\nWhat a mapper keeps: of a server that is unlike all others, of one that equals another that was read, and of one that another mapper has read.\n\n![heap per mapper](heap.svg)\n\n")
	t := newTable("groups", "stock", "deferred", "ours", "ours, equal server read", "ours, same server read")
	for _, groups := range sizes {
		kept := func(mapperOf, mapper string) string {
			return bytesOf(s.median(of("OnceHeap/mapper_of="+mapperOf, groups, mapper), heap))
		}
		t.row(number(float64(groups)), kept("own_server", "stock"), kept("own_server", "deferred"),
			kept("own_server", "ours"), kept("equal_server", "ours"), kept("same_server", "ours"))
	}
	t.write(w)
}

func (s *samples) writeDiscovery(w io.Writer) {
	fmt.Fprint(w, "## Discovery\n\n"+
		"Stock cannot be reset: its refresh is a new mapper. The deferred mapper asks nobody whether something is absent: it is reset before it is asked.\n\n")
	t := newTable("", "groups", "ours", "stock", "deferred", "stock ÷ ours")
	s.discoveryRows(t, "cold first lookup", "Cold", discoverySizes)
	s.discoveryRows(t, "miss of an absent group, no version", "Miss/version=none", sizes)
	s.discoveryRows(t, "miss of an absent group, version given", "Miss/version=given", sizes)
	s.discoveryRows(t, "refresh, nothing changed", "Refresh/changed=none", discoverySizes)
	s.discoveryRows(t, "refresh, one group changed", "Refresh/changed=one", discoverySizes)
	s.discoveryRows(t, "200 concurrent misses, 20 ms server", "OnceStorm", []int{100, 500})
	s.discoveryRows(t, "20 mappers on one server", "OnceFleet", []int{100, 500})
	t.write(w)

	t = newTable("20 mappers on one server", "groups", "ours", "stock", "deferred")
	for _, groups := range []int{100, 500} {
		s.row(t, "document bytes of the first", groups, "OnceFleet", "first-doc-B", bytesOf)
		s.row(t, "document bytes of each further one", groups, "OnceFleet", "further-doc-B/mapper", bytesOf)
		s.row(t, "heap of each further one", groups, "OnceFleet", "further-B/mapper", bytesOf)
		s.row(t, "first lookup of each further one", groups, "OnceFleet", "further-sec/mapper", seconds)
	}
	t.write(w)

	s.writeFleet(w)
	s.writeApart(w)

	fmt.Fprint(w, "Hits while two discoveries of a server that takes 300 ms to answer are under way. Hits come every 0.5 ms; "+
		"one that waits delays those behind it, whose time counts from when they were due.\n\n![latency of hits](latency.svg)\n\n")
	t = newTable("latency of hits", "groups", "ours", "stock", "deferred")
	for _, groups := range []int{100, 500} {
		for _, p := range []string{"p50", "p99"} {
			s.row(t, p+" without discovery", groups, "OnceLatency", "quiet-"+p+"-sec", seconds)
			s.row(t, p+" during discovery", groups, "OnceLatency", "busy-"+p+"-sec", seconds)
		}
	}
	t.write(w)

	t = newTable("publishing 1 changed group of 2,000", "ours")
	for _, after := range []string{"live", "bulk"} {
		t.row("after a "+after+" read", seconds(s.median("Publish/after="+after, perOp)))
	}
	t.row("listing the changes", seconds(s.median("Publish/after=diff", perOp)))
	t.write(w)
}

// writeApart shows what a lookup in one group pays for lookups in others.
func (s *samples) writeApart(w io.Writer) {
	fmt.Fprint(w, "What others cost: 10 misses at once in 10 groups that the server does not have; a miss in one group while three goroutines ask "+
		"another, which does not answer, again and again (alone → then); and the first lookup of a known kind after a reset while three groups that were in use do not "+
		"answer. The server has 100 groups and takes 20 ms to answer. In legacy mode a kind's own version is read after the document.\n\n")
	t := newTable("", "documents", "ours", "stock", "deferred")
	s.apartRows(t, "10 misses, no version", "OnceApart", "/version=none")
	s.apartRows(t, "10 misses, version given", "OnceApart", "/version=given")
	for _, version := range versionsAsked {
		cells := []string{"miss beside one that hangs, " + version.text, "aggregated"}
		for _, m := range mappers {
			name := of("OnceBeside/version="+version.name, apartGroups, m)
			cells = append(cells, seconds(s.median(name, undisturbed))+" → "+seconds(s.median(name, disturbed)))
		}
		t.row(cells...)
	}
	s.apartRows(t, "known kind after a reset, 3 groups hang", "OnceReset", "")
	t.write(w)
}

// apartRows has a row for each mode.
func (s *samples) apartRows(t *table, what, benchmark, version string) {
	for _, mode := range modes {
		cells := []string{what, mode}
		for _, m := range mappers {
			name := of(benchmark+"/mode="+mode+version, apartGroups, m)
			cells = append(cells, fmt.Sprintf("%s, %s req.", seconds(s.median(name, perOp)), number(s.median(name, requests))))
		}
		t.row(cells...)
	}
}

// discoveryRows has a row for each size: time, requests and bytes of documents.
func (s *samples) discoveryRows(t *table, what, benchmark string, groups []int) {
	for _, n := range groups {
		cells := []string{what, number(float64(n))}
		for _, m := range mappers {
			name := of(benchmark, n, m)
			cell := seconds(s.median(name, perOp))
			if r := s.median(name, requests); !math.IsNaN(r) {
				cell += fmt.Sprintf(", %s req., %s", number(math.Round(r*10)/10), bytesOf(s.median(name, docBytes)))
			}
			cells = append(cells, cell)
		}
		gain := s.median(of(benchmark, n, "stock"), perOp) / s.median(of(benchmark, n, "ours"), perOp)
		t.row(append(cells, number(gain)+" ×")...)
	}
}

func (s *samples) row(t *table, what string, groups int, benchmark, unit string, format func(float64) string) {
	cells := []string{what, number(float64(groups))}
	for _, m := range mappers {
		cells = append(cells, format(s.median(of(benchmark, groups, m), unit)))
	}
	t.row(cells...)
}

// A table is one of Markdown.
type table struct{ rows [][]string }

func newTable(head ...string) *table {
	rule := make([]string, len(head))
	for i := range rule {
		rule[i] = "---"
		if i > 0 {
			rule[i] = "---:"
		}
	}
	return &table{rows: [][]string{head, rule}}
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) write(w io.Writer) {
	for _, cells := range t.rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
	}
	fmt.Fprintln(w)
}
