// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Widths of columns, in characters.
const (
	whatWidth = 22
	sideWidth = 38
	nameWidth = 12
)

// color is what hack/demo.sh passes on if it writes to a terminal.
var color = flag.Bool("color", false, "use the terminal's colours in the table of the replays")

// pairs are the results of the replays that have ended. Some run at the same time.
var pairs struct {
	sync.Mutex
	all []Pair
}

// TestMain writes the table of the replays to FILE.table, if FRESHMAPPER_E2E_RESULTS
// names FILE. It fails unless all fared as expected.
func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // or controller-runtime complains on stderr that nobody did
	code := m.Run()
	if file := os.Getenv("FRESHMAPPER_E2E_RESULTS"); file != "" && len(pairs.all) > 0 {
		var table bytes.Buffer
		err := printer{out: &table, color: *color}.print(pairs.all)
		if err := errors.Join(err, os.WriteFile(file+".table", table.Bytes(), 0o644)); err != nil {
			fmt.Fprintln(os.Stderr, "the replays' results:", err)
			code = 1
		}
	}
	os.Exit(code)
}

type printer struct {
	out   io.Writer
	color bool
	names int // the width of the first column
}

// print prints the table. It returns an error if a replay did not go as it should. Replays of
// several programs may have run at the same time: those of one program are together again.
func (p printer) print(pairs []Pair) (err error) {
	slices.SortStableFunc(pairs, func(a, b Pair) int { return strings.Compare(a.Stock.Program, b.Stock.Program) })
	p.names = nameWidth
	for _, pair := range pairs {
		p.names = max(p.names, len(pair.Stock.Replay))
		p.timeline(pair.Stock, pair.Fork)
	}
	first := pairs[0]
	p.line(p.cell(bold, p.names, "time to heal"), p.cell(bold, sideWidth, first.Stock.Build), p.cell(bold, sideWidth, first.Fork.Build), p.cell(bold, 0, "as expected"))
	for _, pair := range pairs {
		expected := p.cell(green, 0, "yes")
		if !pair.Stock.Expected || !pair.Fork.Expected {
			expected, err = p.cell(red, 0, "NO"), errors.New("not every replay went as it should")
		}
		cells := []string{p.cell(usual, p.names, pair.Stock.Replay)}
		for _, r := range []Result{pair.Stock, pair.Fork} {
			cells = append(cells, p.cell(good(r.Healed), sideWidth, r.Verdict()))
		}
		p.line(append(cells, expected)...)
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

func good(yes bool) style { return map[bool]style{true: green, false: red}[yes] }

// cell pads text to a column and colours it.
func (p printer) cell(s style, width int, text string) string {
	padding := strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
	if !p.color || s == usual {
		return text + padding
	}
	return string(s) + text + "\x1b[0m" + padding
}

var twoResults = Pair{
	Stock: Result{Program: "heal", Replay: "R1", Title: "a story", Build: "stock v1", Tries: 5, Requests: 5, Millis: 1003, Expected: true, Steps: []Step{
		{What: "CRD comes"}, {Seconds: 0.5, What: "look up", Outcome: "no match", Requests: 5},
	}},
	Fork: Result{Program: "heal", Replay: "R1", Title: "a story", Build: "fork v1", Fork: true, Healed: true, Tries: 1, Requests: 2, Millis: 4.2, Expected: true, Steps: []Step{
		{What: "CRD comes"}, {Seconds: 0.5, What: "look up", Outcome: "v2", OK: true, Requests: 2},
	}},
}

func tableOf(color bool, pairs ...Pair) (string, error) {
	var out strings.Builder
	err := printer{out: &out, color: color}.print(pairs)
	return out.String(), err
}

func TestTable(t *testing.T) {
	got, err := tableOf(false, twoResults)
	must(t, err)
	want := `R1           a story
       s                        stock v1                               fork v1
    0.00 CRD comes
    0.50 look up                ✗ no match · 5 requests                ✓ v2 · 2 requests

time to heal stock v1                               fork v1                                as expected
R1           never: 5 tries, 5 requests, 1003 ms    4.2 ms, 2 requests                     yes
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if colored, _ := tableOf(true, twoResults); !strings.Contains(colored, "\x1b[31m✗ no match") {
		t.Errorf("no red in\n%q", colored)
	}
	// Replays of programs that ran at the same time are together again.
	other := twoResults
	other.Stock.Program, other.Stock.Replay = "plain", "S1"
	got, err = tableOf(false, other, twoResults, other, twoResults)
	must(t, err)
	_, summary, _ := strings.Cut(got, "as expected\n")
	var order []string
	for line := range strings.Lines(summary) {
		order = append(order, line[:2])
	}
	if got := strings.Join(order, " "); got != "R1 R1 S1 S1" {
		t.Errorf("the order of replays is %s", got)
	}
	other.Fork.Expected = false
	if _, err := tableOf(false, twoResults, other, twoResults); err == nil {
		t.Error("a replay that did not go as it should is no error")
	}
}

// Pair is how stock and fork fared in one replay.
type Pair struct{ Stock, Fork Result }

// Result is how one build of a program fared in one replay.
type Result struct {
	Program  string
	Replay   string // R1
	Title    string
	Fork     bool
	Build    string // "stock v0.25.2" or "fork v0.25.2"
	Steps    []Step // the same number for stock and for fork
	Healed   bool
	Tries    int     // lookups after the change, the right one included
	Requests int     // discovery requests that they made
	Millis   float64 // from the change to the right answer, or until given up
	Expected bool    // healed, or not, as the replay says it should be
}

// Step is one line of a replay's timeline.
type Step struct {
	Seconds  float64 // since the replay began
	What     string  // what was asked, or what changed on the server
	Outcome  string  // of what was asked; empty for a change
	OK       bool
	Requests int
}

// Verdict returns whether the program healed, when, and at what price.
func (r Result) Verdict() string {
	price, tries := Count(r.Requests, "request", "requests"), Count(r.Tries, "try", "tries")
	switch {
	case !r.Healed:
		return fmt.Sprintf("never: %s, %s, %s", tries, price, Duration(r.Millis))
	case r.Tries == 1:
		return fmt.Sprintf("%s, %s", Duration(r.Millis), price)
	default:
		return fmt.Sprintf("%s, %s, %s", Duration(r.Millis), price, tries)
	}
}

// Count is a number with its noun.
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Duration is a number of milliseconds, for a reader.
func Duration(millis float64) string {
	if millis < 10 {
		return fmt.Sprintf("%.1f ms", millis)
	}
	return fmt.Sprintf("%.0f ms", millis)
}
