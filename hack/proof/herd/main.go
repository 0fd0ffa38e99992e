// SPDX-License-Identifier: Apache-2.0

// Herd lets 500 replicas of an operator run against one API server in memory, in
// virtual time, and writes what they ask of it. The replicas and what happens to
// the server are those of TestHerd in apiutil, which asserts the bounds.
//
//	go run ./herd [-replicas 500] [-o results]
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

func main() {
	replicas, out := flag.Int("replicas", 500, "replicas of the operator"), report.Out()
	report.Main("herd", func(ctx context.Context) error { return run(ctx, *replicas, *out) })
}

// findings is what the test writes.
type findings struct {
	Replicas  int
	Scenarios map[string]scenario
}

type scenario struct {
	Requests               map[string][]int // in each tenth of a second
	Peaks                  map[string]float64
	Quiet, Converged       float64
	Lookups, Wrong, Failed int
}

// scenarios in the order of the page.
var scenarios = []struct{ name, title string }{
	{"burst", "200 CustomResourceDefinitions in 10 s"},
	{"restart", "the server is down for 10 s and boots for 5 s"},
	{"crash", "the server is down for 1 s and boots for 0.5 s"},
	{"cut", "all connections are cut"},
	{"upgrade", "two servers, one upgraded a minute after the other"},
}

func run(ctx context.Context, replicas int, out string) error {
	begin := time.Now()
	f, failed := measure(ctx, replicas)
	if f.Scenarios == nil {
		return failed
	}
	page := report.NewPage("A herd of replicas", fmt.Sprintf("go run ./herd -replicas %d", replicas), time.Since(begin))
	page.Text("%d replicas of an operator, each with a RefreshInterval of 30 s and WatchAPIs, on one API server in memory, in virtual time (testing/synctest).",
		f.Replicas)
	page.Text("Each looks up three kinds that are served throughout, four times a second. Requests are counted when they are sent, refused ones too.")
	page.Text("A window is any second, or any tenth of one, wherever it begins; the bounds are 2 and 0.6 requests a replica.")
	page.Text("The replicas have run for 2 minutes, and started within 30 s, before something happens. What they ask for when they start is not in these figures.\n")
	var rows [][]string
	var plots []report.Plot
	for _, s := range scenarios {
		found := f.Scenarios[s.name]
		rows = append(rows, []string{
			s.title, fmt.Sprintf("%.3f", found.Quiet), fmt.Sprintf("%.2f", found.Peaks["1s"]), fmt.Sprintf("%.2f", found.Peaks["100ms"]),
			fmt.Sprint(found.Lookups), fmt.Sprint(found.Wrong), fmt.Sprint(found.Failed), fmt.Sprintf("%.1f s", found.Converged),
		})
		plots = append(plots, found.plot(s.title, f.Replicas))
	}
	page.Table([]string{
		"what happens", "before, a second and replica", "most in a second, a replica", "most in a tenth, a replica",
		"lookups", "wrong NoMatch", "errors", "all know all after",
	}, rows)
	page.Text("The last column counts from the end of what happens.\n\n![requests a second](herd.svg)")
	if err := report.Write(out, "herd.svg", plots...); err != nil {
		return err
	}
	if err := page.Write(out, "herd.md"); err != nil {
		return err
	}
	return failed
}

// measure runs the test. It may fail and have measured all the same.
func measure(ctx context.Context, replicas int) (findings, error) {
	dir, err := os.MkdirTemp("", "herd")
	if err != nil {
		return findings{}, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "herd.json")
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout=60m", "-run=^TestHerd$", "./apiutil")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), fmt.Sprintf("FRESHMAPPER_HERD=%d", replicas), "FRESHMAPPER_HERD_OUT="+file, "GOWORK=off")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	failed := cmd.Run()
	data, err := os.ReadFile(file)
	if err != nil {
		return findings{}, fmt.Errorf("the test wrote nothing (%w): %w", failed, err)
	}
	var f findings
	if err := json.Unmarshal(data, &f); err != nil {
		return findings{}, err
	}
	return f, failed
}

// plot draws requests in a sliding second. It begins 20 s before something happens.
func (s scenario) plot(title string, replicas int) report.Plot {
	const lead, tenths = 20.0, 10
	p := report.Plot{Title: "Requests a second and replica: " + title, X: "seconds", Y: "requests"}
	all := []int{}
	sorts := []string{"document", "lists and watches", "live", "refused"}
	for _, sort := range append(slices.Clone(sorts), "all") {
		bins := s.Requests[sort]
		if sort == "all" {
			bins = all
		}
		if len(bins) == 0 {
			continue
		}
		if len(all) == 0 {
			all = make([]int, len(bins))
		}
		line, sum := report.Series{Name: sort}, 0
		for i, n := range bins {
			if sum += n; i >= tenths {
				sum -= bins[i-tenths]
			}
			if sort != "all" {
				all[i] += n
			}
			line.Points = append(line.Points, report.Point{X: float64(i+1) / tenths, Y: float64(sum) / float64(replicas)})
		}
		p.Series = append(p.Series, line)
	}
	p.Series = append(p.Series, report.Level("bound", 2, 0, float64(len(all))/tenths), report.Level("it happens", 0, lead, lead))
	p.Series[len(p.Series)-1].Points = []report.Point{{X: lead, Y: 0}, {X: lead, Y: 2}}
	return p
}
