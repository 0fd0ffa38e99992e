// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/freshmapper/freshmapper/hack/dev/gotest"
	"github.com/freshmapper/freshmapper/hack/dev/matrix"
)

// tests runs the tests of a package.
type tests struct {
	candidate
	timeout, assets string
	why             string // what was said last by a run in which something failed
}

// states are what tests came to, by name, ginkgo's specs included. That of a package
// that failed though none of its tests did is "".
type states map[string]gotest.State

// run runs those that are like the pattern in a tree.
func (p *tests) run(ctx context.Context, dir, pattern string) (states, error) {
	scratch, err := os.MkdirTemp("", "adopters")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch) //nolint:errcheck // a small file at most
	specs := filepath.Join(scratch, "specs.json")
	args := []string{"-short", "-count=1", "-p=1", "-vet=off", "-timeout=" + p.timeout, "-run=" + pattern, p.path}
	if p.ginkgo {
		args = append(args, "-args", "-ginkgo.json-report="+specs)
	}
	var said strings.Builder
	report, failed := gotest.Command{
		Dir: dir, Env: append(slices.Clip(goEnv), p.servers()...), Args: args, Progress: io.MultiWriter(os.Stderr, &said),
	}.Run(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	got := states{}
	for _, test := range report.Tests {
		got[test.Name] = test.State
	}
	if failed != nil {
		p.why = strings.ReplaceAll(lastWords(said.String()), dir+"/", "")
	}
	text, err := os.ReadFile(specs)
	if errors.Is(err, fs.ErrNotExist) {
		return got, nil
	} else if err != nil {
		return nil, err
	}
	return got, matrix.AddSpecs(got, text)
}

// servers tells envtest where its API server is, and to wait for it on a busy machine.
func (p *tests) servers() []string {
	return []string{"KUBEBUILDER_ASSETS=" + p.assets, "KUBEBUILDER_CONTROLPLANE_START_TIMEOUT=5m", "KUBEBUILDER_CONTROLPLANE_STOP_TIMEOUT=2m"}
}

var (
	colour  = regexp.MustCompile("\x1b\\[[0-9;]*m")
	problem = regexp.MustCompile(`(?i)error|panic:|unable|cannot|refused|failed to|no such`)
)

// lastWords is the first line that looks like a reason, for a list.
func lastWords(said string) string {
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

// differing are the names of tests that came to different things, sorted.
func (s states) differing(other states) []string {
	both := maps.Clone(s)
	maps.Copy(both, other)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(both)), func(name string) bool { return s[name] == other[name] })
}
