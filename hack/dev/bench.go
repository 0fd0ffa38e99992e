// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/freshmapper/freshmapper/hack/dev/proc"
)

const benchUsage = `usage: hack/bench.sh [-quick] [-count N] [-o DIR] [-before FILE]

Measures this project's mapper beside controller-runtime's and client-go's on
an API server in memory (hack/bench), and writes a page with tables, the
figures to reach, plots, and benchstat's view.

  -count N      rounds, default 8; about 2 minutes each on two quiet cores, the first some more
  -o DIR        where to write, default hack/bench/results
  -before FILE  raw.txt of an earlier run, to compare ours with what it was then
  -quick        one short round, for a look; the default of -o is a temporary folder
`

// family is what runs in a process of its own. A round runs every family once, the
// mappers next to each other, so that what else the machine does falls on all of
// them alike. hack/bench/doc.go says what the families are.
type family struct {
	say, pattern string
	quick, full  string // run time of each benchmark
	processors   int
	once         bool // in the first round only: it takes minutes
}

var families = []family{
	{"hits", "Hit", "10ms", "40ms", 1, false},
	{"", "HitParallel", "10ms", "40ms", 2, false},
	{"discovery", "Publish|Cold|Miss|Refresh", "20ms", "100ms", 2, false},
	{"heap, many mappers, storms, latency, groups that hang", "OnceHeap", "1x", "1x", 2, false},
	{"", "OnceFleet|OnceStorm", "1x", "1x", 2, false},
	{"", "OnceLatency", "1x", "1x", 2, false},
	{"", "OnceApart|OnceBeside|OnceReset", "1x", "1x", 2, false},
	{"fleets, which take a few minutes, once", "OnceClusters|OnceReconciles", "1x", "1x", 2, true},
}

// benchmark is one run.
type benchmark struct {
	*checkout
	work string
	cpu  string       // the line of go test that names it
	raw  bytes.Buffer // lines of results
}

func bench(ctx context.Context, c *checkout, args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	quick := flags.Bool("quick", false, "")
	count := flags.Uint("count", 0, "")
	out := flags.String("o", "", "")
	before := flags.String("before", "", "")
	if err := c.parse(flags, args, benchUsage); err != nil {
		return err
	}
	work, remove, err := scratch()
	if err != nil {
		return err
	}
	defer remove()
	b := &benchmark{checkout: c, work: work}
	report := []string{filepath.Join(work, "report"), *out}
	if *before != "" { // a copy: this run may replace it
		report = append(report, filepath.Join(work, "before.txt"))
		text, err := os.ReadFile(*before)
		if err == nil {
			err = os.WriteFile(report[2], text, 0o600)
		}
		if err != nil {
			return fmt.Errorf("-before needs the raw.txt of an earlier run: %w", err)
		}
	}
	if report[1], err = b.results(*out, *quick); err != nil {
		return err
	}
	if *count == 0 {
		*count = 8
		if *quick {
			*count = 1
		}
	}
	begun := time.Now()
	if err := b.rounds(ctx, *count, *quick); err != nil {
		return err
	}
	c.say("writing %s", report[1])
	if err := b.write(ctx, report[1]); err != nil {
		return err
	}
	if err := c.run(ctx, c.root, report...); err != nil {
		return err
	}
	c.say("done in %s", time.Since(begun).Round(time.Second))
	return nil
}

// results makes the folder to write to.
func (b *benchmark) results(out string, quick bool) (string, error) {
	switch {
	case out == "" && quick:
		return os.MkdirTemp("", "freshmapper-bench-")
	case out == "":
		return b.path("hack/bench/results"), nil
	}
	out, err := filepath.Abs(out)
	if err == nil {
		err = os.MkdirAll(out, 0o755)
	}
	if err != nil {
		return "", fmt.Errorf("make the folder to write to: %w", err)
	}
	return out, nil
}

func (b *benchmark) rounds(ctx context.Context, count uint, quick bool) error {
	b.say("building the benchmarks")
	for _, args := range [][]string{
		{"go", "test", "-c", "-o", filepath.Join(b.work, "bench.test"), "."},
		{"go", "build", "-o", filepath.Join(b.work, "report"), "./report"},
	} {
		if err := b.run(ctx, b.path("hack/bench"), args...); err != nil {
			return err
		}
	}
	for round := range count {
		for _, f := range families {
			if f.once && round > 0 {
				continue
			}
			if f.say != "" {
				b.say("round %d of %d, %s: %s", round+1, count, time.Now().Format(time.TimeOnly), f.say)
			}
			duration := f.full
			if quick {
				duration = f.quick
			}
			if err := b.family(ctx, f, duration); err != nil {
				return err
			}
		}
	}
	return nil
}

// family runs a family and keeps its results. The header of each process would be in
// them once for each, so only the processor's name is kept.
func (b *benchmark) family(ctx context.Context, f family, duration string) error {
	var said, logged bytes.Buffer // client-go logs what hangs
	_, err := proc.Command{
		Dir: b.work, Stdout: &said, Stderr: &logged,
		Args: []string{
			filepath.Join(b.work, "bench.test"), "-test.run", "^$", "-test.bench", "^Benchmark(" + f.pattern + ")$", "-test.benchtime", duration,
			"-test.cpu", fmt.Sprint(f.processors), "-test.timeout", "30m",
		},
	}.Run(ctx)
	if err != nil {
		fmt.Fprint(b.stderr, &said, &logged)
		return fmt.Errorf("the benchmarks of %s failed: %w", f.pattern, err)
	}
	for _, line := range strings.SplitAfter(said.String(), "\n") {
		switch {
		case strings.HasPrefix(line, "cpu: "):
			b.cpu = line
		case strings.HasPrefix(line, "Benchmark"):
			b.raw.WriteString(line)
		}
	}
	return nil
}

// write writes raw.txt, and what benchstat makes of it.
func (b *benchmark) write(ctx context.Context, out string) error {
	header, err := b.header(ctx)
	if err != nil {
		return err
	}
	raw := filepath.Join(out, "raw.txt")
	if err := os.WriteFile(raw, append([]byte(header), b.raw.Bytes()...), 0o644); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	stats := ""
	for _, view := range [][]string{
		{"-col", "/mapper@(stock deferred ours)"},
		{"-filter", "/mapper:floor OR .name:Publish"},
	} { // "raw.txt=" is what benchstat calls it, else the path is in its tables
		args := append([]string{"go", "tool", "-modfile=" + b.path("hack/tools/go.mod"), "benchstat"}, append(view, "raw.txt="+raw)...)
		said, err := proc.Output(ctx, b.root, nil, args...)
		if err != nil {
			return err
		}
		stats += said + "\n"
	}
	if err := os.WriteFile(filepath.Join(out, "benchstat.txt"), []byte(stats), 0o644); err != nil {
		return fmt.Errorf("write what benchstat says: %w", err)
	}
	return nil
}

// header says what was measured and where, as configuration lines of the Go
// benchmark format.
func (b *benchmark) header(ctx context.Context) (string, error) {
	versions, err := proc.Output(ctx, b.path("hack/bench"), nil, "go", "list", "-m", "-f", "{{.Version}}", "sigs.k8s.io/controller-runtime", "k8s.io/client-go")
	if err != nil {
		return "", err
	}
	runtimeVersion, clientVersion, _ := strings.Cut(versions, "\n")
	return fmt.Sprintf("date: %s\ngo: %s\ngoos: %s\ngoarch: %s\n%scores: %d\ncontroller-runtime: %s\nclient-go: %s\n\n",
		time.Now().UTC().Format(time.DateOnly), runtime.Version(), runtime.GOOS, runtime.GOARCH, b.cpu, runtime.NumCPU(), runtimeVersion, clientVersion), nil
}
