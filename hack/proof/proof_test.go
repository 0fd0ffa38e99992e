// SPDX-License-Identifier: Apache-2.0

// Package proof tests at length what DESIGN.md promises. Each campaign is a test. It is
// short unless flags make it longer, and it writes a page about what it has found:
//
//	go test -run '^TestChaos$' -v -timeout 0 . -args -kills 100 -etcd 20 -o results
package proof

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

var (
	lasting   = flag.Duration("time", 0, "how long the soak, the hostile servers or each fuzz target take; 0: seconds, and no fuzzing")
	replicas  = flag.Int("replicas", 20, "replicas of an operator in the herd")
	histories = flag.Int("n", 5, "how many histories, of each kind of server and each number of processors")
)

// TestMain silences client-go's log, which is full of the faults that the campaigns make.
func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// liveHeap returns the MiB of the process's heap that are live.
func liveHeap() float64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc) / (1 << 20)
}

// goTest runs tests of another folder, and shows what they print. The lines that match come into
// the page, if there is a pattern.
func goTest(c *report.Campaign, folder, lines string, env []string, args ...string) (said string, err error) {
	var all bytes.Buffer
	cmd := c.Command(folder, env, append([]string{"go", "test", "-count=1"}, args...)...)
	cmd.Stdout = io.MultiWriter(&all, os.Stderr)
	cmd.Stderr = cmd.Stdout
	err = cmd.Run()
	said = all.String()
	if found := regexp.MustCompile("(?m)"+lines).FindAllString(said, -1); lines != "" {
		c.Text("```\n%s go test %s\n%s\n```\n", strings.Join(env, " "), strings.Join(args, " "), strings.Join(found, "\n"))
		if len(found) == 0 {
			c.Broken("go test %v in %s did not come to an end", args, folder)
		}
	}
	return said, err
}

// TestHerd runs the TestHerd of apiutil with more replicas.
func TestHerd(t *testing.T) {
	c := report.Begin(t)
	_, err := goTest(c, "../..", `=== RUN .*/.*|\S* requests a replica in .*|\d+ lookups, .*`, []string{fmt.Sprintf("FRESHMAPPER_HERD=%d", *replicas)},
		"-v", "-timeout=60m", "-run=^TestHerd$", "./apiutil")
	if err != nil {
		c.Broken("TestHerd of apiutil: %v", err)
	}
	c.Finish("A herd of replicas")
}

// TestHistories lets hack/lincheck check random histories of lookups and resets: with one
// processor, where a seed gives the same history each time, and with all, where the steps
// of the mapper race within one instant.
func TestHistories(t *testing.T) {
	c := report.Begin(t)
	for _, processors := range []int{1, max(2, runtime.NumCPU())} {
		said, err := goTest(c, "../lincheck", `=== RUN .*/.*|\d+ histories, .*|\d+ of \d+ histories break a rule.*`, nil, "-v", "-timeout=6h", "-run=^TestHistories$", ".",
			"-seed", fmt.Sprint(c.Seed), "-histories", fmt.Sprint(*histories), "-processors", fmt.Sprint(processors))
		if want := fmt.Sprintf("%d histories, ", *histories); err != nil || strings.Count(said, want) != 2 {
			c.Broken("histories on %d processors: %v; the output shows them", processors, err)
		}
	}
	c.Finish("Random histories")
}

// TestFuzz runs every fuzz target of the root module. An input that breaks something is
// left in the package's testdata/fuzz, as go test does, to be committed with the fix.
func TestFuzz(t *testing.T) {
	if *lasting == 0 {
		t.Skip("-time does not say for how long; the seeds are tested where the targets are")
	}
	c := report.Begin(t)
	said, err := goTest(c, "../..", "", nil, "-list=^Fuzz", "./apiutil/...", "./internal/...", "./hack/...")
	c.Must(err)
	var targets []string // of the package whose name comes after them
	for _, line := range regexp.MustCompile(`(?m)^(?:(Fuzz\w+)|ok\s+(\S+).*)$`).FindAllStringSubmatch(said, -1) {
		if line[1] != "" {
			targets = append(targets, line[1])
			continue
		}
		for _, target := range targets {
			said, err := goTest(c, "../..", `fuzz: elapsed: `+lasting.String()+`.*|Failing input.*`, nil,
				"-run=^$", "-fuzz=^"+target+"$", "-fuzztime="+lasting.String(), "-timeout="+(*lasting+10*time.Minute).String(), line[2])
			// Before Go 1.27 go test may end like this when its time is over, though no input
			// has failed (https://go.dev/issue/75804).
			over := strings.Contains(said, "\n    context deadline exceeded\n") && !strings.Contains(said, "Failing input")
			if err != nil && !over {
				c.Broken("%s in %s:\n\n```\n%s\n```", target, line[2], said[max(0, len(said)-1500):])
			}
		}
		targets = nil
	}
	c.Finish("Fuzzing")
}
