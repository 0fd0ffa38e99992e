// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"
	"maps"
	"slices"

	"github.com/freshmapper/freshmapper/hack/dev/gotest"
)

// row is one package of one release, compared.
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
func compare(version, pkg string, stock, fork Tests) row {
	r := row{version: version, pkg: pkg}
	stockCount, forkCount, ourCount := map[gotest.State]int{}, map[gotest.State]int{}, map[gotest.State]int{}
	for _, name := range slices.Sorted(maps.Keys(stock)) {
		was, is := stock[name], fork[name]
		stockCount[was.state]++
		forkCount[is.state]++
		label := pkg + ": " + name
		switch {
		case was.state == gotest.Failed && is.state == gotest.Failed:
			r.broken = append(r.broken, label)
		case was.state == gotest.Failed && is.state == gotest.Passed:
			r.better = append(r.better, label)
		case was.state != is.state:
			r.worse = append(r.worse, fmt.Sprintf("%s (stock %s, fork %s)", label, was.state, is.state))
		}
		r.retry(label, was, is)
	}
	for _, name := range slices.Sorted(maps.Keys(fork)) {
		if _, upstreams := stock[name]; upstreams {
			continue
		}
		is := fork[name]
		ourCount[is.state]++
		label := pkg + ": " + name
		if is.state == gotest.Failed {
			r.worse = append(r.worse, label+" (ours, failed)")
		}
		r.retry(label, outcome{}, is)
	}
	r.stock, r.fork, r.ours = counted(stockCount), counted(forkCount), counted(ourCount)
	return r
}

func (r *row) retry(label string, stock, fork outcome) {
	if stock.retry {
		r.retried = append(r.retried, label+" (stock)")
	}
	if fork.retry {
		r.retried = append(r.retried, label+" (fork)")
	}
}

// counted is "12 passed, 1 failed"; of nothing "none".
func counted(counts map[gotest.State]int) string {
	text := ""
	for _, s := range []gotest.State{gotest.Passed, gotest.Failed, gotest.Skipped, gotest.Absent} {
		if n := counts[s]; n > 0 {
			if text != "" {
				text += ", "
			}
			text += fmt.Sprintf("%d %s", n, s)
		}
	}
	if text == "" {
		return "none"
	}
	return text
}

// compareAll compares all packages that either side has.
func compareAll(l Line) []row {
	all := maps.Clone(l.Stock.Packages)
	maps.Copy(all, l.Fork.Packages)
	var rows []row
	for _, pkg := range slices.Sorted(maps.Keys(all)) {
		rows = append(rows, compare(l.Version, pkg, l.Stock.Packages[pkg], l.Fork.Packages[pkg]))
	}
	return rows
}
