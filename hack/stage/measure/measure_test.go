// SPDX-License-Identifier: Apache-2.0

// Package measure measures what each patch of the small series buys. It builds the
// sample controller of testdata and the benchmarks of hack/bench on stock, on the
// tree after each patch and on the full fork, and runs them.
package measure

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/freshmapper/freshmapper"
	"github.com/freshmapper/freshmapper/hack/dev/proc"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
	"github.com/freshmapper/freshmapper/hack/stage/small"
)

var (
	page   = flag.String("page", "", "the file to write PROPOSAL.md with a new table to; without it TestWhatPatchesBuy is skipped")
	rounds = flag.Int("rounds", 3, "how often each benchmark runs; the best counts")
)

// Folders below the root of the checkout.
const (
	root        = "../../.."
	benchModule = "hack/bench"
	healModule  = "testdata/consumers/heal"
)

// column is a tree that is measured.
type column struct {
	name  string
	files tree.Files

	dir     string                        // for what is built on it
	best    map[string]map[string]float64 // the lowest figure, by benchmark and unit
	replays map[string]outcome
}

// outcome is what hack/e2e records of a replay, as far as it is shown.
type outcome struct {
	Replay, Title   string
	Healed          bool
	Tries, Requests int
	Millis          float64
}

// finished reports whether the replay got as far as the lookup that it is about.
func (o outcome) finished() bool { return o.Healed || o.Tries > 0 }

// bench is one run.
type bench struct {
	*testing.T
	ctx     context.Context
	columns []*column // the first is stock
	cpu     string    // as benchmarks name it
}

// TestWhatPatchesBuy does each step with all columns before the next step, so that
// other load of the machine affects all of them alike.
func TestWhatPatchesBuy(t *testing.T) {
	if *page == "" {
		t.Skip("takes a quarter of an hour: hack/test.sh -measure")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) // what it runs ends with it
	defer stop()
	b := &bench{T: t, ctx: ctx}
	b.makeColumns()
	assets := b.output(root, "hack/envtest.sh", "latest")
	for _, c := range b.columns {
		b.build(c)
	}
	for round := range *rounds {
		for _, c := range b.columns {
			t.Logf("benchmarks, round %d of %d: %s", round+1, *rounds, c.name)
			b.benchmarks(c)
		}
	}
	for _, c := range b.columns[1:] {
		b.replay(c, assets)
	}
	b.must(os.WriteFile(*page, []byte(inProposal(t, b.table())), 0o600))
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// output is what a command prints.
func (b *bench) output(dir string, args ...string) string {
	b.Helper()
	said, err := proc.Output(b.ctx, dir, nil, args...)
	b.must(err)
	return said
}

func (b *bench) makeColumns() {
	upstream, err := tree.Upstream(b.ctx, tree.Newest(), nil)
	b.must(err)
	patches, err := small.Changes(upstream)
	b.must(err)
	fork, err := tree.Generate(tree.Newest(), maps.Clone(upstream), freshmapper.Source)
	b.must(err)
	add := func(name string, files tree.Files) {
		b.columns = append(b.columns, &column{
			name: name, files: files, dir: b.TempDir(),
			best: map[string]map[string]float64{}, replays: map[string]outcome{},
		})
	}
	add("stock", upstream)
	for i, patch := range patches {
		add(fmt.Sprintf("(%c) %s", 'a'+i, small.Patches()[i].Name), patch.Files)
	}
	add("full fork", fork)
}

// build builds benchmarks and sample controller in a workspace where the column's
// tree stands for controller-runtime.
func (b *bench) build(c *column) {
	b.Logf("build: %s", c.name)
	replaced := filepath.Join(c.dir, "tree")
	for name, file := range c.files {
		b.must(file.Write(replaced, name))
	}
	checkout, err := filepath.Abs(root)
	b.must(err)
	bench, heal := filepath.Join(checkout, benchModule), filepath.Join(checkout, healModule)
	b.Setenv("GOWORK", filepath.Join(c.dir, "go.work"))
	b.output(c.dir, "go", "work", "init", bench, heal)
	b.output(c.dir, "go", "work", "edit", "-replace="+tree.Module+"="+replaced)
	b.output(bench, "go", "test", "-c", "-o", filepath.Join(c.dir, "bench.test"), ".")
	b.output(heal, "go", "build", "-o", filepath.Join(c.dir, "heal-fork"), ".") // hack/e2e asks for this name
	b.Setenv("GOWORK", "off")
}

// benchmarks measures all rows of a column once. What the benchmarks call stock is
// whatever is in the place of controller-runtime.
func (b *bench) benchmarks(c *column) {
	for _, row := range rows {
		for _, name := range row.benchmarks {
			pattern := "^Benchmark" + strings.ReplaceAll(regexp.QuoteMeta(name+"/mapper=stock"), "/", "$/^") + "$"
			b.read(c, name, b.output(c.dir, "./bench.test", "-test.run=^$", "-test.bench="+pattern,
				"-test.benchtime="+row.time, "-test.cpu="+row.processors, "-test.timeout=10m"))
			if len(c.best[name]) == 0 {
				b.Fatalf("hack/bench has no figures for %s: if that benchmark has another name now, write it into hack/stage/measure", name)
			}
		}
	}
}

// replay runs the sample controller, built on stock and on the column's tree,
// through the replays. hack/e2e takes the two programs for stock and fork, and
// fails if a replay does not heal on the fork. A column may well fail a replay, so
// only what hack/e2e has recorded counts.
func (b *bench) replay(c *column, assets string) {
	b.Logf("replays: %s", c.name)
	stock := b.columns[0]
	b.must(os.Symlink(filepath.Join(stock.dir, "heal-fork"), filepath.Join(c.dir, "heal-stock")))
	results := filepath.Join(c.dir, "results")
	said, _ := proc.Output(b.ctx, filepath.Join(root, "hack/e2e"),
		[]string{"KUBEBUILDER_ASSETS=" + assets, "FRESHMAPPER_E2E_PROGRAMS=" + c.dir, "FRESHMAPPER_E2E_RESULTS=" + results},
		"go", "test", "-count=1", "-timeout=10m", "-run=^TestHeal$", ".")
	recorded, err := os.Open(results)
	if err != nil {
		b.Fatalf("hack/e2e recorded nothing: %v\n%s", err, said)
	}
	defer recorded.Close() //nolint:errcheck // it has been read
	for lines := json.NewDecoder(recorded); lines.More(); {
		var replayed struct{ Stock, Fork outcome }
		b.must(lines.Decode(&replayed))
		stock.replays[replayed.Stock.Replay], c.replays[replayed.Fork.Replay] = replayed.Stock, replayed.Fork
	}
	for _, name := range replays {
		if !c.replays[name].finished() || !stock.replays[name].finished() {
			b.Errorf("%s did not get to its end on %s: the machine may be too busy\n%s", name, c.name, said)
		}
	}
}
