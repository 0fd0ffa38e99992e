// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"io"
	"strings"
	"testing"
)

const printed = `goos: linux
cpu: A machine
BenchmarkCold/groups=500/mapper=stock-2         	      10	  50000000 ns/op	 100 B/op	       5 allocs/op
BenchmarkMiss/version=none/groups=500/mapper=stock-2   3  7 ns/op  2.000 requests/op
BenchmarkOnceRequests/server=legacy/row=hit/mapper=stock-2   1  0 requests/op
PASS
`

func TestPage(t *testing.T) {
	b := &bench{}
	for _, name := range []string{"stock", "full fork"} {
		c := &Column{Name: name, best: map[string]map[string]float64{}, replays: map[string]outcome{}}
		b.columns = append(b.columns, c)
		for _, row := range rows {
			for _, benchmark := range row.benchmarks {
				b.read(c, benchmark, strings.ReplaceAll(printed, " 7 ns", " 9 ns"))
				b.read(c, benchmark, printed)
				b.read(c, benchmark, strings.ReplaceAll(printed, " 7 ns", " 8 ns"))
			}
		}
		for i, replay := range replays {
			c.replays[replay] = outcome{Title: "a story", Healed: i > 0, Tries: i, Requests: 2, Millis: 3}
		}
	}
	page := b.page()
	for _, want := range []string{
		"Machine: A machine, ",
		"|  | stock | full fork |\n| --- | ---: | ---: |\n",
		"| R1: a story | never, 2 req. | never, 2 req. |\n| R2: a story | 3 ms, 2 req. | 3 ms, 2 req. |\n| R2-reset: a story | 3 ms, 2 req., 2 tries |",
		"| requests, hit: aggregated / not | 0 / 0 | 0 / 0 |\n",
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
