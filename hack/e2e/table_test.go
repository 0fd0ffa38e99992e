// SPDX-License-Identifier: Apache-2.0

package e2e

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
	"testing"
	"unicode/utf8"
)

// Widths of columns, in characters.
const (
	whatWidth = 22
	sideWidth = 38
	nameWidth = 12
)

// color is what hack/demo.sh passes on if it writes to a terminal.
var color = flag.Bool("color", false, "use the terminal's colours in the table of the replays")

// TestMain writes the table of the replays to FILE.table, if FRESHMAPPER_E2E_RESULTS
// names FILE. It fails unless all fared as expected.
func TestMain(m *testing.M) {
	code := m.Run()
	results := os.Getenv("FRESHMAPPER_E2E_RESULTS")
	if _, err := os.Stat(results); results == "" || err != nil {
		os.Exit(code)
	}
	var table bytes.Buffer
	err := printer{out: &table, color: *color}.print(results)
	if err := errors.Join(err, os.WriteFile(results+".table", table.Bytes(), 0o644)); err != nil {
		fmt.Fprintln(os.Stderr, "the replays' results:", err)
		code = 1
	}
	os.Exit(code)
}

// readResults reads the results in a file.
func readResults(name string) (pairs []Pair, err error) {
	written, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	for lines := json.NewDecoder(bytes.NewReader(written)); lines.More(); {
		var pair Pair
		if err := lines.Decode(&pair); err != nil {
			return nil, fmt.Errorf("result %d: %w", len(pairs)+1, err)
		}
		pairs = append(pairs, pair)
	}
	if len(pairs) == 0 {
		return nil, errors.New("no results: did the replays run?")
	}
	// Replays of several programs may have run at the same time.
	slices.SortStableFunc(pairs, func(a, b Pair) int { return strings.Compare(a.Stock.Program, b.Stock.Program) })
	return pairs, nil
}

type printer struct {
	out   io.Writer
	color bool
}

// print prints the table. It returns an error if a replay did not go as it should.
func (p printer) print(name string) error {
	pairs, err := readResults(name)
	if err != nil {
		return err
	}
	for _, pair := range pairs {
		p.timeline(pair.Stock, pair.Fork)
	}
	first := pairs[0]
	p.line(p.cell(bold, nameWidth, "time to heal"), p.cell(bold, sideWidth, first.Stock.Build), p.cell(bold, sideWidth, first.Fork.Build), p.cell(bold, 0, "as expected"))
	for _, pair := range pairs {
		expected := p.cell(green, 0, "yes")
		if !pair.Stock.Expected || !pair.Fork.Expected {
			expected, err = p.cell(red, 0, "NO"), errors.New("not every replay went as it should")
		}
		p.line(p.cell(usual, nameWidth, pair.Stock.Replay), p.verdict(pair.Stock), p.verdict(pair.Fork), expected)
	}
	return err
}

// timeline prints what was done, and how both sides took it. A change to the
// server has no outcome.
func (p printer) timeline(stock, fork Result) {
	p.line(p.cell(bold, nameWidth, stock.Replay), p.cell(bold, 0, stock.Title))
	p.line(p.cell(faint, 8, "       s"), p.cell(usual, whatWidth, ""), p.cell(faint, sideWidth, stock.Build), p.cell(faint, 0, fork.Build))
	for i := range min(len(stock.Steps), len(fork.Steps)) {
		s, f := stock.Steps[i], fork.Steps[i]
		when := p.cell(faint, 8, fmt.Sprintf("%8.2f", s.Seconds))
		if s.Outcome == "" && f.Outcome == "" {
			p.line(when, p.cell(bold, 0, s.What))
		} else {
			p.line(when, p.cell(usual, whatWidth, s.What), p.outcome(s, sideWidth), p.outcome(f, 0))
		}
	}
	p.line()
}

func (p printer) verdict(r Result) string {
	return p.cell(good(r.Healed), sideWidth, r.Verdict())
}

func (p printer) outcome(s Step, width int) string {
	mark := map[bool]string{true: "✓", false: "✗"}[s.OK]
	return p.cell(good(s.OK), width, fmt.Sprintf("%s %s · %s", mark, s.Outcome, Count(s.Requests, "request", "requests")))
}

func (p printer) line(cells ...string) {
	fmt.Fprintln(p.out, strings.TrimRight(strings.Join(cells, " "), " "))
}

// style is a terminal's escape sequence.
type style string

const (
	usual style = ""
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
	if !p.color || s == usual {
		return text + padding
	}
	return string(s) + text + "\x1b[0m" + padding
}
