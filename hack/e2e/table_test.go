// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// color is what hack/demo.sh passes on if it writes to a terminal.
var color = flag.Bool("color", false, "use the terminal's colours in the table of the replays")

// pairs are the results of the replays that have ended. Some run at the same time.
var pairs struct {
	sync.Mutex
	all []Pair
}

// TestMain writes the table of the replays to FILE.table, if FRESHMAPPER_E2E_RESULTS
// names FILE.
func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // or controller-runtime complains on stderr that nobody did
	code := m.Run()
	if file := os.Getenv("FRESHMAPPER_E2E_RESULTS"); file != "" && len(pairs.all) > 0 {
		if err := os.WriteFile(file+".table", []byte(table(pairs.all)), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "the replays' results:", err)
			code = 1
		}
	}
	os.Exit(code)
}

const sideWidth = 38 // of a column, in characters

// table returns the timelines of replays, and a line for each. Replays of several programs may
// have run at the same time: those of one program are together again.
func table(pairs []Pair) string {
	slices.SortStableFunc(pairs, func(a, b Pair) int { return strings.Compare(a.Stock.Program, b.Stock.Program) })
	var timelines, summary strings.Builder
	fmt.Fprintf(&summary, "%-21s %-*s %-*s as expected\n", "time to heal", sideWidth, pairs[0].Stock.Build, sideWidth, pairs[0].Fork.Build)
	for _, pair := range pairs {
		pair.timeline(&timelines)
		expected := pair.Stock.Expected && pair.Fork.Expected
		fmt.Fprintf(&summary, "%-21s %s %s %s\n", pair.Stock.Replay, colored(pair.Stock.Healed, pair.Stock.Verdict()),
			colored(pair.Fork.Healed, pair.Fork.Verdict()), colored(expected, map[bool]string{true: "yes", false: "NO"}[expected]))
	}
	return timelines.String() + summary.String()
}

// timeline writes what was done, and how both sides took it. A change to the server has no
// outcome.
func (p Pair) timeline(out *strings.Builder) {
	fmt.Fprintf(out, "%-12s %s\n%8s %-22s %-*s %s\n", p.Stock.Replay, p.Stock.Title, "s", "", sideWidth, p.Stock.Build, p.Fork.Build)
	for i := range min(len(p.Stock.Steps), len(p.Fork.Steps)) {
		stock, fork := p.Stock.Steps[i], p.Fork.Steps[i]
		fmt.Fprintf(out, "%8.2f %-22s", stock.Seconds, stock.What)
		if stock.Outcome != "" || fork.Outcome != "" {
			fmt.Fprintf(out, " %s %s", stock.outcome(), fork.outcome())
		}
		out.WriteByte('\n')
	}
	out.WriteByte('\n')
}

func (s Step) outcome() string {
	mark := map[bool]string{true: "✓", false: "✗"}[s.OK]
	return colored(s.OK, fmt.Sprintf("%s %s · %s", mark, s.Outcome, Count(s.Requests, "request", "requests")))
}

// colored is text in a column, green or red.
func colored(good bool, text string) string {
	text = fmt.Sprintf("%-*s", sideWidth, text)
	if !*color {
		return text
	}
	return map[bool]string{true: "\x1b[32m", false: "\x1b[31m"}[good] + text + "\x1b[0m"
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

// Verdict is how the program fared: "never", or when it healed, and at what price.
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
