// SPDX-License-Identifier: Apache-2.0

// Package gotest runs go test and reads what it says.
package gotest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/freshmapper/freshmapper/hack/dev/proc"
)

// State is what a test came to. A higher one is better.
type State int

// The states. Absent is that of a test which there is not.
const (
	Absent State = iota
	Failed
	Skipped
	Passed
)

func (s State) String() string { return [...]string{"absent", "failed", "skipped", "passed"}[s] }

// Test is a test or subtest that was run. One without a name stands for a package
// that failed though none of its tests did: it was not built, say.
type Test struct {
	Package, Name string
	State         State
	Time          time.Duration
	Said          string // what it printed, if it did not pass
}

// Report is what a run of go test came to.
type Report struct {
	Tests []*Test
	CPU   time.Duration
}

// Command is "go test -json args...".
type Command struct {
	Dir      string
	Env      []string
	Args     []string
	Progress io.Writer // gets a line for each package, and what failed tests have printed
}

// Run runs the command. It returns an error if go test failed.
func (c Command) Run(ctx context.Context) (*Report, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe to go test: %w", err)
	}
	report := &Report{}
	done := make(chan error, 1)
	go func() {
		err := report.read(read, c.Progress)
		_, _ = io.Copy(io.Discard, read) // else go test would wait for a reader
		done <- err
	}()
	args := append([]string{"go", "test", "-json"}, c.Args...)
	cpu, err := proc.Command{Dir: c.Dir, Env: c.Env, Args: args, Stdout: write, Stderr: c.Progress}.Run(ctx)
	report.CPU = cpu
	_ = write.Close()
	if problem := <-done; err == nil {
		err = problem
	}
	_ = read.Close()
	return report, err
}

// Read reads what "go test -json" wrote.
func Read(from io.Reader) (*Report, error) {
	report := &Report{}
	return report, report.read(from, io.Discard)
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// reader holds what is not known to the end yet.
type reader struct {
	report   *Report
	progress io.Writer
	running  map[string]*Test // by package and name
	failed   map[string]bool  // packages with a test that did
}

// read reads events. Lines that are none come from the go command.
func (r *Report) read(from io.Reader, progress io.Writer) error {
	to := reader{report: r, progress: progress, running: map[string]*Test{}, failed: map[string]bool{}}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Action == "" {
			fmt.Fprintln(progress, lines.Text())
			continue
		}
		to.event(e)
	}
	// The process of these ended without a word about them.
	for _, test := range r.Tests {
		if test.State == Absent {
			test.State = Failed
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read what go test says: %w", err)
	}
	return nil
}

var states = map[string]State{"pass": Passed, "fail": Failed, "skip": Skipped}

func (r *reader) event(e event) {
	key := e.Package + " " + e.Test
	test := r.running[key]
	if test == nil && e.Package != "" {
		test = &Test{Package: e.Package, Name: e.Test}
		r.running[key] = test
		if e.Test != "" {
			r.report.Tests = append(r.report.Tests, test)
		}
	}
	switch state, ends := states[e.Action]; {
	case e.Action == "build-output":
		fmt.Fprint(r.progress, e.Output)
	case e.Action == "output":
		test.Said += e.Output
	case !ends:
	case e.Test == "":
		r.endPackage(test, e, state)
	default:
		r.end(test, e, state)
	}
}

func (r *reader) end(test *Test, e event, state State) {
	test.State, test.Time = state, time.Duration(e.Elapsed*float64(time.Second))
	switch state {
	case Passed:
		test.Said = ""
	case Failed:
		r.failed[e.Package] = true
		fmt.Fprintf(r.progress, "FAIL %s %s (%.1fs)\n%s", e.Package, e.Test, e.Elapsed, test.Said)
	}
}

// endPackage also ends tests that were running when their process ended.
func (r *reader) endPackage(all *Test, e event, state State) {
	for _, test := range r.report.Tests {
		if test.Package == e.Package && test.State == Absent {
			r.end(test, event{Package: e.Package, Test: test.Name}, Failed)
		}
	}
	switch {
	case state == Failed && !r.failed[e.Package]:
		all.State = Failed
		r.report.Tests = append(r.report.Tests, all)
		fmt.Fprintf(r.progress, "FAIL %s (%.1fs)\n%s", e.Package, e.Elapsed, all.Said)
	case state == Skipped: // it has no tests
	default:
		fmt.Fprintf(r.progress, "%-4s %s (%.1fs)\n", map[State]string{Passed: "ok", Failed: "FAIL"}[state], e.Package, e.Elapsed)
	}
}

// Count is how many tests came to a state.
func (r *Report) Count(state State) int {
	n := 0
	for _, test := range r.Tests {
		if test.State == state {
			n++
		}
	}
	return n
}

// Reason is what a skipped test has given as its reason.
func (t *Test) Reason() string {
	var lines []string
	for _, line := range strings.Split(t.Said, "\n") {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " ")
}
