// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
)

// The campaigns of this file are tests of other packages, at length.
var (
	replicas  = flag.Int("replicas", 20, "replicas of an operator in the herd")
	histories = flag.Int("n", 5, "how many histories, of each kind of server and each number of processors")
)

// herdScenario is what the TestHerd of apiutil writes of each scenario.
type herdScenario struct {
	Peaks                  map[string]float64
	Quiet, Converged       float64
	Lookups, Wrong, Failed int
}

// TestHerd runs replicas of an operator against one API server in memory, in
// virtual time. The replicas, and what happens to the server, are those of the TestHerd in
// apiutil, which asserts the bounds.
func TestHerd(t *testing.T) {
	c := begin(t)
	file := filepath.Join(t.TempDir(), "herd.json")
	_, failed := c.goTest("../..", []string{fmt.Sprintf("FRESHMAPPER_HERD=%d", *replicas), "FRESHMAPPER_HERD_OUT=" + file},
		"-count=1", "-timeout=60m", "-run=^TestHerd$", "./apiutil")
	if failed != nil {
		c.broken("%v", failed)
	}
	// TestHerd may have failed and still have measured.
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("TestHerd of apiutil wrote nothing: %v", err)
	}
	var found struct{ Scenarios map[string]herdScenario }
	if err := json.Unmarshal(data, &found); err != nil {
		t.Fatal(err)
	}
	c.Text("%d replicas of an operator, each with a RefreshInterval of 30 s and WatchAPIs, on one API server in memory, in virtual time (testing/synctest).",
		*replicas)
	c.Text("Each looks up three kinds that are served throughout, four times a second. Requests are counted when they are sent, refused ones too.")
	c.Text("A window is any second, or any tenth of one, wherever it begins; the bounds are 2 and 0.6 requests a replica.")
	c.Text("The replicas have run for 2 minutes, and started within 30 s, before something happens. What they ask for when they start is not in these figures.\n")
	var rows [][]string
	for _, s := range []struct{ name, title string }{
		{"burst", "200 CustomResourceDefinitions in 10 s"},
		{"restart", "the server is down for 10 s and boots for 5 s"},
		{"crash", "the server is down for 1 s and boots for 0.5 s"},
		{"cut", "all connections are cut"},
		{"upgrade", "two servers, one upgraded a minute after the other"},
	} {
		is := found.Scenarios[s.name]
		rows = append(rows, []string{
			s.title, fmt.Sprintf("%.3f", is.Quiet), fmt.Sprintf("%.2f", is.Peaks["1s"]), fmt.Sprintf("%.2f", is.Peaks["100ms"]),
			fmt.Sprint(is.Lookups), fmt.Sprint(is.Wrong), fmt.Sprint(is.Failed), fmt.Sprintf("%.1f s", is.Converged),
		})
	}
	c.Table([]string{
		"what happens", "before, a second and replica", "most in a second, a replica", "most in a tenth, a replica",
		"lookups", "wrong NoMatch", "errors", "all know all after",
	}, rows...)
	c.Text("The last column counts from the end of what happens.\n")
	c.finish("A herd of replicas")
}

var (
	tally = regexp.MustCompile(`(\d+) histories, (\d+) with faults: (\d+) lookups found something, (\d+) ended in NoMatch and (\d+) in an error; (\d+) resets, (\d+) requests`)
	bad   = regexp.MustCompile(`(\d+) of \d+ histories break a rule`)
)

// TestHistories lets hack/lincheck check random histories of lookups and resets: with one
// processor, where a seed gives the same history each time, and with all, where the steps
// of the mapper race within one instant.
func TestHistories(t *testing.T) {
	c := begin(t)
	var rows [][]string
	for _, processors := range []int{1, max(2, runtime.NumCPU())} {
		for _, server := range []string{"aggregated", "legacy"} {
			where := fmt.Sprintf("the %s server on %d processors", server, processors)
			said, failed := c.goTest("../lincheck", nil, "-count=1", "-v", "-timeout=3h", "-run=^TestHistories$/^"+server+"$", ".",
				"-seed", fmt.Sprint(c.seed), "-histories", fmt.Sprint(*histories), "-processors", fmt.Sprint(processors))
			counts := tally.FindStringSubmatch(said)
			if counts == nil || counts[1] != fmt.Sprint(*histories) {
				t.Fatalf("the histories of %s did not come to an end: %v", where, failed)
			}
			wrong := "0"
			if failed != nil {
				wrong = "?"
				if match := bad.FindStringSubmatch(said); match != nil {
					wrong = match[1]
				}
				c.broken("%s histories of %s break a rule; the output shows them", wrong, where)
			}
			rows = append(rows, append(append([]string{server, fmt.Sprint(processors)}, counts[1:]...), wrong))
		}
	}
	c.Text("hack/lincheck checked %d random histories of lookups and resets, by four callers of one mapper, against a server in memory that changes, lags and fails,", len(rows)**histories)
	c.Text("in virtual time. Every answer was held to F1 to F3, F5, F6 and F9 of DESIGN.md; the rules are in the")
	c.Text("[package comment](../../lincheck/doc.go). The first seed was %d. Where there is one processor, a seed nearly always gives the same history.\n", c.seed)
	c.Table([]string{"server", "processors", "histories", "with faults", "found", "NoMatch", "errors", "resets", "requests", "that break a rule"}, rows...)
	c.finish("Random histories")
}

var (
	listed   = regexp.MustCompile(`(?m)^(?:(Fuzz\w+)|ok\s+(\S+).*)$`)
	progress = regexp.MustCompile(`execs: (\d+).*new interesting: \d+ \(total: (\d+)\)`)
)

// TestFuzz runs every fuzz target of the root module. An input that breaks something is
// left in the package's testdata/fuzz, as go test does, to be committed with the fix.
func TestFuzz(t *testing.T) {
	if *lasting == 0 {
		t.Skip("-time does not say for how long; the seeds are tested where the targets are")
	}
	c := begin(t)
	said, err := c.goTest("../..", nil, "-list=^Fuzz", "./apiutil/...", "./internal/...", "./hack/...")
	if err != nil {
		t.Fatalf("listing the targets: %v", err)
	}
	var rows [][]string
	var targets []string // of the package whose name comes after them
	for _, line := range listed.FindAllStringSubmatch(said, -1) {
		if line[1] != "" {
			targets = append(targets, line[1])
			continue
		}
		for _, target := range targets {
			rows = append(rows, c.fuzz(target, line[2]))
		}
		targets = nil
	}
	c.Text("Each target ran for %v, with what `go test` had kept of earlier runs on this machine as well as with its seeds.\n", *lasting)
	c.Table([]string{"target", "package", "inputs", "in the corpus", ""}, rows...)
	c.finish("Fuzzing")
}

// fuzz runs a target, and returns its row of the table.
func (c *campaign) fuzz(target, pkg string) []string {
	said, err := c.goTest("../..", nil, "-run=^$", "-fuzz=^"+target+"$", "-fuzztime="+lasting.String(), "-timeout="+(*lasting+10*time.Minute).String(), pkg)
	verdict := "nothing found"
	// Before Go 1.27 go test may end like this when its time is over, though no input
	// has failed (https://go.dev/issue/75804).
	over := strings.Contains(said, "\n    context deadline exceeded\n") && !strings.Contains(said, "Failing input")
	if err != nil && !over {
		verdict = "**failed**"
		c.broken("%s in %s:\n\n```\n%s\n```", target, pkg, said[max(0, len(said)-1500):])
	}
	row := []string{target, strings.TrimPrefix(pkg, "github.com/freshmapper/freshmapper/"), "", "", verdict}
	if all := progress.FindAllStringSubmatch(said, -1); len(all) > 0 {
		copy(row[2:], all[len(all)-1][1:])
	}
	return row
}
