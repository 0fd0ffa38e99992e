// SPDX-License-Identifier: Apache-2.0

// Package measure tells what each patch of the small series buys. It builds the
// sample controller of testdata and the benchmarks of hack/bench on the tree
// after each patch, on stock and on the full fork, and runs them.
package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/freshmapper/freshmapper/hack/dev/proc"
	"github.com/freshmapper/freshmapper/hack/fork/gotool"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
	"github.com/freshmapper/freshmapper/hack/stage/series"
)

// Column is one tree that is measured.
type Column struct {
	Name  string
	Files tree.Files
	Stock bool // unchanged: nothing is replaced
	Ours  bool // the fork
}

// Columns are stock, the tree after each patch and the fork.
func Columns(upstream tree.Files, patches []series.Change, names []string, fork tree.Files) []Column {
	columns := []Column{{Name: "stock", Files: upstream, Stock: true}}
	for i, patch := range patches {
		columns = append(columns, Column{Name: names[i], Files: patch.Files})
	}
	return append(columns, Column{Name: "full fork", Files: fork, Ours: true})
}

// bench is one run: a checkout of ours, and a folder for what is built.
type bench struct {
	root, work string
	progress   io.Writer
}

// Run measures the columns with the checkout in root, and returns a page of
// Markdown. It takes about a quarter of an hour; progress is told what it does.
func Run(ctx context.Context, root string, columns []Column, progress io.Writer) (string, error) {
	for _, needed := range []string{"hack/bench/go.mod", "hack/e2e/go.mod", "testdata/consumers/heal/go.mod"} {
		if _, err := os.Stat(filepath.Join(root, needed)); err != nil {
			return "", fmt.Errorf("-measure needs a checkout of freshmapper as the current folder: %w", err)
		}
	}
	work, err := os.MkdirTemp("", "freshmapper-measure-")
	if err != nil {
		return "", fmt.Errorf("make a folder to measure in: %w", err)
	}
	defer os.RemoveAll(work)
	b := &bench{root: root, work: work, progress: progress}
	return b.run(ctx, columns)
}

func (b *bench) run(ctx context.Context, columns []Column) (string, error) {
	begun := time.Now()
	assets, err := b.command(ctx, b.root, nil, "bash", "hack/envtest.sh", "latest")
	if err != nil {
		return "", err
	}
	dir := func(i int) string { return filepath.Join(b.work, fmt.Sprint(i)) }
	for i, column := range columns {
		b.say(begun, "build on "+column.Name)
		if err := b.build(ctx, dir(i), column); err != nil {
			return "", fmt.Errorf("%s: %w", column.Name, err)
		}
	}
	figures := newFigures()
	// A round runs every column once, so that what else the machine does falls on
	// all of them alike.
	for round := range rounds {
		for i, column := range columns {
			b.say(begun, fmt.Sprintf("benchmarks, round %d of %d: %s", round+1, rounds, column.Name))
			if err := b.benchmarks(ctx, dir(i), figures.of(column.Name)); err != nil {
				return "", fmt.Errorf("%s: %w", column.Name, err)
			}
		}
	}
	for i, column := range columns[1:] {
		b.say(begun, "replays: "+column.Name)
		if err := b.replays(ctx, dir(i+1), assets, column, figures); err != nil {
			return "", fmt.Errorf("%s: %w", column.Name, err)
		}
	}
	b.say(begun, "done")
	return figures.page(columns, b.machine(ctx)), nil
}

func (b *bench) say(begun time.Time, what string) {
	fmt.Fprintf(b.progress, "%5.0f s  %s\n", time.Since(begun).Seconds(), what)
}

// build writes a column's tree, and builds what is to be run on it.
func (b *bench) build(ctx context.Context, dir string, column Column) error {
	if err := b.write(dir, column); err != nil {
		return err
	}
	if err := b.buildBenchmarks(ctx, dir, column); err != nil {
		return err
	}
	return b.buildHeal(ctx, dir, column)
}

// write writes a column's tree, unless the module cache has it.
func (b *bench) write(dir string, column Column) error {
	if column.Stock {
		return os.Mkdir(dir, 0o755)
	}
	for name, file := range column.Files {
		if err := file.Write(filepath.Join(dir, "tree"), name); err != nil {
			return fmt.Errorf("write the tree of %s: %w", column.Name, err)
		}
	}
	return nil
}

// module copies a module of the checkout's go.mod and go.sum to dir/NAME.mod and
// .sum, where controller-runtime is the column's tree, and returns the path of
// the first.
func (b *bench) module(ctx context.Context, dir, module string, column Column) (string, error) {
	from := filepath.Join(b.root, filepath.FromSlash(module))
	to := filepath.Join(dir, filepath.Base(module))
	for _, kind := range []string{"mod", "sum"} {
		data, err := os.ReadFile(filepath.Join(from, "go."+kind))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(to+"."+kind, data, 0o644)
		}
		if err != nil {
			return "", fmt.Errorf("copy go.%s of %s: %w", kind, module, err)
		}
	}
	if column.Stock {
		return to + ".mod", nil
	}
	_, err := b.command(ctx, from, nil, "go", "mod", "edit", "-replace", tree.Module+"="+filepath.Join(dir, "tree"), to+".mod")
	return to + ".mod", err
}

// command runs a command and returns what it printed.
func (b *bench) command(ctx context.Context, dir string, env []string, args ...string) (string, error) {
	return proc.Output(ctx, dir, append(env, "GOWORK=off"), args...)
}

// machine returns what was measured on.
func (b *bench) machine(ctx context.Context) string {
	version, err := b.command(ctx, b.root, nil, "go", "env", "GOOS", "GOARCH", "GOVERSION")
	if err != nil {
		version = ""
	}
	cpu := ""
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for _, line := range gotool.SplitLines(string(info)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				cpu = strings.TrimSpace(value) + ", "
				break
			}
		}
	}
	return cpu + fmt.Sprintf("%d cores, ", runtime.NumCPU()) + strings.Join(strings.Fields(version), " ") + ", " + time.Now().UTC().Format(time.DateOnly)
}
