// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/freshmapper/freshmapper/hack/dev/gotest"
	"github.com/freshmapper/freshmapper/hack/dev/servers"
)

const testUsage = `usage: hack/test.sh [-quick | -nightly] [-only PATTERN]
       hack/test.sh -matrix

Runs the tests, from a fresh clone, with nothing installed but Go, git and a C
compiler. The first run also builds the linter and, where none can be downloaded,
the API servers; they are cached outside the checkout.

  (nothing)       what every commit must pass
  -quick          the same without what needs an API server
  -nightly        everything, with the race detector throughout
  -only PATTERN   only the parts whose names, in the table, match; if one of them
                  needs API servers, PATTERN must match "API servers", too
  -matrix         instead: upstream's tests on stock and fork of every supported
                  controller-runtime; writes hack/fork/MATRIX.md, takes an hour and a half

With -matrix, -h says how to run less of it.

A part that fails does not stop the others. A table says how long each part took,
then come the reasons for skips. The last line counts the tests of all parts:
"N passed, N failed, N skipped".
`

// tester runs parts and notes what they came to.
type tester struct {
	*checkout
	plan
	work  string
	found servers.Pair // none before they are looked for
	rows  []row
}

// plan is what is to be run.
type plan struct {
	quick, nightly bool
	only           *regexp.Regexp // parts to run, nil for all
}

// row is a part of a run.
type row struct {
	name   string
	failed bool
	report gotest.Report // of all its runs of go test
	took   time.Duration
}

func test(ctx context.Context, c *checkout, args []string) error {
	if len(args) > 0 {
		if other, found := insteads[args[0]]; found {
			return other.run(ctx, c, args[1:])
		}
	}
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	var p plan
	flags.BoolVar(&p.quick, "quick", false, "")
	flags.BoolVar(&p.nightly, "nightly", false, "")
	flags.Func("only", "", func(pattern string) (err error) {
		p.only, err = regexp.Compile(pattern)
		return err
	})
	if err := c.parse(flags, args, testUsage); err != nil {
		return err
	}
	if p.quick && p.nightly {
		fmt.Fprintf(c.stderr, "error: -quick and -nightly do not go together\n%s", testUsage)
		return errUsage
	}
	work, remove, err := scratch()
	if err != nil {
		return err
	}
	defer remove()
	if err := os.Setenv("TMPDIR", work); err != nil { // tests that are interrupted leave folders
		return err
	}
	t := &tester{checkout: c, plan: p, work: work}
	begun := time.Now()
	err = t.all(ctx)
	return errors.Join(err, ctx.Err(), t.sum(time.Since(begun), ctx.Err() != nil))
}

// part runs one part and notes how it went and how long it took.
func (t *tester) part(ctx context.Context, name string, do func(r *row) error) {
	if ctx.Err() != nil || (t.only != nil && !t.only.MatchString(name)) {
		return
	}
	t.say("%s", name)
	r, begun := row{name: name}, time.Now()
	if err := do(&r); err != nil {
		r.failed = true
		if ctx.Err() == nil && err != errSaid { //nolint:errorlint // what it is joined with is still to be said
			fmt.Fprintf(t.stderr, "error: %v\n", err)
		}
	}
	r.took = time.Since(begun)
	t.say("%s: %s (%.0fs)", name, r.verdict(), r.took.Seconds())
	t.rows = append(t.rows, r)
}

func (r *row) verdict() string {
	if r.failed {
		return "FAILED"
	}
	return "ok"
}

// gotest is go test with a line for each package; what it comes to is added to r.
func (t *tester) gotest(ctx context.Context, r *row, dir string, env []string, args ...string) error {
	report, err := gotest.Command{Dir: dir, Env: env, Args: args, Progress: t.stderr}.Run(ctx)
	r.report.Tests = append(r.report.Tests, report.Tests...)
	r.report.CPU += report.CPU
	return failed(err)
}

// failed is errSaid for the error of a command that has said itself what went wrong.
func failed(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	return errSaid
}

// findServers finds the API servers that later parts need.
func (t *tester) findServers(ctx context.Context) (err error) {
	if t.found, err = servers.FindPair(ctx, t.root, filepath.Join(t.work, "store"), t.say); err != nil {
		return err
	}
	return os.Setenv("KUBEBUILDER_ASSETS", t.found.Latest)
}

// sum prints the results of all parts. It returns an error if something failed.
func (t *tester) sum(took time.Duration, interrupted bool) error {
	var all gotest.Report
	broken := false
	fmt.Fprintf(t.stdout, "\n%-52s %-7s %6s %8s %8s\n", "part", "result", "tests", "seconds", "cpu")
	for _, r := range t.rows {
		fmt.Fprintf(t.stdout, "%-52s %-7s %6d %8.0f %8.0f\n", r.name, r.verdict(), len(r.report.Tests), r.took.Seconds(), r.report.CPU.Seconds())
		all.Tests = append(all.Tests, r.report.Tests...)
		all.CPU += r.report.CPU
		broken = broken || r.failed
	}
	fmt.Fprintf(t.stdout, "%-52s %-7s %6d %8.0f %8.0f\n", "all", "", len(all.Tests), took.Seconds(), all.CPU.Seconds())
	t.slowest(all)
	t.remarks(all)
	verdict := ""
	switch {
	case interrupted:
		verdict, broken = "; INTERRUPTED", true
	case t.only != nil && len(t.rows) == 0:
		verdict, broken = fmt.Sprintf("; NO PART's name matches %s: the names are in hack/dev/parts.go", t.only), true
	case broken:
		verdict = "; parts FAILED, see above"
	}
	fmt.Fprintf(t.stdout, "\n%d passed, %d failed, %d skipped%s\n", all.Count(gotest.Passed), all.Count(gotest.Failed), all.Count(gotest.Skipped), verdict)
	if broken || all.Count(gotest.Failed) > 0 {
		return errSaid
	}
	return nil
}

// slowest prints the tests that took the longest.
func (t *tester) slowest(all gotest.Report) {
	tests := slices.DeleteFunc(slices.Clone(all.Tests), func(test *gotest.Test) bool { return test.Name == "" || strings.Contains(test.Name, "/") })
	slices.SortFunc(tests, func(a, b *gotest.Test) int { return int(b.Time - a.Time) })
	fmt.Fprintf(t.stdout, "\nthe slowest tests:\n")
	for _, test := range tests[:min(12, len(tests))] {
		fmt.Fprintf(t.stdout, "%8.1f  %s %s\n", test.Time.Seconds(), short(test.Package), test.Name)
	}
}

func short(pkg string) string { return strings.TrimPrefix(pkg, "github.com/freshmapper/freshmapper/") }

// remarks say what was not run, and why.
func (t *tester) remarks(all gotest.Report) {
	fmt.Fprintln(t.stdout)
	for _, test := range all.Tests {
		if test.State == gotest.Skipped {
			fmt.Fprintf(t.stdout, "skipped: %s %s: %s\n", short(test.Package), test.Name, test.Reason())
		}
	}
	if t.only != nil {
		fmt.Fprintf(t.stdout, "not run: parts whose names do not match %s (-only)\n", t.only)
	}
	if t.quick {
		fmt.Fprintln(t.stdout, "not run: what needs an API server (-quick)")
	}
	for _, left := range leftOut {
		if !t.nightly || left.flag != "-nightly" {
			fmt.Fprintf(t.stdout, "not run: %s (%s)\n", left.what, left.command())
		}
	}
}
