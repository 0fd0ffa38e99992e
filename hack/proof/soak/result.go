// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

// warm is the part of the run in which things fill up that are then full: it is
// drawn, and is not in the slopes.
const warm = 0.25

// grows is how much of its mean something may grow within a run, beyond twice its
// error, until it counts as growing.
const grows = 0.05

// restOf is in how many samples there is one, most likely, when nothing is under way.
const restOf = 15

// series are what must stay flat.
func series() []struct {
	name, unit string
	of         func(sample) float64
} {
	return []struct {
		name, unit string
		of         func(sample) float64
	}{
		{"live heap", "KiB", func(s sample) float64 { return s.heap / (1 << 10) }},
		{"goroutines", "", func(s sample) float64 { return s.goroutines }},
		{"open connections", "", func(s sample) float64 { return s.connections }},
	}
}

func (s *soak) write(out string, took time.Duration) error {
	o := s.options
	p := report.NewPage("Soak", fmt.Sprintf("go run ./soak -time %v -mappers %d -rate %d", o.lasting, o.mappers, o.rate), took)
	p.Text("%d mappers of a real API server, each with a RefreshInterval of %v, WatchAPIs and a transport of its own, and %d goroutines that use them.",
		o.mappers, interval, clients)
	p.Text("CRDs come and go: %d changes. The clients, the mappers and what measures them are one process; the heap is that of all, after a garbage collection.\n", s.changed.Load())
	made := float64(s.lookups.Load()) / took.Seconds()
	p.Text("%d lookups, %.0f a second, %d of them misses; %d more were due while the machine was busy with something else.\n",
		s.lookups.Load(), made, s.misses.Load(), s.late.Load())
	p.Table([]string{"", "median", "p99", "p99.9", "longest"}, [][]string{s.hits.row("a hit"), s.nothing.row("nothing at all")})
	p.Text("\"Nothing at all\" is timed beside each hit: it shows what the machine and the clock add.\n")
	var rows [][]string
	var plots []report.Plot
	for _, each := range series() {
		for name, at := range map[string]slope{each.name: s.slope(each.of, 1), each.name + " at rest": s.slope(each.of, restOf)} {
			if rise := (at.perHour - 2*at.err) * took.Hours(); rise > grows*at.mean {
				s.broken.Add("%s: grew by at least %.1f %s", name, rise, each.unit)
			}
			rows = append(rows, []string{
				name, fmt.Sprintf("%.0f %s", at.mean, each.unit), fmt.Sprintf("%+.1f ± %.1f %s", at.perHour, at.err, each.unit),
				fmt.Sprintf("%+.2f %%", 100*at.perHour*took.Hours()/at.mean),
			})
		}
		plots = append(plots, s.plot(each.name, each.unit, each.of))
	}
	slices.SortFunc(rows, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	p.Table([]string{"", "mean", "slope an hour", "over the run"}, rows)
	p.Text("The slope is that of a line fitted to the last three quarters of the run, with its standard error. \"At rest\" is of the least of each %d samples: requests", restOf)
	p.Text("under way, of which there are more the busier the machine is, are not in it. It counts as growth where it is larger than twice its error by more than %.0f %%", 100*grows)
	p.Text("of the mean within the run.\n\n![what could grow](soak.svg)\n")
	return p.Finish(out, "soak", &s.broken, plots...)
}

// slope is that of the least of so many samples each.
func (s *soak) slope(of func(sample) float64, each int) slope {
	var hours, values []float64
	for samples := range slices.Chunk(s.samples[int(math.Ceil(warm*float64(len(s.samples)))):], each) {
		least := math.Inf(1)
		for _, sample := range samples {
			least = min(least, of(sample))
		}
		hours, values = append(hours, samples[0].at.Hours()), append(values, least)
	}
	return slopeOf(hours, values)
}

func (s *soak) plot(name, unit string, of func(sample) float64) report.Plot {
	line := report.Series{Name: name}
	for _, sample := range s.samples {
		line.Points = append(line.Points, report.Point{X: sample.at.Minutes(), Y: of(sample)})
	}
	return report.Plot{Title: name, X: "minutes", Y: unit, Series: []report.Series{line}}
}
