// SPDX-License-Identifier: Apache-2.0

// Package herd runs 500 replicas of an operator against one API server in memory,
// in virtual time, and writes a page about their requests. The replicas and what
// happens to the server are those of TestHerd in apiutil, which asserts the bounds.
//
//	go test ./herd -v -timeout 0 -args -replicas 500 [-o results]
package herd

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/freshmapper/freshmapper/hack/bench/chart"
	"github.com/freshmapper/freshmapper/hack/proof/internal/campaign"
)

var replicas = flag.Int("replicas", 20, "replicas of the operator")

// findings are what TestHerd writes.
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

func TestCampaign(t *testing.T) {
	c := campaign.Begin(t, "herd")
	file := filepath.Join(t.TempDir(), "herd.json")
	_, failed := c.GoTest("../..", []string{fmt.Sprintf("FRESHMAPPER_HERD=%d", *replicas), "FRESHMAPPER_HERD_OUT=" + file},
		"-count=1", "-timeout=60m", "-run=^TestHerd$", "./apiutil")
	if failed != nil {
		c.Broken("%v", failed)
	}
	// TestHerd may have failed and still have measured.
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("TestHerd of apiutil wrote nothing: %v", err)
	}
	var f findings
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	p := c.Page("A herd of replicas")
	p.Text("%d replicas of an operator, each with a RefreshInterval of 30 s and WatchAPIs, on one API server in memory, in virtual time (testing/synctest).",
		f.Replicas)
	p.Text("Each looks up three kinds that are served throughout, four times a second. Requests are counted when they are sent, refused ones too.")
	p.Text("A window is any second, or any tenth of one, wherever it begins; the bounds are 2 and 0.6 requests a replica.")
	p.Text("The replicas have run for 2 minutes, and started within 30 s, before something happens. What they ask for when they start is not in these figures.\n")
	var rows [][]string
	var plots []chart.Plot
	for _, s := range scenarios {
		found := f.Scenarios[s.name]
		rows = append(rows, []string{
			s.title, fmt.Sprintf("%.3f", found.Quiet), fmt.Sprintf("%.2f", found.Peaks["1s"]), fmt.Sprintf("%.2f", found.Peaks["100ms"]),
			fmt.Sprint(found.Lookups), fmt.Sprint(found.Wrong), fmt.Sprint(found.Failed), fmt.Sprintf("%.1f s", found.Converged),
		})
		plots = append(plots, found.plot(s.title, f.Replicas))
	}
	p.Table([]string{
		"what happens", "before, a second and replica", "most in a second, a replica", "most in a tenth, a replica",
		"lookups", "wrong NoMatch", "errors", "all know all after",
	}, rows)
	p.Text("The last column counts from the end of what happens.\n\n![requests a second](herd.svg)\n")
	c.Finish(p, plots...)
}

// plot draws requests in a sliding second. It begins 20 s before something happens.
func (s scenario) plot(title string, replicas int) chart.Plot {
	const lead, tenths = 20, 10
	p := chart.Plot{Title: "Requests a second and replica: " + title, X: chart.Axis{Label: "seconds"}, Y: chart.Axis{Label: "requests"}}
	draw := func(sort string, bins []int) {
		line, sum := chart.Line{Name: sort}, 0
		for i, n := range bins {
			if sum += n; i >= tenths {
				sum -= bins[i-tenths]
			}
			line.Points = append(line.Points, chart.Point{X: float64(i+1) / tenths, Y: float64(sum) / float64(replicas)})
		}
		p.Lines = append(p.Lines, line)
	}
	var all []int
	for _, sort := range []string{"document", "lists and watches", "live", "refused"} {
		bins := s.Requests[sort]
		if len(bins) == 0 {
			continue
		}
		if all == nil {
			all = make([]int, len(bins))
		}
		for i, n := range bins {
			all[i] += n
		}
		draw(sort, bins)
	}
	draw("all", all)
	happens := chart.Level("it happens", 0, lead, lead)
	happens.Points[1].Y = 2
	p.Lines = append(p.Lines, chart.Level("bound", 2, 0, float64(len(all))/tenths), happens)
	return p
}
