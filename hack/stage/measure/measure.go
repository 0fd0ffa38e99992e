// SPDX-License-Identifier: Apache-2.0

// Package measure tells what each patch of the small series buys. It builds the
// sample controller of testdata and the benchmarks of hack/bench on the tree
// after each patch, on stock and on the full fork, and runs them.
package measure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

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
	figures := newFigures()
	for i, column := range columns {
		step := fmt.Sprintf("%d of %d, %s", i+1, len(columns), column.Name)
		dir := filepath.Join(b.work, fmt.Sprint(i))
		if err := b.write(dir, column); err != nil {
			return "", err
		}
		b.say(begun, step+": benchmarks")
		if err := b.benchmarks(ctx, dir, column, figures.of(column.Name)); err != nil {
			return "", fmt.Errorf("%s: %w", column.Name, err)
		}
		b.say(begun, step+": replays")
		if err := b.replays(ctx, dir, strings.TrimSpace(assets), column, figures); err != nil {
			return "", fmt.Errorf("%s: %w", column.Name, err)
		}
	}
	b.say(begun, "done")
	return figures.page(columns, b.machine(ctx)), nil
}

func (b *bench) say(begun time.Time, what string) {
	fmt.Fprintf(b.progress, "%5.0f s  %s\n", time.Since(begun).Seconds(), what)
}

// write writes a column's tree, unless the module cache has it.
func (b *bench) write(dir string, column Column) error {
	if column.Stock {
		return os.Mkdir(dir, 0o755)
	}
	for name, file := range column.Files {
		full := filepath.Join(dir, "tree", filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return fmt.Errorf("write the tree of %s: %w", column.Name, err)
		}
		if err := os.WriteFile(full, file.Data, 0o644); err != nil {
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

// command runs a command and returns what it printed. What it said is in the error.
func (b *bench) command(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(append(cmd.Environ(), "GOWORK=off"), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second // the replays stop an API server
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return stdout.String(), fmt.Errorf("%s %s: %w: %s", name, args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// machine says what was measured on.
func (b *bench) machine(ctx context.Context) string {
	version, err := b.command(ctx, b.root, nil, "go", "env", "GOOS", "GOARCH", "GOVERSION")
	if err != nil {
		version = ""
	}
	cpu := ""
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				cpu = strings.TrimSpace(value) + ", "
				break
			}
		}
	}
	return cpu + strings.Join(strings.Fields(version), " ") + ", " + time.Now().UTC().Format(time.DateOnly)
}
