// SPDX-License-Identifier: Apache-2.0

// Command table prints the results of the replays side by side: a timeline of
// each, then one line of each. Its exit status is 1 unless all fared as expected.
//
//	go run ./table [-color] FILE
//
// FILE is what the tests wrote, where FRESHMAPPER_E2E_RESULTS told them to.
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

	"github.com/freshmapper/freshmapper/hack/e2e/internal/runner"
)

func main() {
	color := flag.Bool("color", false, "use the terminal's colours")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: table [-color] FILE")
		os.Exit(2)
	}
	if err := run(os.Stdout, flag.Arg(0), *color); err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, name string, color bool) error {
	written, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	results, err := runner.ReadResults(bytes.NewReader(written))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	pairs, err := pair(results)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	// Replays of several programs may have run at the same time.
	slices.SortStableFunc(pairs, func(a, b replay) int { return strings.Compare(a.stock.Program, b.stock.Program) })
	p := &printer{out: out, color: color}
	p.timelines(pairs)
	p.summary(pairs)
	for _, r := range results {
		if !r.Expected {
			return errors.New("not every replay went as it should")
		}
	}
	return nil
}

// replay is one replay's results.
type replay struct{ stock, fork *runner.Result }

func pair(results []*runner.Result) ([]replay, error) {
	var pairs []replay
	for i := 0; i+1 < len(results); i += 2 {
		stock, fork := results[i], results[i+1]
		if stock.Fork || !fork.Fork || stock.Replay != fork.Replay {
			return nil, fmt.Errorf("want one result of stock and one of the fork for %s", stock.Replay)
		}
		pairs = append(pairs, replay{stock, fork})
	}
	if len(results) == 0 || len(results)%2 != 0 {
		return nil, fmt.Errorf("%s, want two for each replay", runner.Count(len(results), "result", "results"))
	}
	return pairs, nil
}
