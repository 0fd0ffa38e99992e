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
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/freshmapper/freshmapper/hack/e2e"
)

// Widths of columns, in characters.
const (
	whatWidth = 22
	sideWidth = 38
	nameWidth = 12
)

func main() {
	color := flag.Bool("color", false, "use the terminal's colours")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: table [-color] FILE")
		os.Exit(2)
	}
	p := printer{out: os.Stdout, color: *color}
	if err := p.print(flag.Arg(0)); err != nil {
		fmt.Fprintf(os.Stderr, "table: %s: %v\n", flag.Arg(0), err)
		os.Exit(1)
	}
}

// replay is one replay's results: of stock, then of the fork.
type replay = []*e2e.Result

// read reads the results in a file, in pairs.
func read(name string) (pairs []replay, err error) {
	written, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var results []*e2e.Result
	for lines := json.NewDecoder(bytes.NewReader(written)); lines.More(); {
		results = append(results, &e2e.Result{})
		if err := lines.Decode(results[len(results)-1]); err != nil {
			return nil, fmt.Errorf("result %d: %w", len(results), err)
		}
	}
	for pair := range slices.Chunk(results, 2) {
		if len(pair) < 2 || pair[0].Fork || !pair[1].Fork || pair[0].Replay != pair[1].Replay {
			return nil, fmt.Errorf("want one result of stock and one of the fork for %s", pair[0].Replay)
		}
		pairs = append(pairs, pair)
	}
	if len(pairs) == 0 {
		return nil, errors.New("no results: did the replays run?")
	}
	// Replays of several programs may have run at the same time.
	slices.SortStableFunc(pairs, func(a, b replay) int { return strings.Compare(a[0].Program, b[0].Program) })
	return pairs, nil
}

type printer struct {
	out   io.Writer
	color bool
}

// print prints the table. It returns an error if a replay did not go as it should.
func (p printer) print(name string) error {
	pairs, err := read(name)
	if err != nil {
		return err
	}
	for _, r := range pairs {
		p.timeline(r[0], r[1])
	}
	p.line(p.cell(bold, nameWidth, "time to heal"), p.cell(bold, sideWidth, pairs[0][0].Build), p.cell(bold, sideWidth, pairs[0][1].Build), p.cell(bold, 0, "as expected"))
	for _, r := range pairs {
		expected := p.cell(green, 0, "yes")
		if !r[0].Expected || !r[1].Expected {
			expected, err = p.cell(red, 0, "NO"), errors.New("not every replay went as it should")
		}
		p.line(p.cell(plain, nameWidth, r[0].Replay), p.cell(good(r[0].Healed), sideWidth, r[0].Verdict()), p.cell(good(r[1].Healed), sideWidth, r[1].Verdict()), expected)
	}
	return err
}

// timeline prints what was done, and how both sides took it. A change to the
// server has no outcome.
func (p printer) timeline(stock, fork *e2e.Result) {
	p.line(p.cell(bold, nameWidth, stock.Replay), p.cell(bold, 0, stock.Title))
	p.line(p.cell(faint, 8, "       s"), p.cell(plain, whatWidth, ""), p.cell(faint, sideWidth, stock.Build), p.cell(faint, 0, fork.Build))
	for i := range min(len(stock.Steps), len(fork.Steps)) {
		s, f := stock.Steps[i], fork.Steps[i]
		when := p.cell(faint, 8, fmt.Sprintf("%8.2f", s.Seconds))
		if s.Outcome == "" && f.Outcome == "" {
			p.line(when, p.cell(bold, 0, s.What))
		} else {
			p.line(when, p.cell(plain, whatWidth, s.What), p.outcome(s, sideWidth), p.outcome(f, 0))
		}
	}
	p.line()
}

func (p printer) outcome(s e2e.Step, width int) string {
	mark := map[bool]string{true: "✓", false: "✗"}[s.OK]
	return p.cell(good(s.OK), width, fmt.Sprintf("%s %s · %s", mark, s.Outcome, e2e.Count(s.Requests, "request", "requests")))
}

func (p printer) line(cells ...string) {
	fmt.Fprintln(p.out, strings.TrimRight(strings.Join(cells, " "), " "))
}

// style is a terminal's escape sequence.
type style string

const (
	plain style = ""
	bold  style = "\x1b[1m"
	faint style = "\x1b[2m"
	red   style = "\x1b[31m"
	green style = "\x1b[32m"
)

func good(yes bool) style {
	if yes {
		return green
	}
	return red
}

// cell pads text to a column and colours it.
func (p printer) cell(s style, width int, text string) string {
	padding := strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
	if !p.color || s == plain {
		return text + padding
	}
	return string(s) + text + "\x1b[0m" + padding
}
