// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/freshmapper/freshmapper/hack/dev/gotest"
)

// line is a release.
type line struct {
	version     string
	stock, fork side
}

// side is one of its two trees.
type side struct {
	build, vet string              // "ok" or "failed"
	packages   map[string]outcomes // by path
}

// outcomes are by the name of the test. That of a spec begins with its suite's.
type outcomes map[string]outcome

// outcome is the best result of a test's tries.
type outcome struct {
	state gotest.State
	retry bool // it took more than one
}

// add adds a try, numbered from 1, of a package's tests. ginkgo is its report of
// the same try, which knows the specs that go test does not; nil if it made none.
func (o outcomes) add(try int, report *gotest.Report, ginkgo []byte) error {
	states := map[string]gotest.State{}
	for _, test := range report.Tests {
		if test.Name != "" {
			states[test.Name] = test.State
		}
	}
	if ginkgo != nil {
		if err := AddSpecs(states, ginkgo); err != nil {
			return err
		}
	}
	for name, is := range states {
		if was, known := o[name]; !known || was.state < is {
			o[name] = outcome{state: is, retry: try > 1}
		}
	}
	return nil
}

// row compares a package of a release on both sides.
type row struct {
	version, pkg string
	stock, fork  string   // what stock's tests came to, on either side
	ours         string   // what the fork's own did
	worse        []string // tests that pass on stock and not on the fork
	better       []string // the other way round
	broken       []string // tests that fail on both
	retried      []string // tests that took more than one try, by side
}

// compare compares tests by name: the fork must pass exactly those that stock
// passes. The fork's own must not fail.
func compare(version, pkg string, stock, fork outcomes) row {
	r := row{version: version, pkg: pkg}
	stockCount, forkCount, ourCount := map[gotest.State]int{}, map[gotest.State]int{}, map[gotest.State]int{}
	all := maps.Clone(fork)
	if all == nil {
		all = outcomes{}
	}
	maps.Copy(all, stock)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		was, upstreams := stock[name]
		is, label := fork[name], pkg+": "+name
		if upstreams {
			stockCount[was.state]++
			forkCount[is.state]++
		} else {
			ourCount[is.state]++
		}
		switch {
		case !upstreams && is.state == gotest.Failed:
			r.worse = append(r.worse, label+" (ours, failed)")
		case !upstreams:
		case was.state == gotest.Failed && is.state == gotest.Failed:
			r.broken = append(r.broken, label)
		case was.state == gotest.Failed && is.state == gotest.Passed:
			r.better = append(r.better, label)
		case was.state != is.state:
			r.worse = append(r.worse, fmt.Sprintf("%s (stock %s, fork %s)", label, was.state, is.state))
		}
		if was.retry {
			r.retried = append(r.retried, label+" (stock)")
		}
		if is.retry {
			r.retried = append(r.retried, label+" (fork)")
		}
	}
	r.stock, r.fork, r.ours = counted(stockCount), counted(forkCount), counted(ourCount)
	return r
}

// counted is "12 passed, 1 failed"; of nothing "none".
func counted(counts map[gotest.State]int) string {
	var words []string
	for _, s := range []gotest.State{gotest.Passed, gotest.Failed, gotest.Skipped, gotest.Absent} {
		if n := counts[s]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, s))
		}
	}
	if words == nil {
		return "none"
	}
	return strings.Join(words, ", ")
}

const head = `<!-- SPDX-License-Identifier: Apache-2.0 -->

# Upstream's tests on stock and on the fork

Written by ` + "`hack/test.sh -matrix`" + `. For each release: upstream's own tests, unmodified, on the stock tree and on the
tree that hack/fork makes of it, on real API servers. Each is compared by name, ginkgo's specs included. Both sides leave
out ` + "`pkg/client/apiutil/restmapper_wb_test.go`" + `: it tests internals of the mapper that is replaced. "Ours" are tests that
the fork brings along. A package whose tests fail is tried once more, on the side where they fail.

`

// write writes the page and reports whether every fork is as good as stock.
// servers names the API servers.
func write(out io.Writer, servers string, lines []line) (good bool) {
	fmt.Fprintf(out, "%s%s\n", head, servers)
	var rows []row
	good = true
	fmt.Fprint(out, "\n| controller-runtime | build, stock | build, fork | vet, stock | vet, fork |\n|---|---|---|---|---|\n")
	for _, l := range lines {
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s |\n", l.version, l.stock.build, l.fork.build, l.stock.vet, l.fork.vet)
		good = good && asGood(l.stock.build, l.fork.build) && asGood(l.stock.vet, l.fork.vet)
		packages := maps.Clone(l.stock.packages)
		maps.Copy(packages, l.fork.packages)
		for _, pkg := range slices.Sorted(maps.Keys(packages)) {
			rows = append(rows, compare(l.version, pkg, l.stock.packages[pkg], l.fork.packages[pkg]))
		}
	}
	fmt.Fprint(out, "\n| controller-runtime | package | stock | fork | ours | verdict |\n|---|---|---|---|---|---|\n")
	for _, row := range rows {
		verdict := "same"
		if len(row.worse) > 0 {
			verdict, good = fmt.Sprintf("**%d worse**", len(row.worse)), false
		} else if len(row.better) > 0 {
			verdict = fmt.Sprintf("%d better", len(row.better))
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %s |\n", row.version, row.pkg, row.stock, row.fork, row.ours, verdict)
	}
	section(out, "Worse on the fork", rows, func(r row) []string { return r.worse })
	section(out, "Better on the fork", rows, func(r row) []string { return r.better })
	section(out, "Failing on stock too", rows, func(r row) []string { return r.broken })
	section(out, "Passed at the second try", rows, func(r row) []string { return r.retried })
	return good
}

func asGood(stock, fork string) bool { return fork == "ok" || stock == fork }

// section lists tests, each once, with the releases that they are of.
func section(out io.Writer, title string, rows []row, of func(row) []string) {
	versions := map[string][]string{}
	for _, row := range rows {
		for _, name := range of(row) {
			versions[name] = append(versions[name], row.version)
		}
	}
	fmt.Fprintf(out, "\n## %s\n\n", title)
	if len(versions) == 0 {
		fmt.Fprintln(out, "None.")
	}
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		fmt.Fprintf(out, "- %s: %s\n", strings.Join(strings.Fields(name), " "), strings.Join(versions[name], ", "))
	}
}
