// SPDX-License-Identifier: Apache-2.0

// Command matrix compares what upstream's tests have come to on stock and forked
// controller-runtime trees, from the files that hack/matrix.sh has written, and
// prints a table. It fails if a fork is worse.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("matrix", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("results", "", "the `folder` that hack/matrix.sh has written")
	out := flags.String("o", "", "write the table to this `file`, too")
	if flags.Parse(args) != nil {
		return 2
	}
	err := report(*dir, *out, stdout)
	if err != nil {
		fmt.Fprintf(stderr, "matrix: %v\n", err)
		return 1
	}
	return 0
}

var errWorse = errors.New("the fork is not as good as stock")

func report(dir, out string, stdout io.Writer) error {
	r, err := readResults(dir)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	good := write(&text, r)
	if _, err := stdout.Write(text.Bytes()); err != nil {
		return err
	}
	if out != "" {
		if err := os.WriteFile(out, text.Bytes(), 0o644); err != nil {
			return fmt.Errorf("write the table: %w", err)
		}
	}
	if !good {
		return errWorse
	}
	return nil
}

const head = `<!-- SPDX-License-Identifier: Apache-2.0 -->

# Upstream's tests on stock and on the fork

Written by ` + "`hack/test.sh -matrix`" + `. For each release: upstream's own tests, unmodified, on the stock tree and on the
tree that hack/fork makes of it, on real API servers. Each is compared by name, ginkgo's specs included. Left out is
` + "`pkg/client/apiutil/restmapper_wb_test.go`" + `, on both sides: it tests internals of the mapper that is replaced. "Ours" are
tests that the fork brings along. A package whose tests fail is tried once more, on the side where they do.

`

// write prints the report and tells whether every fork is as good as stock.
func write(out io.Writer, r *results) (good bool) {
	fmt.Fprintf(out, "%s%s\n", head, r.servers)
	var rows []row
	good = true
	fmt.Fprint(out, "\n| controller-runtime | build, stock | build, fork | vet, stock | vet, fork |\n|---|---|---|---|---|\n")
	for _, l := range r.lines {
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s |\n", l.version, l.stock.build, l.fork.build, l.stock.vet, l.fork.vet)
		good = good && asGood(l.stock.build, l.fork.build) && asGood(l.stock.vet, l.fork.vet)
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
