// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/hack/fork/gotool"
)

// replays are the lines of the table that come from hack/e2e.
var replays = []string{"R1", "R2", "R2-reset", "R2-version", "R3", "R4", "R5-miss", "R5-reset"}

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

// read keeps the lowest figures of a benchmark: what else a machine does only adds
// to them.
func (b *bench) read(c *column, name, out string) {
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

// table is the table, with what to know about it.
func (b *bench) table() string {
	var out strings.Builder
	fmt.Fprintf(&out, "Machine: %s, %d cores, %s %s %s, %s. The replays ran on a real API server, the benchmarks on one in memory: the best of %d rounds.\n"+
		"On a shared machine, trust requests and ratios more than times. A column is the tree after that patch and those before it.\n\n",
		b.cpu, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), time.Now().UTC().Format(time.DateOnly), *rounds)
	b.line(&out, "", func(c *column) string { return c.name })
	b.line(&out, "---", func(*column) string { return "---:" })
	for _, name := range replays {
		b.line(&out, name+": "+b.columns[0].replays[name].Title, func(c *column) string { return c.replays[name].String() })
	}
	for _, row := range rows {
		b.line(&out, row.title, func(c *column) string {
			var texts []string
			for _, name := range row.benchmarks {
				texts = append(texts, figure(c.best[name]))
			}
			return strings.Join(texts, " / ")
		})
	}
	return out.String()
}

func (b *bench) line(out *strings.Builder, title string, cell func(*column) string) {
	fmt.Fprintf(out, "| %s |", title)
	for _, c := range b.columns {
		fmt.Fprintf(out, " %s |", cell(c))
	}
	out.WriteString("\n")
}

const notMeasured = "not measured"

// String returns whether the program healed, and at what price.
func (o outcome) String() string {
	if !o.finished() {
		return notMeasured
	}
	text := "never"
	if o.Healed {
		text = duration(o.Millis * float64(time.Millisecond))
	}
	text += fmt.Sprintf(", %d req.", o.Requests)
	if o.Healed && o.Tries > 1 {
		text += fmt.Sprintf(", %d tries", o.Tries)
	}
	return text
}

// figure is what one benchmark measured: time, requests or both.
func figure(best map[string]float64) string {
	ns, timed := best["ns/op"]
	requests, counted := best["requests/op"]
	switch {
	case timed && counted:
		return fmt.Sprintf("%s, %.0f req.", duration(ns), requests)
	case timed:
		return duration(ns)
	case counted:
		return fmt.Sprintf("%.0f", requests)
	default:
		return notMeasured
	}
}

// duration is a number of nanoseconds, for a reader.
func duration(ns float64) string {
	for _, unit := range []struct {
		name string
		of   float64
	}{{"s", 1e9}, {"ms", 1e6}, {"µs", 1e3}} {
		if ns >= unit.of {
			return fmt.Sprintf("%.3g %s", ns/unit.of, unit.name)
		}
	}
	return fmt.Sprintf("%.3g ns", ns)
}

// The marks around the table in PROPOSAL.md.
const (
	begin = "<!-- MEASURED: by hack/test.sh -measure -->\n"
	end   = "<!-- END MEASURED -->\n"
)

// inProposal returns PROPOSAL.md with another table.
func inProposal(t *testing.T, table string) string {
	t.Helper()
	text, err := os.ReadFile("../PROPOSAL.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), begin)
	_, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		t.Fatal("PROPOSAL.md has no place for the table: put back the two comments that say MEASURED")
	}
	return before + begin + "\n" + table + "\n" + end + after
}

// The new table replaces the old one, and nothing else.
func TestInProposal(t *testing.T) {
	got := inProposal(t, "| new |\n")
	if strings.Count(got, begin+"\n| new |\n\n"+end) != 1 || strings.Contains(got, "| full fork |") {
		t.Errorf("got\n%s", got)
	}
	if !strings.HasPrefix(got, "<!-- SPDX") || !strings.Contains(got, "## For whom the series is enough") {
		t.Errorf("more than the table is gone:\n%s", got)
	}
}

const printed = `goos: linux
cpu: A machine
BenchmarkCold/groups=500/mapper=stock-2         	      10	  50000000 ns/op	 100 B/op	       5 allocs/op
BenchmarkMiss/version=none/groups=500/mapper=stock-2   3  7 ns/op  2.000 requests/op
BenchmarkOnceRequests/server=legacy/row=hit/mapper=stock-2   1  0 requests/op
PASS
`

func TestTable(t *testing.T) {
	b := &bench{}
	for _, name := range []string{"stock", "full fork"} {
		c := &column{name: name, best: map[string]map[string]float64{}, replays: map[string]outcome{}}
		b.columns = append(b.columns, c)
		for _, row := range rows {
			for _, benchmark := range row.benchmarks {
				b.read(c, benchmark, strings.ReplaceAll(printed, " 7 ns", " 9 ns"))
				b.read(c, benchmark, printed)
				b.read(c, benchmark, strings.ReplaceAll(printed, " 7 ns", " 8 ns"))
			}
		}
		for i, replay := range replays {
			c.replays[replay] = outcome{Title: "a story", Healed: i > 0, Tries: max(i, 1), Requests: 2, Millis: 3}
		}
		c.replays["R5-reset"] = outcome{Title: "a story"}
	}
	table := b.table()
	for _, want := range []string{
		"Machine: A machine, ",
		"|  | stock | full fork |\n| --- | ---: | ---: |\n",
		"| R1: a story | never, 2 req. | never, 2 req. |\n| R2: a story | 3 ms, 2 req. | 3 ms, 2 req. |\n| R2-reset: a story | 3 ms, 2 req., 2 tries |",
		"| R5-reset: a story | not measured | not measured |\n",
		"| requests, hit: aggregated / not | not measured / 0 | not measured / 0 |\n",
		"| cold first lookup, 500 groups | 50 ms | 50 ms |\n",
		"| miss of an absent group, no version, 500 groups | 7 ns, 2 req. | 7 ns, 2 req. |\n",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
}
