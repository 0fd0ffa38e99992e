// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/gotool"
)

// rows are the lines of the table that come from hack/bench. Each shows one or more
// benchmarks. Their names here lack only the part with the mapper.
var rows = []struct {
	title            string
	time, processors string // values of -benchtime and -cpu
	benchmarks       []string
}{
	{"requests, first lookup of all, with a version: aggregated / not", "1x", "2", requests("first")},
	{"requests, hit: aggregated / not", "1x", "2", requests("hit")},
	{"requests, miss, version given: aggregated / not", "1x", "2", requests("miss+version")},
	{"requests, miss, no version, group not known to the server: aggregated / not", "1x", "2", requests("miss-unknown-group")},
	{"requests, miss, no version, group known with 2 versions: aggregated / not", "1x", "2", requests("miss-known-group")},
	{"requests, miss, no group: aggregated / not", "1x", "2", requests("miss-no-group")},
	{"hit, 100 groups, RESTMapping with a version", "100ms", "1", []string{"Hit/groups=100/lookup=RESTMapping+version"}},
	{"miss of an absent group, no version, 500 groups", "300ms", "2", []string{"Miss/version=none/groups=500"}},
	{"200 concurrent misses of one kind, server of 20 ms, 500 groups", "1x", "2", []string{"OnceStorm/groups=500"}},
	{"cold first lookup, 500 groups", "300ms", "2", []string{"Cold/groups=500"}},
	{"refresh with nothing changed, 500 groups", "300ms", "2", []string{"Refresh/changed=none/groups=500"}},
}

// requests are the benchmarks that count the requests of a kind of lookup, on a
// server with aggregated discovery and on one without.
func requests(row string) []string {
	return []string{"OnceRequests/server=aggregated/row=" + row, "OnceRequests/server=legacy/row=" + row}
}

// benchmarks measures all rows of a column once. What the benchmarks call stock is
// whatever is in the place of controller-runtime.
func (b *bench) benchmarks(ctx context.Context, c *Column) error {
	for _, row := range rows {
		for _, name := range row.benchmarks {
			pattern := "^Benchmark" + strings.ReplaceAll(regexp.QuoteMeta(name+"/mapper=stock"), "/", "$/^") + "$"
			out, err := b.command(ctx, c.dir, nil, filepath.Join(c.dir, "bench.test"), "-test.run=^$", "-test.bench="+pattern,
				"-test.benchtime="+row.time, "-test.cpu="+row.processors, "-test.timeout=10m")
			if err != nil {
				return err
			}
			if b.read(c, name, out); len(c.best[name]) == 0 {
				return fmt.Errorf("hack/bench has no figures for %s: if that benchmark has another name now, write it into hack/stage/measure", name)
			}
		}
	}
	return nil
}

// read keeps the lowest figures of a benchmark: what else a machine does only adds
// to them.
func (b *bench) read(c *Column, name, out string) {
	for _, line := range gotool.SplitLines(out) {
		if cpu, ok := strings.CutPrefix(line, "cpu: "); ok {
			b.cpu = strings.TrimSpace(cpu)
		}
		if !strings.HasPrefix(line, "Benchmark"+name+"/") {
			continue
		}
		if c.best[name] == nil {
			c.best[name] = map[string]float64{}
		}
		fields := strings.Fields(line)
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if best, ok := c.best[name][fields[i+1]]; err == nil && (!ok || value < best) {
				c.best[name][fields[i+1]] = value
			}
		}
	}
}
