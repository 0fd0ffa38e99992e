// SPDX-License-Identifier: Apache-2.0

package adopters

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper/hack/dev/gotest"
	"github.com/freshmapper/freshmapper/hack/dev/matrix"
	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

// again is how often a test that differs is run once more, alone, on either side.
const again = 3

// candidate is a package whose tests have controller-runtime's mapper in them.
type candidate struct {
	path           string
	server, ginkgo bool // its tests start an API server; use ginkgo
}

// compare builds an operator, and runs its tests on stock and fork.
func (tr *trees) compare(ctx context.Context, t *testing.T) *result {
	r := &result{
		Operator: tr.operator, Runtime: readMod(ctx, t, tr.stock).requires(controllerRuntime), Go: output(ctx, t, tr.stock, "go", "env", "GOVERSION"),
		Machine: report.Machine(), Date: today(), Fork: tr.forked,
	}
	if r.Fork != "ok" {
		return r
	}
	r.BuildStock, r.BuildFork = build(ctx, t, tr.stock, os.DevNull, "./..."), build(ctx, t, tr.fork, os.DevNull, "./...")
	all := tr.candidates(ctx, t)
	r.Candidates = len(all)
	if !*servers {
		all = slices.DeleteFunc(all, func(c candidate) bool { return c.server })
		r.Servers = r.Candidates - len(all)
	}
	for _, c := range all[:min(*packages, len(all))] {
		tr.comparePackage(ctx, t, r, c)
	}
	return r
}

// candidates lists the packages, those that start an API server first: there the
// mapper has most to do.
func (tr *trees) candidates(ctx context.Context, t *testing.T) []candidate {
	var with, without []candidate
	for line := range strings.Lines(output(ctx, t, tr.stock, "go", "list", "-e", "-test", "-f", `{{.ImportPath}} {{join .Deps " "}}`, "./...")) {
		fields := strings.Fields(line)
		path, test := strings.CutSuffix(fields[0], ".test")
		if !test || !slices.Contains(fields, controllerRuntime+"/pkg/client/apiutil") {
			continue
		}
		c := candidate{path: path, server: slices.Contains(fields, controllerRuntime+"/pkg/envtest"), ginkgo: slices.Contains(fields, "github.com/onsi/ginkgo/v2")}
		if c.server {
			with = append(with, c)
		} else {
			without = append(without, c)
		}
	}
	return append(with, without...)
}

// side is a tree, with the results of a package's tests in it.
type side struct {
	dir    string
	best   states         // of all runs
	passed map[string]int // how often, of tests that are run again
}

// comparePackage runs the tests of a package on both sides. If none passes on stock, there
// is nothing to compare.
func (tr *trees) comparePackage(ctx context.Context, t *testing.T, r *result, c candidate) {
	short := strings.TrimPrefix(strings.TrimPrefix(c.path, tr.Module), "/")
	first, why := c.run(ctx, t, tr.stock, "")
	if first.count(gotest.Passed) == 0 {
		r.NotRun = append(r.NotRun, short+": "+why)
		return
	}
	stock := &side{tr.stock, first, map[string]int{}}
	fork := &side{tr.fork, nil, map[string]int{}}
	fork.best, _ = c.run(ctx, t, tr.fork, "")
	for _, part := range alone(stock.best.differing(fork.best)) {
		for _, s := range []*side{stock, fork} {
			s.note(part, s.best)
			for range again {
				got, _ := c.run(ctx, t, s.dir, part.pattern)
				s.note(part, got)
			}
		}
		for _, name := range part.names {
			r.Again = append(r.Again, fmt.Sprintf("%s %s: of %d runs %d passed on stock, %d on the fork", short, display(name), again+1, stock.passed[name], fork.passed[name]))
		}
	}
	r.add(short, stock.best, fork.best)
}

func (s *side) note(p part, got states) {
	for _, name := range p.names {
		if got[name] == gotest.Passed {
			s.passed[name]++
		}
		s.best[name] = max(s.best[name], got[name])
	}
}

// states are the results of tests by name, ginkgo's specs included. The name ""
// stands for a package that failed although none of its tests did.
type states map[string]gotest.State

// run runs the tests that match the pattern in a tree. If something fails, why is the
// first line that looks like a reason.
func (c candidate) run(ctx context.Context, t *testing.T, dir, pattern string) (got states, why string) {
	t.Helper()
	specs := filepath.Join(t.TempDir(), "specs.json")
	args := []string{"-short", "-count=1", "-p=1", "-vet=off", "-timeout=10m", "-run=" + pattern, c.path}
	if c.ginkgo {
		args = append(args, "-args", "-ginkgo.json-report="+specs)
	}
	env := append(slices.Clip(goEnv), "KUBEBUILDER_CONTROLPLANE_START_TIMEOUT=5m", "KUBEBUILDER_CONTROLPLANE_STOP_TIMEOUT=2m") // for a busy machine
	t.Logf("in %s: go test %s", dir, strings.Join(args, " "))
	var said strings.Builder
	report, failed := gotest.Command{Dir: dir, Env: env, Args: args, Progress: &said}.Run(ctx)
	if ctx.Err() != nil {
		t.Fatal(ctx.Err())
	}
	t.Log(said.String())
	if failed != nil {
		why = strings.ReplaceAll(reason(said.String()), dir+"/", "")
	}
	got = states{}
	for _, test := range report.Tests {
		got[test.Name] = test.State
	}
	text, err := os.ReadFile(specs)
	if errors.Is(err, fs.ErrNotExist) {
		return got, why
	}
	if err := errors.Join(err, matrix.AddSpecs(got, text)); err != nil {
		t.Fatal("read ginkgo's report:", err)
	}
	return got, why
}

var (
	colour  = regexp.MustCompile("\x1b\\[[0-9;]*m")
	problem = regexp.MustCompile(`(?i)error|panic:|unable|cannot|refused|failed to|no such`)
)

func reason(said string) string {
	for line := range strings.Lines(colour.ReplaceAllString(said, "")) {
		if line = strings.TrimSpace(line); problem.MatchString(line) {
			return line
		}
	}
	return "no test passes on stock, and it does not say why"
}

func (s states) count(of gotest.State) int {
	n := 0
	for _, is := range s {
		if is == of {
			n++
		}
	}
	return n
}

// names returns the names of the tests of both, sorted.
func (s states) names(other states) []string {
	both := maps.Clone(s)
	maps.Copy(both, other)
	return slices.Sorted(maps.Keys(both))
}

// differing returns the names of the tests with different results, sorted.
func (s states) differing(other states) []string {
	return slices.DeleteFunc(s.names(other), func(name string) bool { return s[name] == other[name] })
}

// part is a set of tests that go test can run without the others of their package.
type part struct {
	pattern string // "" runs the others, too: go test can't tell ginkgo's specs from one another
	names   []string
}

func alone(names []string) []part {
	var parts []part
	for _, name := range names {
		pattern := ""
		if top, _, _ := strings.Cut(name, "/"); name != "" && !strings.Contains(name, " ") {
			pattern = "^" + top + "$"
		}
		i := slices.IndexFunc(parts, func(p part) bool { return p.pattern == pattern })
		if i < 0 {
			i, parts = len(parts), append(parts, part{pattern: pattern})
		}
		parts[i].names = append(parts[i].names, name)
	}
	return parts
}

func display(name string) string {
	if name == "" {
		return "(the package)"
	}
	return strings.Join(strings.Fields(name), " ")
}
