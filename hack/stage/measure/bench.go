// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/gotool"
)

// A row is a line of the table that a benchmark gives.
type row struct {
	title     string
	benchmark string // its name up to the mapper
	unit      string // of the figure
	requests  bool   // and requests/op beside it
}

// rows are what is taken from hack/bench. %s is there for the kind of server.
var rows = []row{
	{title: "hit, 100 groups, RESTMapping with a version", benchmark: "Hit/groups=100/lookup=RESTMapping+version", unit: "ns/op"},
	{title: "miss of an absent group, no version, 500 groups", benchmark: "Miss/version=none/groups=500", unit: "ns/op", requests: true},
	{title: "200 concurrent misses of one kind, server of 20 ms, 500 groups", benchmark: "OnceStorm/groups=500", unit: "ns/op", requests: true},
	{title: "cold first lookup, 500 groups", benchmark: "Cold/groups=500", unit: "ns/op"},
	{title: "refresh with nothing changed, 500 groups", benchmark: "Refresh/changed=none/groups=500", unit: "ns/op", requests: true},
}

// requestRows are the rows of hack/bench's BenchmarkOnceRequests, each for two
// kinds of server.
var requestRows = []struct{ title, name string }{
	{"first lookup of all, with a version", "first"},
	{"hit", "hit"},
	{"miss, version given", "miss+version"},
	{"miss, no version, group not known to the server", "miss-unknown-group"},
	{"miss, no version, group known with 2 versions", "miss-known-group"},
	{"miss, no group", "miss-no-group"},
}

func requestBenchmark(server, row string) string {
	return "OnceRequests/server=" + server + "/row=" + row
}

// families are the benchmarks to run, each with its time and its processors.
var families = []struct{ pattern, time, processors string }{
	{"^BenchmarkHit$/^groups=100$/^lookup=RESTMapping\\+version$/mapper=%s", "100ms", "1"},
	{"^BenchmarkMiss$/version=none/^groups=500$/mapper=%s", "300ms", "2"},
	{"^BenchmarkCold$/^groups=500$/mapper=%s", "300ms", "2"},
	{"^BenchmarkRefresh$/changed=none/^groups=500$/mapper=%s", "300ms", "2"},
	{"^BenchmarkOnceStorm$/^groups=500$/mapper=%s", "1x", "2"},
	{"^BenchmarkOnceRequests$/././mapper=%s", "1x", "2"},
}

const rounds = 3

// buildBenchmarks builds hack/bench with a column's tree.
func (b *bench) buildBenchmarks(ctx context.Context, dir string, column Column) error {
	mod, err := b.module(ctx, dir, "hack/bench", column)
	if err != nil {
		return err
	}
	// A copied go.mod is elsewhere, so our own module has to be named in full.
	if _, err := b.command(ctx, b.root, nil, "go", "mod", "edit", "-replace", "github.com/freshmapper/freshmapper="+b.root, mod); err != nil {
		return err
	}
	_, err = b.command(ctx, filepath.Join(b.root, "hack/bench"), nil, "go", "test", "-modfile="+mod, "-mod=mod", "-c", "-o", filepath.Join(dir, benchProgram), ".")
	return err
}

const benchProgram = "bench.test"

// benchmarks measures a column once. What the benchmarks call stock is whatever is
// in the place of controller-runtime.
func (b *bench) benchmarks(ctx context.Context, dir string, to samples) error {
	for _, family := range families {
		out, err := b.command(ctx, dir, nil, filepath.Join(dir, benchProgram), "-test.run=^$", "-test.bench="+fmt.Sprintf(family.pattern, "stock"),
			"-test.benchtime="+family.time, "-test.cpu="+family.processors, "-test.timeout=10m")
		if err != nil {
			return err
		}
		to.read(out)
	}
	return to.complete()
}

// samples are the figures of a column, by benchmark and unit.
type samples map[string][]float64

func (s samples) key(benchmark, unit string) string { return benchmark + " " + unit }

// read adds what a run of benchmarks printed.
func (s samples) read(out string) {
	for _, line := range gotool.SplitLines(out) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(fields[0], "Benchmark"), "/mapper=")
		for i := 2; i+1 < len(fields); i += 2 {
			if value, err := strconv.ParseFloat(fields[i], 64); err == nil {
				key := s.key(name, fields[i+1])
				s[key] = append(s[key], value)
			}
		}
	}
}

// complete returns an error that names each benchmark without a figure: hack/bench
// may have changed.
func (s samples) complete() error {
	var missing []string
	want := func(benchmark, unit string) {
		if key := s.key(benchmark, unit); len(s[key]) == 0 {
			missing = append(missing, key)
		}
	}
	for _, row := range rows {
		want(row.benchmark, row.unit)
	}
	for _, row := range requestRows {
		want(requestBenchmark("aggregated", row.name), "requests/op")
		want(requestBenchmark("legacy", row.name), "requests/op")
	}
	if len(missing) > 0 {
		return fmt.Errorf("hack/bench gave no figures for %s: have its benchmarks other names now?", strings.Join(missing, "; "))
	}
	return nil
}

// best is the figure to show: what else a machine does only adds to it.
func (s samples) best(benchmark, unit string) float64 {
	values := s[s.key(benchmark, unit)]
	if len(values) == 0 {
		return 0
	}
	return slices.Min(values)
}
