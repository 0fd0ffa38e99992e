// SPDX-License-Identifier: Apache-2.0

// Package matrix compares what upstream's tests have come to on stock and forked
// controller-runtime trees, and prints a table.
package matrix

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

const head = `<!-- SPDX-License-Identifier: Apache-2.0 -->

# Upstream's tests on stock and on the fork

Written by ` + "`hack/test.sh -matrix`" + `. For each release: upstream's own tests, unmodified, on the stock tree and on the
tree that hack/fork makes of it, on real API servers. Each is compared by name, ginkgo's specs included. Left out is
` + "`pkg/client/apiutil/restmapper_wb_test.go`" + `, on both sides: it tests internals of the mapper that is replaced. "Ours" are
tests that the fork brings along. A package whose tests fail is tried once more, on the side where they do.

`

// Write prints the table and reports whether every fork is as good as stock.
// servers names the API servers.
func Write(out io.Writer, servers string, lines []Line) (good bool) {
	fmt.Fprintf(out, "%s%s\n", head, servers)
	var rows []row
	good = true
	fmt.Fprint(out, "\n| controller-runtime | build, stock | build, fork | vet, stock | vet, fork |\n|---|---|---|---|---|\n")
	for _, l := range lines {
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s |\n", l.Version, l.Stock.Build, l.Fork.Build, l.Stock.Vet, l.Fork.Vet)
		good = good && asGood(l.Stock.Build, l.Fork.Build) && asGood(l.Stock.Vet, l.Fork.Vet)
		rows = append(rows, compareAll(l)...)
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
	var names []string
	for _, row := range rows {
		for _, name := range of(row) {
			if versions[name] == nil {
				names = append(names, name)
			}
			versions[name] = append(versions[name], row.version)
		}
	}
	fmt.Fprintf(out, "\n## %s\n\n", title)
	if len(names) == 0 {
		fmt.Fprintln(out, "None.")
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(out, "- %s: %s\n", strings.Join(strings.Fields(name), " "), strings.Join(versions[name], ", "))
	}
}
