// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const printed = `goos: linux
BenchmarkCold/groups=500/mapper=stock-2         	      10	  50000000 ns/op	 100 B/op	       5 allocs/op
BenchmarkMiss/version=none/groups=500/mapper=stock-2   3  7 ns/op  2.000 requests/op
PASS
`

func TestSamples(t *testing.T) {
	s := samples{}
	s.read(printed)
	s.read(strings.ReplaceAll(printed, " 7 ns", " 9 ns"))
	s.read(strings.ReplaceAll(printed, " 7 ns", " 8 ns"))
	if got := s.best("Miss/version=none/groups=500", "ns/op"); got != 7 {
		t.Errorf("the best of 7, 9 and 8 is %v", got)
	}
	if got := s.best("Miss/version=none/groups=500", "requests/op"); got != 2 {
		t.Errorf("%v requests", got)
	}
	err := s.complete()
	if err == nil || !strings.Contains(err.Error(), "OnceStorm/groups=500 ns/op") || strings.Contains(err.Error(), "Cold/groups=500 ns/op") {
		t.Errorf("error: %v", err)
	}
}

// Each row of the table is of a benchmark that a family runs.
func TestRowsAreRun(t *testing.T) {
	for _, row := range rows {
		name, _, _ := strings.Cut(row.benchmark, "/")
		run := false
		for _, family := range families {
			run = run || strings.HasPrefix(family.pattern, "^Benchmark"+name+"$")
		}
		if !run {
			t.Errorf("nothing runs %s", row.benchmark)
		}
	}
}

func TestOutcomes(t *testing.T) {
	name := filepath.Join(t.TempDir(), "results")
	text := `{"replay":"R1","title":"a story","fork":true,"healed":true,"tries":2,"requests":5,"millis":12}` + "\n" +
		`{"replay":"R1","title":"a story","healed":false,"tries":5,"requests":10,"millis":1000}` + "\n" + `{"replay":"another"}` + "\n"
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	outcomes, err := readOutcomes(name)
	if err != nil || len(outcomes) != 2 {
		t.Fatalf("%v, %v", outcomes, err)
	}
	if got, want := fmt.Sprint(outcomes), "[12 ms, 5 req., 2 tries never, 10 req.]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	f := newFigures()
	f.replay("full fork", outcomes[0])
	if missing := f.missing("full fork"); len(missing) != len(replayNames)-1 || missing[0] != "R2" {
		t.Errorf("missing: %v", missing)
	}
	if _, err := readOutcomes(name + ".not"); err == nil || !strings.Contains(err.Error(), "recorded nothing") {
		t.Errorf("error: %v", err)
	}
}

func TestPage(t *testing.T) {
	columns := []Column{{Name: "stock"}, {Name: "full fork"}}
	f := newFigures()
	for _, column := range columns {
		f.of(column.Name).read(printed)
		for _, name := range replayNames {
			f.replay(column.Name, outcome{Replay: name, Title: "a story", Healed: true, Tries: 1, Requests: 2, Millis: 3})
		}
	}
	page := f.page(columns, "a machine")
	for _, want := range []string{
		"Machine: a machine.",
		"|  | stock | full fork |\n| --- | ---: | ---: |\n",
		"| R5-reset: a story | 3 ms, 2 req. | 3 ms, 2 req. |\n",
		"| cold first lookup, 500 groups | 50 ms | 50 ms |\n",
		"| miss of an absent group, no version, 500 groups | 7 ns, 2 req. | 7 ns, 2 req. |\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
}

func TestRunNeedsCheckout(t *testing.T) {
	if _, err := Run(context.Background(), t.TempDir(), nil, io.Discard); err == nil || !strings.Contains(err.Error(), "checkout") {
		t.Errorf("error: %v", err)
	}
}
