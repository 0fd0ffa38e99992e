// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/freshmapper/freshmapper/hack/dev/gotest"
)

// slowest prints the tests that took the longest.
func (t *tester) slowest(all gotest.Report) {
	var tests []*gotest.Test
	for _, test := range all.Tests {
		if test.Name != "" && !strings.Contains(test.Name, "/") {
			tests = append(tests, test)
		}
	}
	slices.SortFunc(tests, func(a, b *gotest.Test) int { return int(b.Time - a.Time) })
	fmt.Fprintf(t.stdout, "\nthe slowest tests:\n")
	for _, test := range tests[:min(12, len(tests))] {
		fmt.Fprintf(t.stdout, "%8.1f  %s %s\n", test.Time.Seconds(), short(test.Package), test.Name)
	}
}

func short(pkg string) string {
	_, name, found := strings.Cut(pkg, "freshmapper/freshmapper/")
	if !found {
		return pkg
	}
	return name
}

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
			fmt.Fprintf(t.stdout, "not run: %s (hack/test.sh %s)\n", left.what, left.flag)
		}
	}
}
