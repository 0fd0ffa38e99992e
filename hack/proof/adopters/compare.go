// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/freshmapper/freshmapper/hack/dev/gotest"
	"github.com/freshmapper/freshmapper/hack/dev/proc"
)

// again is how often a test that differs is run once more, alone, on either side.
const again = 3

// candidate is a package whose tests have controller-runtime's mapper in them.
type candidate struct {
	path           string
	server, ginkgo bool // its tests start an API server; use ginkgo
}

// compare builds an operator, and runs its tests on stock and fork.
func (t *trees) compare(ctx context.Context, r *result, o options, assets string) error {
	mod, err := readMod(ctx, t.stock)
	if err != nil {
		return err
	}
	r.begin(mod.requires(controllerRuntime))
	if r.Go, err = proc.Output(ctx, t.stock, goEnv, "go", "env", "GOVERSION"); err != nil {
		return err
	}
	r.Fork = "ok"
	if t.forked != nil {
		r.Fork = "failed: " + t.said[strings.LastIndex(t.said, "\n")+1:]
		return nil
	}
	progress("%s: build", t.Name)
	r.BuildStock, r.BuildFork = build(ctx, t.stock), build(ctx, t.fork)
	all, err := t.candidates(ctx)
	if err != nil {
		return err
	}
	r.Candidates = len(all)
	if !o.servers {
		all = slices.DeleteFunc(all, func(c candidate) bool { return c.server })
		r.Servers = r.Candidates - len(all)
	}
	for _, c := range all[:min(o.packages, len(all))] {
		p := &tests{candidate: c, timeout: o.timeout.String(), assets: assets}
		if err := t.comparePackage(ctx, r, p); err != nil {
			return err
		}
	}
	return nil
}

// candidates puts those that start an API server first: there the mapper has most to do.
func (t *trees) candidates(ctx context.Context) ([]candidate, error) {
	listed, err := proc.Output(ctx, t.stock, goEnv, "go", "list", "-e", "-test", "-f", `{{.ImportPath}} {{join .Deps " "}}`, "./...")
	if err != nil {
		return nil, err
	}
	var all []candidate
	for line := range strings.Lines(listed) {
		fields := strings.Fields(line)
		if path, test := strings.CutSuffix(fields[0], ".test"); test && slices.Contains(fields, controllerRuntime+"/pkg/client/apiutil") {
			all = append(all, candidate{
				path:   path,
				server: slices.Contains(fields, controllerRuntime+"/pkg/envtest"),
				ginkgo: slices.Contains(fields, "github.com/onsi/ginkgo/v2"),
			})
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		if a.server == b.server {
			return strings.Compare(a.path, b.path)
		}
		return map[bool]int{true: -1, false: 1}[a.server]
	})
	return all, nil
}

// comparePackage runs the tests of a package. One of which none passes on stock is
// no comparison.
func (t *trees) comparePackage(ctx context.Context, r *result, p *tests) error {
	short := strings.TrimPrefix(strings.TrimPrefix(p.path, t.Module), "/")
	progress("%s: tests of %s on stock", t.Name, short)
	stock, err := p.run(ctx, t.stock, "")
	if err != nil {
		return err
	}
	if stock.count(gotest.Passed) == 0 {
		r.NotRun = append(r.NotRun, short+": "+p.why)
		return nil
	}
	progress("%s: tests of %s on the fork", t.Name, short)
	fork, err := p.run(ctx, t.fork, "")
	if err != nil {
		return err
	}
	for _, part := range alone(stock.differing(fork)) {
		progress("%s: %s alone, for %d tests that differ", t.Name, part.pattern, len(part.names))
		said, err := part.settle(ctx, p, side{t.stock, stock}, side{t.fork, fork})
		if err != nil {
			return err
		}
		for _, text := range said {
			r.Again = append(r.Again, short+" "+text)
		}
	}
	r.add(short, stock, fork)
	return nil
}

// side is a tree, and the best that each test has come to in it.
type side struct {
	dir  string
	best states
}

// part are tests that go test can run without the others of their package.
type part struct {
	pattern string // "": the others, too; go test can't tell specs from one another
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

// settle runs the part again on both sides. A test is as good as it came to be at
// best; how often it passed is said.
func (p part) settle(ctx context.Context, of *tests, stock, fork side) ([]string, error) {
	var passed [2]map[string]int
	for i, s := range []side{stock, fork} {
		passed[i] = map[string]int{}
		p.note(s, s.best, passed[i])
		for range again {
			got, err := of.run(ctx, s.dir, p.pattern)
			if err != nil {
				return nil, err
			}
			p.note(s, got, passed[i])
		}
	}
	var said []string
	for _, name := range p.names {
		said = append(said, fmt.Sprintf("%s: of %d runs %d passed on stock, %d on the fork", display(name), again+1, passed[0][name], passed[1][name]))
	}
	return said, nil
}

func (p part) note(s side, got states, passed map[string]int) {
	for _, name := range p.names {
		if got[name] == gotest.Passed {
			passed[name]++
		}
		s.best[name] = max(s.best[name], got[name])
	}
}

func display(name string) string {
	if name == "" {
		return "(the package)"
	}
	return strings.Join(strings.Fields(name), " ")
}
