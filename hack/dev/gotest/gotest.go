// SPDX-License-Identifier: Apache-2.0

// Package gotest reads what go test -json says: hack/test.sh counts tests, and the
// matrix compares them by name.
package gotest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// Report is what runs of go test came to.
type Report struct{ Tests []*Test }

// Command is "go test -json args...".
type Command struct {
	Dir      string
	Env      []string
	Args     []string
	Progress io.Writer // gets what the go command and failed tests have printed
}

// Run runs the command. It returns an error if go test failed.
func (c Command) Run(ctx context.Context) (*Report, error) {
	var events bytes.Buffer
	args := append([]string{"go", "test", "-json"}, c.Args...)
	failed := proc.Command{Dir: c.Dir, Env: c.Env, Args: args, Stdout: &events, Stderr: c.Progress}.Run(ctx)
	report := &Report{}
	err := report.Read(&events)
	for _, test := range report.Tests {
		if test.State == Failed {
			fmt.Fprintf(c.Progress, "FAIL %s %s\n%s", test.Package, test.Name, test.Said)
		}
	}
	return report, errors.Join(failed, err)
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
	ImportPath, FailedBuild       string // of what was built
	Elapsed                       float64
}

var states = map[string]State{"pass": Passed, "fail": Failed, "skip": Skipped}

// Read adds the tests of one run of go test. A test whose end is missing has failed: its
// process ended without a word about it. Lines that are no events are the go command's own.
func (r *Report) Read(events io.Reader) error {
	run := &run{known: map[string]*Test{}, built: map[string]string{}}
	for lines := bufio.NewReader(events); ; {
		line, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil {
			run.add(e)
		}
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("read what go test said: %w", err)
		}
	}
	for _, test := range run.tests {
		if test.State == Absent {
			test.State = Failed
		}
	}
	r.Tests = append(r.Tests, run.tests...)
	return nil
}

// run is one run of go test.
type run struct {
	tests []*Test
	known map[string]*Test  // by package and name; a package by itself is one without a name
	built map[string]string // what the compiler said, by what it built
}

func (r *run) add(e event) {
	if e.Action == "build-output" {
		r.built[e.ImportPath] += e.Output
		return
	}
	key := e.Package + " " + e.Test
	test := r.known[key]
	if test == nil {
		test = &Test{Package: e.Package, Name: e.Test}
		r.known[key] = test
		if e.Test != "" {
			r.tests = append(r.tests, test)
		}
	}
	state, ends := states[e.Action]
	switch {
	case e.Action == "output":
		test.Said += e.Output
	case ends && e.Test != "":
		test.State, test.Time = state, time.Duration(e.Elapsed*float64(time.Second))
		if state == Passed {
			test.Said = ""
		}
	case ends && state == Failed:
		r.endPackage(test, r.built[e.FailedBuild])
	}
}

// endPackage is for a package that failed: because of a test, of one whose end is
// missing, or else by itself.
func (r *run) endPackage(all *Test, built string) {
	explained := false
	for _, test := range r.tests {
		if test.Package == all.Package && test.State <= Failed {
			test.State, explained = Failed, true
		}
	}
	if !explained {
		all.State, all.Said = Failed, built+all.Said
		r.tests = append(r.tests, all)
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
