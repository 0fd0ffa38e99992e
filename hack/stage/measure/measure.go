// SPDX-License-Identifier: Apache-2.0

// Package measure measures what each patch of the small series buys. It builds the
// sample controller of testdata and the benchmarks of hack/bench on stock, on the
// tree after each patch and on the full fork, and runs them.
package measure

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/freshmapper/freshmapper/hack/dev/proc"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// Column is one tree that is measured.
type Column struct {
	Name  string
	Files tree.Files // of the first column none

	dir     string                        // for what is built on it
	best    map[string]map[string]float64 // the lowest figure, by benchmark and unit
	replays map[string]outcome
}

// bench is one run: a checkout of ours, a folder with an API server.
type bench struct {
	root, assets string
	columns      []*Column // the first is stock
	cpu          string    // as benchmarks name it
}

const (
	benchModule = "hack/bench"
	healModule  = "testdata/consumers/heal"
	rounds      = 3
)

// Run measures the columns, of which the first is stock, with the checkout in
// root, and returns a page of Markdown. It tells progress what it does.
func Run(ctx context.Context, root string, columns []*Column, progress io.Writer) (string, error) {
	if _, err := os.Stat(filepath.Join(root, benchModule, "go.mod")); err != nil {
		return "", fmt.Errorf("run -measure in the root folder of a checkout of freshmapper: %w", err)
	}
	work, err := os.MkdirTemp("", "freshmapper-measure-")
	if err != nil {
		return "", fmt.Errorf("make a folder to measure in: %w", err)
	}
	defer os.RemoveAll(work)
	b := &bench{root: root, columns: columns}
	if b.assets, err = b.command(ctx, ".", nil, "bash", "hack/envtest.sh", "latest"); err != nil {
		return "", err
	}
	for i, c := range columns {
		c.dir = filepath.Join(work, strconv.Itoa(i))
		c.best, c.replays = map[string]map[string]float64{}, map[string]outcome{}
	}
	if err := b.run(ctx, progress); err != nil {
		return "", err
	}
	return b.page(), nil
}

// run does each step with all columns before the next step, so that other load of
// the machine affects all of them alike.
func (b *bench) run(ctx context.Context, progress io.Writer) error {
	type step struct {
		what string
		do   func(context.Context, *Column) error
	}
	steps := []step{{"build", b.build}}
	for round := range rounds {
		steps = append(steps, step{fmt.Sprintf("benchmarks, round %d of %d", round+1, rounds), b.benchmarks})
	}
	begun := time.Now()
	for _, step := range append(steps, step{"replays", b.replay}) {
		for _, c := range b.columns {
			fmt.Fprintf(progress, "%5.0f s  %s: %s\n", time.Since(begun).Seconds(), step.what, c.Name)
			if err := step.do(ctx, c); err != nil {
				return fmt.Errorf("%s: %s: %w", step.what, c.Name, err)
			}
		}
	}
	return nil
}

// build builds benchmarks and sample controller in a workspace where the column's
// tree stands for controller-runtime.
func (b *bench) build(ctx context.Context, c *Column) error {
	if err := os.Mkdir(c.dir, 0o755); err != nil {
		return fmt.Errorf("make a folder to build in: %w", err)
	}
	replaced := filepath.Join(c.dir, "tree")
	for name, file := range c.Files {
		if err := file.Write(replaced, name); err != nil {
			return fmt.Errorf("write the tree: %w", err)
		}
	}
	workspace := []string{"GOWORK=" + filepath.Join(c.dir, "go.work")}
	commands := [][]string{
		{".", "go", "work", "init", filepath.Join(b.root, benchModule), filepath.Join(b.root, healModule)},
		{".", "go", "work", "edit", "-replace=" + tree.Module + "=" + replaced},
		{benchModule, "go", "test", "-c", "-o", filepath.Join(c.dir, "bench.test"), "."},
		{healModule, "go", "build", "-o", filepath.Join(c.dir, "heal"), "."},
	}
	if c == b.columns[0] {
		commands = slices.Delete(commands, 1, 2) // stock is not replaced
	}
	for _, args := range commands {
		if _, err := b.command(ctx, args[0], workspace, args[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// command runs a command in a folder of the checkout, or in one with a path of its
// own, and returns what it printed.
func (b *bench) command(ctx context.Context, dir string, env []string, args ...string) (string, error) {
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(b.root, dir)
	}
	return proc.Output(ctx, dir, append([]string{"GOWORK=off"}, env...), args...)
}
