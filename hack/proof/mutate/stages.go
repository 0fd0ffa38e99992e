// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// stage is a test binary, built once with all changes in it.
type stage struct {
	module, pkg string // folders: of the module from the root, of the package from the module
	args        []string
	dir, binary string
	limit       time.Duration // of a run
}

// browser is what a browser in the memory of a stage can't do.
const browser = "-test.skip=^TestDebugPageInBrowser$"

// lincheck runs the same histories each time, so that what it catches it catches again.
var lincheck = stage{module: "hack/lincheck", pkg: ".", args: []string{"-test.run=^TestHistories$", "-seed=1", "-histories=100"}}

// farthest is the stage that takes longest. Changes in that package come to nearest
// before it, which are the tests of what is changed there.
const farthest, nearest = "apiutil", "apiutil, tests of the files"

const ofTheFiles = "-test.run=Confirm|Served|WaitForKinds|NegativeTTL|Lookup|Miss|ErrorText"

// stagesOf lists what a change of a file has to pass, the nearest and fastest first.
func (o options) stagesOf(file string) []string {
	names := []string{filepath.Dir(file)}
	if names[0] == farthest {
		names[0] = nearest
	}
	for _, name := range []string{"internal/reload", lincheck.module, farthest} {
		if !slices.Contains(names, name) && !(o.near && name == farthest) {
			names = append(names, name)
		}
	}
	return names
}

func newStage(name string) *stage {
	switch name {
	case lincheck.module:
		s := lincheck
		return &s
	case nearest:
		return &stage{pkg: farthest, args: []string{ofTheFiles}}
	}
	return &stage{pkg: name, args: []string{browser}}
}

// build builds the stage's tests with the overlay.
func (s *stage) build(ctx context.Context, root, dir, overlay string) error {
	module := filepath.Join(root, s.module)
	s.dir = filepath.Join(module, s.pkg)
	s.binary = filepath.Join(dir, filepath.Base(s.dir)+".test")
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", s.binary, "./"+s.pkg)
	cmd.Dir, cmd.Env = module, append(os.Environ(), "GOWORK=off")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the tests of %s with the changes: %w\n%s", s.dir, err, output)
	}
	return nil
}

// try runs the tests without any change, which have to pass, and takes their time.
func (s *stage) try(ctx context.Context) error {
	s.limit = 10 * time.Minute
	begin := time.Now()
	if output, failed := s.run(ctx, 0, nil); failed {
		return fmt.Errorf("the tests of %s fail without a change:\n%s", s.dir, output[max(0, len(output)-3000):])
	}
	s.limit = 30*time.Second + 3*time.Since(begin)
	return nil
}

// catches says by which test a change is caught, or "". A failure counts if the tests
// that fail do so again by themselves, at the second, third or fourth try, and pass
// without the change right after.
func (s *stage) catches(ctx context.Context, id int) string {
	output, failed := s.run(ctx, id, nil)
	if !failed {
		return ""
	}
	tests := failedTests(output)
	for range 3 {
		if _, again := s.run(ctx, id, tests); !again {
			continue
		}
		if _, broken := s.run(ctx, 0, tests); broken || ctx.Err() != nil {
			return ""
		}
		return strings.Join(append(tests, reason(output)...), ", ")
	}
	return ""
}

// processor is what the tests have used of it.
var processor atomic.Int64

// run runs the tests, or some of them, with a change in force, if id is not 0. They
// have low priority, and not all of the memory.
func (s *stage) run(ctx context.Context, id int, tests []string) (output []byte, failed bool) {
	args := append([]string{"-c", `ulimit -v 8000000 2>&-; exec nice "$0" "$@"`, s.binary, "-test.failfast", "-test.timeout=" + s.limit.String()}, s.args...)
	if len(tests) > 0 {
		args = append(args, "-test.run=^("+strings.Join(tests, "|")+")$")
	}
	ctx, cancel := context.WithTimeout(ctx, s.limit+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "MUTANT="+strconv.Itoa(id))
	cmd.WaitDelay = time.Second
	output, err := cmd.CombinedOutput()
	if cmd.ProcessState != nil {
		processor.Add(int64(cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()))
	}
	return output, err != nil
}

var (
	failLine = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)
	hungLine = regexp.MustCompile(`(?m)^\t\t(\w+)(?:/\S*)? \([\d.hms]+\)$`)
)

// failedTests lists the tests that failed, or that were running when the process
// ended; nothing if the output does not say.
func failedTests(output []byte) []string {
	var names []string
	found := failLine.FindAllSubmatch(output, -1)
	if len(found) == 0 {
		found = hungLine.FindAllSubmatch(output, -1)
	}
	for _, match := range found {
		if name := string(match[1]); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// reason returns how the process ended, where it was not by a test that names itself.
func reason(output []byte) []string {
	switch {
	case bytes.Contains(output, []byte("panic: test timed out")):
		return []string{"timeout"}
	case bytes.Contains(output, []byte("deadlock")):
		return []string{"deadlock"}
	case bytes.Contains(output, []byte("\npanic: ")), bytes.HasPrefix(output, []byte("panic: ")):
		return []string{"panic"}
	case len(failLine.FindAll(output, -1)) == 0:
		return []string{"the process failed"}
	}
	return nil
}
