// SPDX-License-Identifier: Apache-2.0

// Package matrix runs upstream's own tests on stock and forked controller-runtime
// trees, and compares their results. It is a test that writes a page: hack/test.sh
// -matrix.
package matrix

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// results are those of the tests of a package: the name of a state by that of the test. The
// name of a spec begins with its suite's.
type results map[string]string

// states are how a test may end, a better one behind. Absent is one that there is not.
var states = []string{"absent", "failed", "skipped", "passed"}

func (r results) of(test string) string { return cmp.Or(r[test], "absent") }

// addTests adds what go test -json said. A test whose end is missing has failed.
func (r results) addTests(said []byte) {
	for _, line := range bytes.Split(said, []byte("\n")) {
		var e struct{ Action, Test string }
		if json.Unmarshal(line, &e) != nil || e.Test == "" {
			continue
		}
		if is, ok := map[string]string{"run": "failed", "fail": "failed", "skip": "skipped", "pass": "passed"}[e.Action]; ok {
			r[e.Test] = is
		}
	}
}

// address matches a pointer that is printed in a name. It differs from run to run.
var address = regexp.MustCompile(`0x[0-9a-f]{6,}`)

// addSpecs adds the specs of a report that ginkgo made, which go test does not know. Of
// specs with the same name each gets a number.
func (r results) addSpecs(report []byte) error {
	var suites []struct {
		SuiteDescription string
		SpecReports      []struct {
			ContainerHierarchyTexts           []string
			LeafNodeType, LeafNodeText, State string
		}
	}
	if err := json.Unmarshal(report, &suites); err != nil {
		return fmt.Errorf("read ginkgo's report: %w", err)
	}
	ends := map[string]string{"passed": "passed", "skipped": "skipped", "pending": "skipped"}
	for _, s := range suites {
		for _, spec := range s.SpecReports {
			is := cmp.Or(ends[spec.State], "failed")
			if spec.LeafNodeType != "It" { // what comes before and after counts only if it fails
				if is == "failed" {
					r[s.SuiteDescription+": "+spec.LeafNodeType] = is
				}
				continue
			}
			words := append([]string{s.SuiteDescription + ":"}, append(spec.ContainerHierarchyTexts, spec.LeafNodeText)...)
			name := address.ReplaceAllString(strings.Join(words, " "), "0x…")
			unique := name
			for n := 2; r[unique] != ""; n++ {
				unique = fmt.Sprintf("%s (%d)", name, n)
			}
			r[unique] = is
		}
	}
	return nil
}

// side is one of the two trees of a release.
type side struct {
	build, vet string             // "ok" or "failed"
	packages   map[string]results // by path
	retried    map[string]bool    // packages and tests that took a second try, "pkg: name"
}

// try adds a try, numbered from 1, of a package's tests. The best counts.
func (s *side) try(n int, pkg string, tried results) {
	if s.packages[pkg] == nil {
		s.packages[pkg] = results{}
	}
	for name, is := range tried {
		if was := s.packages[pkg].of(name); slices.Index(states, was) < slices.Index(states, is) {
			s.packages[pkg][name] = is
			s.retried[pkg+": "+name] = n > 1
		}
	}
}

type line struct {
	version     string
	stock, fork side
}

const head = `<!-- SPDX-License-Identifier: Apache-2.0 -->

# Upstream's tests on stock and on the fork

Written by ` + "`hack/test.sh -matrix`" + `. For each release: upstream's own tests, unmodified, on the stock tree and on the
tree that hack/fork makes of it, on real API servers. Each is compared by name, ginkgo's specs included. Both sides leave
out ` + "`pkg/client/apiutil/restmapper_wb_test.go`" + `: it tests internals of the mapper that is replaced. "Ours" are tests that
the fork brings along. A package whose tests fail is tried once more, on the side where they fail.

`

const (
	worse   = "Worse on the fork"
	better  = "Better on the fork"
	broken  = "Failing on stock too"
	retried = "Passed at the second try"
)

// page is what is known of all releases: rows of a table, and lists of tests.
type page struct {
	rows  strings.Builder
	lists map[string]map[string][]string // the releases, by title and test
}

// write returns the page, and whether every fork is as good as stock. servers names the
// API servers.
func write(servers string, lines []line) (text string, good bool) {
	p := page{lists: map[string]map[string][]string{worse: {}, better: {}, broken: {}, retried: {}}}
	out := &strings.Builder{}
	fmt.Fprintf(out, "%s%s\n\n| controller-runtime | build, stock | build, fork | vet, stock | vet, fork |\n|---|---|---|---|---|\n", head, servers)
	good = true
	for _, l := range lines {
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s |\n", l.version, l.stock.build, l.fork.build, l.stock.vet, l.fork.vet)
		good = good && (l.fork.build == "ok" || l.stock.build != "ok") && (l.fork.vet == "ok" || l.stock.vet != "ok")
		packages := maps.Clone(l.stock.packages)
		maps.Copy(packages, l.fork.packages)
		for _, pkg := range slices.Sorted(maps.Keys(packages)) {
			p.compare(l, pkg)
		}
	}
	fmt.Fprintf(out, "\n| controller-runtime | package | stock | fork | ours | verdict |\n|---|---|---|---|---|---|\n%s", &p.rows)
	for _, title := range []string{worse, better, broken, retried} {
		fmt.Fprintf(out, "\n## %s\n\n", title)
		if len(p.lists[title]) == 0 {
			fmt.Fprintln(out, "None.")
		}
		for _, name := range slices.Sorted(maps.Keys(p.lists[title])) {
			fmt.Fprintf(out, "- %s: %s\n", strings.Join(strings.Fields(name), " "), strings.Join(p.lists[title][name], ", "))
		}
	}
	return out.String(), good && len(p.lists[worse]) == 0
}

// compare compares the tests of a package by name: the fork must pass exactly those that
// stock passes. The fork's own must not fail.
func (p *page) compare(l line, pkg string) {
	stock, fork, ours, listed := map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	list := func(title, test string) {
		p.lists[title][test] = append(p.lists[title][test], l.version)
		listed[title]++
	}
	all := maps.Clone(l.fork.packages[pkg])
	if all == nil {
		all = results{}
	}
	maps.Copy(all, l.stock.packages[pkg])
	for _, name := range slices.Sorted(maps.Keys(all)) {
		was, is, label := l.stock.packages[pkg].of(name), l.fork.packages[pkg].of(name), pkg+": "+name
		if was == "absent" {
			ours[is]++
		} else {
			stock[was]++
			fork[is]++
		}
		switch {
		case was == "absent" && is == "failed":
			list(worse, label+" (ours, failed)")
		case was == "absent":
		case was == "failed" && is == "failed":
			list(broken, label)
		case was == "failed" && is == "passed":
			list(better, label)
		case was != is:
			list(worse, fmt.Sprintf("%s (stock %s, fork %s)", label, was, is))
		}
		if l.stock.retried[label] {
			list(retried, label+" (stock)")
		}
		if l.fork.retried[label] {
			list(retried, label+" (fork)")
		}
	}
	verdict := "same"
	if n := listed[worse]; n > 0 {
		verdict = fmt.Sprintf("**%d worse**", n)
	} else if n := listed[better]; n > 0 {
		verdict = fmt.Sprintf("%d better", n)
	}
	fmt.Fprintf(&p.rows, "| %s | %s | %s | %s | %s | %s |\n", l.version, pkg, counted(stock), counted(fork), counted(ours), verdict)
}

// counted is "12 passed, 1 failed"; of nothing "none".
func counted(counts map[string]int) string {
	var words []string
	for _, state := range []string{"passed", "failed", "skipped", "absent"} {
		if n := counts[state]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, state))
		}
	}
	if words == nil {
		return "none"
	}
	return strings.Join(words, ", ")
}
