// SPDX-License-Identifier: Apache-2.0

package e2e

import "fmt"

// Pair is how stock and fork fared in one replay. The tests append theirs to the file
// that FRESHMAPPER_E2E_RESULTS names, as one line of JSON.
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
	Millis   float64
}

// String is one line for a reader.
func (r Result) String() string {
	return fmt.Sprintf("%-12s %-14s %s", r.Replay, r.Build, r.Verdict())
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
