// SPDX-License-Identifier: Apache-2.0

// Package histories lets hack/lincheck check random histories of lookups and
// resets.
//
//	go test ./histories -v -timeout 0 -args -n 5000 [-seed N] [-o results]
//
// It checks n histories of each kind of server with one processor, where a seed
// gives the same history each time, and as many with all processors, where the steps
// of the mapper race within one instant.
package histories

import (
	"flag"
	"fmt"
	"regexp"
	"runtime"
	"testing"

	"github.com/freshmapper/freshmapper/hack/proof/internal/campaign"
)

var histories = flag.Int("n", 5, "how many histories, of each kind of server and each number of processors")

var (
	tally  = regexp.MustCompile(`(\d+) histories, (\d+) with faults: (\d+) lookups found something, (\d+) ended in NoMatch and (\d+) in an error; (\d+) resets, (\d+) requests`)
	broken = regexp.MustCompile(`(\d+) of \d+ histories break a rule`)
)

func TestHistories(t *testing.T) {
	c := campaign.Begin(t, "histories")
	var rows [][]string
	for _, processors := range []int{1, max(2, runtime.NumCPU())} {
		for _, server := range []string{"aggregated", "legacy"} {
			where := fmt.Sprintf("the %s server on %d processors", server, processors)
			said, failed := c.GoTest("../lincheck", nil, "-count=1", "-v", "-timeout=3h", "-run=^TestHistories$/^"+server+"$", ".",
				"-seed", fmt.Sprint(c.Seed), "-histories", fmt.Sprint(*histories), "-processors", fmt.Sprint(processors))
			counts := tally.FindStringSubmatch(said)
			if counts == nil || counts[1] != fmt.Sprint(*histories) {
				t.Fatalf("the histories of %s did not come to an end: %v", where, failed)
			}
			bad := "0"
			if failed != nil {
				bad = "?"
				if match := broken.FindStringSubmatch(said); match != nil {
					bad = match[1]
				}
				c.Broken("%s histories of %s break a rule; the output shows them", bad, where)
			}
			rows = append(rows, append(append([]string{server, fmt.Sprint(processors)}, counts[1:]...), bad))
		}
	}
	p := c.Page("Random histories")
	p.Text("hack/lincheck checked %d random histories of lookups and resets, by four callers of one mapper, against a server in memory that changes, lags and fails,", len(rows)**histories)
	p.Text("in virtual time. Every answer was held to F1 to F3 and F6 of DESIGN.md, and to a model of its truth by porcupine; the rules are in the")
	p.Text("[package comment](../../lincheck/doc.go). The first seed was %d. Where there is one processor, a seed nearly always gives the same history.\n", c.Seed)
	p.Table([]string{"server", "processors", "histories", "with faults", "found", "NoMatch", "errors", "resets", "requests", "that break a rule"}, rows)
	c.Finish(p)
}
