// SPDX-License-Identifier: Apache-2.0

// Package gotest runs go test and reads what it says.
package gotest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
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
	progress := &locked{to: c.Progress}
	r := &reader{progress: progress, known: map[string]*Test{}, failed: map[string]bool{}}
	args := append([]string{"go", "test", "-json"}, c.Args...)
	cpu, err := proc.Command{Dir: c.Dir, Env: c.Env, Args: args, Stdout: r, Stderr: progress}.Run(ctx)
	r.report.CPU = cpu
	for _, test := range r.report.Tests {
		if test.State == Absent { // its process ended without a word about it
			test.State = Failed
		}
	}
	return &r.report, err
}

// locked is for two: the reader, and what the go command says on stderr meanwhile.
type locked struct {
	mu sync.Mutex
	to io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(p)
}

// reader is what go test -json writes to.
type reader struct {
	report   Report
	progress io.Writer
	rest     []byte           // of a line, the beginning
	known    map[string]*Test // by package and name
	failed   map[string]bool  // packages with a test that did
}

func (r *reader) Write(p []byte) (int, error) {
	r.rest = append(r.rest, p...)
	for {
		line, rest, whole := bytes.Cut(r.rest, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		r.rest = rest
		var e event
		if json.Unmarshal(line, &e) != nil || e.Action == "" { // the go command's own
			fmt.Fprintf(r.progress, "%s\n", line)
			continue
		}
		r.event(e)
	}
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

var states = map[string]State{"pass": Passed, "fail": Failed, "skip": Skipped}

func (r *reader) event(e event) {
	key := e.Package + " " + e.Test
	test := r.known[key]
	if test == nil {
		test = &Test{Package: e.Package, Name: e.Test}
		r.known[key] = test
		if e.Test != "" {
			r.report.Tests = append(r.report.Tests, test)
		}
	}
	switch state, ends := states[e.Action]; {
	case e.Action == "build-output":
		fmt.Fprint(r.progress, e.Output)
	case e.Action == "output":
		test.Said += e.Output
	case ends && e.Test != "":
		r.end(test, state, e.Elapsed)
	case ends:
		r.endPackage(test, state, e.Elapsed)
	}
}

func (r *reader) end(test *Test, state State, seconds float64) {
	test.State, test.Time = state, time.Duration(seconds*float64(time.Second))
	switch state {
	case Passed:
		test.Said = ""
	case Failed:
		r.failed[test.Package] = true
		fmt.Fprintf(r.progress, "FAIL %s (%.1fs)\n%s", strings.TrimSpace(test.Package+" "+test.Name), seconds, test.Said)
	}
}

// endPackage also ends tests that were running when their process ended.
func (r *reader) endPackage(all *Test, state State, seconds float64) {
	for _, test := range r.report.Tests {
		if test.Package == all.Package && test.State == Absent {
			r.end(test, Failed, 0)
		}
	}
	switch {
	case state == Passed:
		fmt.Fprintf(r.progress, "ok   %s (%.1fs)\n", all.Package, seconds)
	case state == Failed && r.failed[all.Package]:
		fmt.Fprintf(r.progress, "FAIL %s (%.1fs)\n", all.Package, seconds)
	case state == Failed:
		r.report.Tests = append(r.report.Tests, all)
		r.end(all, Failed, seconds)
	} // a package that is skipped has no tests
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
