// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/hack/dev/proc"
)

// What hack/bench.sh passes on; its -h explains the flags but the first two.
var (
	measure = flag.Bool("measure", false, "run the rounds")
	from    = flag.String("from", "", "the `folder` that paths are relative to")
	quick   = flag.Bool("quick", false, "one short round")
	count   = flag.Uint("count", 0, "rounds; 0: 8, or 1 if they are quick")
	out     = flag.String("o", "", "`folder` to write to; empty: results, or a temporary one if the rounds are quick")
	before  = flag.String("before", "", "raw.txt of an earlier run")
)

func init() {
	flag.Usage = func() { fmt.Fprintln(flag.CommandLine.Output(), "hack/bench.sh -h explains the flags") }
}

// family is benchmarks that are run in a process of their own, and how.
type family struct {
	pattern     string // of their names
	cpu         int
	quick, time string // the run time of each, quickly and usually
}

// once are the families that are run in the first round alone: they take a few minutes.
var (
	families = []family{
		{"Hit", 1, "10ms", "40ms"},
		{"HitParallel", 2, "10ms", "40ms"},
		{"Publish|Cold|Miss|Refresh", 2, "20ms", "100ms"},
		{"OnceHeap", 2, "1x", "1x"},
		{"OnceFleet|OnceStorm", 2, "1x", "1x"},
		{"OnceLatency", 2, "1x", "1x"},
		{"OnceApart|OnceBeside|OnceReset", 2, "1x", "1x"},
	}
	once = []family{{"OnceClusters|OnceReplay", 2, "1x", "1x"}}
)

// TestRounds measures in rounds, and writes raw.txt, benchstat.txt and a page. A round
// runs every family once, the mappers next to each other, so that what else the machine
// does falls on all of them alike.
func TestRounds(t *testing.T) {
	if !*measure {
		t.Skip("it measures for a quarter of an hour: run hack/bench.sh")
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	earlier, dir := places(t)
	rounds := int(*count)
	switch {
	case rounds > 0:
	case *quick:
		rounds = 1
	default:
		rounds = 8
	}
	var cpu string
	var results strings.Builder
	for round := range rounds {
		todo := families
		if round == 0 {
			todo = slices.Concat(families, once)
		}
		for _, f := range todo {
			say("round %d of %d, %s: %s", round+1, rounds, time.Now().Format(time.TimeOnly), f.pattern)
			for _, line := range strings.Split(f.run(ctx, t), "\n") {
				switch {
				case strings.HasPrefix(line, "Benchmark"):
					results.WriteString(line + "\n")
				case strings.HasPrefix(line, "cpu: "):
					cpu = line + "\n"
				}
			}
		}
	}
	say("writing %s", dir)
	write(t, dir, "raw.txt", configuration(ctx, t)+cpu+"\n"+results.String())
	raw := "raw.txt=" + filepath.Join(dir, "raw.txt") // what benchstat calls it; otherwise the path is in its tables
	var compared strings.Builder
	benchstat := func(args ...string) {
		tool := []string{"go", "tool", "-modfile=../tools/go.mod", "benchstat"}
		compared.WriteString(output(ctx, t, slices.Concat(tool, args, []string{raw})...) + "\n")
	}
	benchstat("-col", "/mapper@(stock deferred ours)")
	benchstat("-filter", "/mapper:floor OR .name:Publish")
	if earlier != "" {
		benchstat("-ignore", "date,go,goos,goarch,cpu,cores,controller-runtime,client-go",
			"-filter", "/mapper:(ours OR floor) OR .name:Publish", "before="+earlier)
	}
	write(t, dir, "benchstat.txt", compared.String())
	writeReport(t, dir)
}

// The committed page is what comes of the committed results.
func TestReport(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"raw.txt", "README.md", "hit.svg", "latency.svg"} {
		text, err := os.ReadFile(filepath.Join("results", name))
		must(t, err)
		write(t, dir, name, string(text))
	}
	writeReport(t, dir)
	for _, name := range []string{"README.md", "hit.svg", "latency.svg"} {
		want, err := os.ReadFile(filepath.Join("results", name))
		must(t, err)
		got, err := os.ReadFile(filepath.Join(dir, name))
		must(t, err)
		if string(want) != string(got) {
			t.Errorf("results/%s is not what report makes of results/raw.txt:\n%s", name, got)
		}
	}
}

// writeReport turns raw.txt into a page with tables, the figures that were promised and whether
// they are reached, and plots. It prints the figures, too.
func writeReport(t *testing.T, dir string) {
	t.Helper()
	s, err := readSamples(filepath.Join(dir, "raw.txt"))
	must(t, err)
	must(t, s.writePage(filepath.Join(dir, "README.md")))
	must(t, s.plot(dir))
	missed := 0
	for _, f := range s.Figures() {
		if f.Mark != reached {
			missed++
		}
		fmt.Printf("%s %-78s %s, target %s\n", f.Mark, f.What, f.Measured, f.Bound)
	}
	fmt.Printf("%d figures missed or not measured\n", missed)
}

// places returns a copy of the earlier run's raw.txt, if there is one, because this run
// may replace it, and the folder to write to.
func places(t *testing.T) (earlier, dir string) {
	t.Helper()
	seen := func(name string) string {
		if filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(*from, name)
	}
	if *before != "" {
		text, err := os.ReadFile(seen(*before))
		if err != nil {
			t.Fatalf("-before needs the raw.txt of an earlier run: %v", err)
		}
		earlier = filepath.Join(t.TempDir(), "before.txt")
		must(t, os.WriteFile(earlier, text, 0o600))
	}
	var err error
	switch {
	case *out != "":
		dir, err = filepath.Abs(seen(*out))
	case *quick:
		dir, err = os.MkdirTemp("", "freshmapper-bench-")
	default:
		dir, err = filepath.Abs("results")
	}
	must(t, err)
	must(t, os.MkdirAll(dir, 0o755))
	return earlier, dir
}

// run returns what the benchmarks print. client-go logs what hangs, which is shown if they fail.
func (f family) run(ctx context.Context, t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	lasting := f.time
	if *quick {
		lasting = f.quick
	}
	var said, logged bytes.Buffer
	_, err = proc.Command{
		Args: []string{
			self, "-test.run=^$", "-test.bench=^Benchmark(" + f.pattern + ")$", "-test.cpu=" + strconv.Itoa(f.cpu),
			"-test.benchtime=" + lasting, "-test.timeout=30m",
		},
		Stdout: &said, Stderr: &logged,
	}.Run(ctx)
	if err != nil {
		t.Fatalf("%v\n%s%s", err, &said, &logged)
	}
	return said.String()
}

// configuration is the configuration lines of the Go benchmark format.
func configuration(ctx context.Context, t *testing.T) string {
	t.Helper()
	var text strings.Builder
	line := func(name string, value any) { fmt.Fprintf(&text, "%s: %v\n", name, value) }
	line("date", time.Now().UTC().Format(time.DateOnly))
	line("go", runtime.Version())
	line("goos", runtime.GOOS)
	line("goarch", runtime.GOARCH)
	line("cores", runtime.NumCPU())
	for _, module := range []string{"sigs.k8s.io/controller-runtime", "k8s.io/client-go"} {
		line(filepath.Base(module), output(ctx, t, "go", "list", "-m", "-f", "{{.Version}}", module))
	}
	return text.String()
}

func output(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	said, err := proc.Output(ctx, "", nil, args...)
	must(t, err)
	return said
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "==> "+format+"\n", args...) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
