// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// stage is a test binary, built once with all changes in it.
type stage struct {
	module, pkg string // folders: of the module from the root, of the package from the module
	flags       string // of the binary

	dir, binary string
	limit       time.Duration // of a run
}

// The tests of apiutil take longest. So a change there first comes to the tests of
// the changed files, and then to all tests of apiutil.
const apiutil, nearest, lincheck = "apiutil", "apiutil, tests of the files", "hack/lincheck"

// stageOf is the stage with a name, which is the folder of a package unless it is one of
// these.
func stageOf(name string) *stage {
	switch name {
	case lincheck: // The same histories each time: what it catches it catches again.
		return &stage{module: lincheck, pkg: ".", flags: "-test.run=^TestHistories$ -seed=1 -histories=100"}
	case nearest:
		return &stage{pkg: apiutil, flags: "-test.run=Confirm|Served|WaitForKinds|NegativeTTL|Lookup|Miss|ErrorText"}
	}
	return &stage{pkg: name, flags: "-test.skip=^TestDebugPageInBrowser$"} // no browser runs in the memory that a stage has
}

// stagesOf lists the stages that a change of a file has to pass, the nearest and fastest first.
func stagesOf(file string) []string {
	first := filepath.Dir(file)
	if first == apiutil {
		first = nearest
	}
	return slices.Compact([]string{first, "internal/reload", lincheck, apiutil})
}

// build builds the stage's tests with the overlay.
func (s *stage) build(t *testing.T, root, dir, overlay string) {
	t.Helper()
	module := filepath.Join(root, s.module)
	s.dir = filepath.Join(module, s.pkg)
	s.binary = filepath.Join(dir, filepath.Base(s.dir)+".test")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", s.binary, "./"+s.pkg)
	cmd.Dir, cmd.Env = module, append(os.Environ(), "GOWORK=off")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the tests of %s with the changes: %v\n%s", s.dir, err, output)
	}
}

// try runs the tests without any change, which have to pass, and takes their time.
func (s *stage) try(t *testing.T) {
	t.Helper()
	s.limit = 10 * time.Minute
	begin := time.Now()
	if output, failed := s.run(t.Context(), 0, nil); failed {
		t.Fatalf("the tests of %s fail without a change:\n%s", s.dir, output[max(0, len(output)-3000):])
	}
	s.limit = 30*time.Second + 3*time.Since(begin)
}

// catches returns the tests that catch a change, or "". A failure counts if the
// same tests fail again by themselves, at the second, third or fourth try, and pass
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
		if len(tests) == 0 {
			return "the end of the process"
		}
		return strings.Join(tests, ", ")
	}
	return ""
}

// processor is what the tests have used of it.
var processor atomic.Int64

// run runs the tests, or some of them, with a change in force, if id is not 0. They
// have low priority, and not all of the memory.
func (s *stage) run(ctx context.Context, id int, tests []string) (output string, failed bool) {
	args := append([]string{"-c", `ulimit -v 8000000 2>&-; exec nice "$0" "$@"`, s.binary, "-test.failfast", "-test.timeout=" + s.limit.String()}, strings.Fields(s.flags)...)
	if len(tests) > 0 {
		args = append(args, "-test.run=^("+strings.Join(tests, "|")+")$")
	}
	ctx, cancel := context.WithTimeout(ctx, s.limit+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "MUTANT="+strconv.Itoa(id))
	cmd.WaitDelay = time.Second
	said, err := cmd.CombinedOutput()
	if cmd.ProcessState != nil {
		processor.Add(int64(cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()))
	}
	return string(said), err != nil
}

var (
	failLine = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)
	hungLine = regexp.MustCompile(`(?m)^\t\t(\w+)(?:/\S*)? \([\d.hms]+\)$`)
)

// failedTests lists the tests that failed, or that were running when the process
// ended; nothing if the output does not say.
func failedTests(output string) []string {
	found := failLine.FindAllStringSubmatch(output, -1)
	if len(found) == 0 {
		found = hungLine.FindAllStringSubmatch(output, -1)
	}
	var names []string
	for _, match := range found {
		if !slices.Contains(names, match[1]) {
			names = append(names, match[1])
		}
	}
	return names
}
