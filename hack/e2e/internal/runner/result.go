// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// resultsEnv names a file to which results are appended, one JSON object a line.
const resultsEnv = "FRESHMAPPER_E2E_RESULTS"

// Result is how one build of the program fared in one replay.
type Result struct {
	Program  string  `json:"program"`
	Replay   string  `json:"replay"` // R1
	Title    string  `json:"title"`
	Fork     bool    `json:"fork"`
	Build    string  `json:"build"` // "stock v0.25.2" or "fork v0.25.2"
	Steps    []Step  `json:"steps"` // the same number for stock and for fork
	Healed   bool    `json:"healed"`
	Tries    int     `json:"tries"`    // lookups after the change, the right one included
	Requests int     `json:"requests"` // discovery requests that they made
	Millis   float64 `json:"millis"`   // from the change to the right answer, or until given up
	Expected bool    `json:"expected"` // healed, or not, as the replay says it should be
}

// Step is one line of a replay's timeline.
type Step struct {
	Seconds  float64 `json:"seconds"`           // since the replay began
	What     string  `json:"what"`              // what was asked, or what changed on the server
	Outcome  string  `json:"outcome,omitempty"` // of what was asked; empty for a change
	OK       bool    `json:"ok"`
	Requests int     `json:"requests"`
	Millis   float64 `json:"millis"`
}

// String is one line for a reader.
func (r *Result) String() string {
	return fmt.Sprintf("%-12s %-14s %s", r.Replay, r.Build, r.Verdict())
}

// Verdict returns whether, when and at what price the program came right.
func (r *Result) Verdict() string {
	if !r.Healed {
		return fmt.Sprintf("never: %s, %s, %s", Count(r.Tries, "try", "tries"), r.price(), Duration(r.Millis))
	}
	if r.Tries == 1 {
		return fmt.Sprintf("%s, %s", Duration(r.Millis), r.price())
	}
	return fmt.Sprintf("%s, %s, %s", Duration(r.Millis), r.price(), Count(r.Tries, "try", "tries"))
}

// price is the number of requests, in words.
func (r *Result) price() string { return Count(r.Requests, "request", "requests") }

// Count is a number with its noun.
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Duration is a number of milliseconds, for a reader.
func Duration(millis float64) string {
	switch {
	case millis < 10:
		return fmt.Sprintf("%.1f ms", millis)
	default:
		return fmt.Sprintf("%.0f ms", millis)
	}
}

// Record appends results to the file that FRESHMAPPER_E2E_RESULTS names, if it
// names one. Tests that run at the same time may do so: what one appends stays
// together.
func Record(results ...*Result) (err error) {
	name := os.Getenv(resultsEnv)
	if name == "" {
		return nil
	}
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	for _, r := range results {
		if err := lines.Encode(r); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = f.Write(text.Bytes())
	return err
}

// ReadResults reads what Record wrote.
func ReadResults(in io.Reader) ([]*Result, error) {
	var results []*Result
	for lines := json.NewDecoder(in); ; {
		r := &Result{}
		switch err := lines.Decode(r); {
		case errors.Is(err, io.EOF):
			return results, nil
		case err != nil:
			return nil, fmt.Errorf("result %d: %w", len(results)+1, err)
		}
		results = append(results, r)
	}
}
