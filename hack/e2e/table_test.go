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

// rows are the results of the replays that have ended. Some run at the same time.
var rows struct {
	sync.Mutex
	all []Row
}

// TestMain writes the table of the replays to FILE.table, if FRESHMAPPER_E2E_RESULTS
// names FILE.
func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // or controller-runtime complains on stderr that nobody did
	code := m.Run()
	if file := os.Getenv("FRESHMAPPER_E2E_RESULTS"); file != "" && len(rows.all) > 0 {
		if err := os.WriteFile(file+".table", []byte(table(rows.all)), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "the replays' results:", err)
			code = 1
		}
	}
	os.Exit(code)
}

const sideWidth = 38 // of a column, in characters

// table returns the timelines of replays, and a line for each. Replays of several programs may
// have run at the same time: those of one program are together again.
func table(rows []Row) string {
	slices.SortStableFunc(rows, func(a, b Row) int { return strings.Compare(a[0].Program, b[0].Program) })
	var timelines, summary strings.Builder
	program := ""
	for _, row := range rows {
		row.timeline(&timelines)
		if row[0].Program != program {
			program = row[0].Program
			fmt.Fprintf(&summary, "%-21s %sas expected\n", "time to heal", row.each(func(r Result) string { return fmt.Sprintf("%-*s ", sideWidth, r.Build) }))
		}
		unexpected := slices.ContainsFunc(row, func(r Result) bool { return !r.Expected })
		fmt.Fprintf(&summary, "%-21s %s%s\n", row[0].Replay, row.each(func(r Result) string { return colored(r.Healed, r.Verdict()) + " " }),
			colored(!unexpected, map[bool]string{false: "yes", true: "NO"}[unexpected]))
	}
	return timelines.String() + summary.String()
}

func (r Row) each(text func(Result) string) string {
	var all strings.Builder
	for _, result := range r {
		all.WriteString(text(result))
	}
	return all.String()
}

// timeline writes what was done, and how all sides took it. A change to the server has no
// outcome.
func (r Row) timeline(out *strings.Builder) {
	fmt.Fprintf(out, "%-12s %s\n%8s %-22s %s\n", r[0].Replay, r[0].Title, "s", "", r.each(func(r Result) string { return fmt.Sprintf("%-*s ", sideWidth, r.Build) }))
	for i, step := range r[0].Steps {
		fmt.Fprintf(out, "%8.2f %-22s", step.Seconds, step.What)
		out.WriteString(r.each(func(r Result) string {
			if i >= len(r.Steps) || r.Steps[i].Outcome == "" {
				return ""
			}
			return " " + r.Steps[i].outcome()
		}) + "\n")
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

// Row is how the builds of a program fared in one replay.
type Row []Result

// Result is how one build of a program fared in one replay.
type Result struct {
	Program  string
	Replay   string // R1
	Title    string
	Ours     bool
	Build    string // "stock v0.25.2", "fresh.NewManager" or "fork v0.25.2"
	Steps    []Step // the same number for all
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
