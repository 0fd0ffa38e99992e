// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/hack/bench/chart"
	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

// warm is the part of the run in which things fill up. It is drawn, but does not
// count for the slopes.
const warm = 0.25

// grows is the share of its mean by which something may grow within a run, beyond
// twice its error, before it counts as growing.
const grows = 0.05

// restOf is a number of samples of which, most likely, at least one is taken while
// nothing is under way.
const restOf = 15

func (s *soak) write(took time.Duration) {
	p := s.Page("Soak")
	p.Text("%d mappers of a real API server, each with a RefreshInterval of %v, WatchAPIs and a transport of its own, and %d goroutines that use them.",
		*mappers, interval, clients)
	p.Text("CRDs come and go: %d changes. The clients, the mappers and what measures them are one process; the heap is that of all, after a garbage collection.\n", s.changed.Load())
	p.Text("%d lookups, %.0f a second, %d of them misses; %d more were due while the machine was busy with something else.\n",
		s.lookups.Load(), float64(s.lookups.Load())/took.Seconds(), s.misses.Load(), s.late.Load())
	p.Table([]string{"", "median", "p99", "p99.9", "longest"}, [][]string{s.hits.row("a hit"), s.nothing.row("nothing at all")})
	p.Text("\"Nothing at all\" is timed beside each hit: it shows what the machine and the clock add.\n")
	var rows [][]string
	var plots []chart.Plot
	for _, each := range s.series {
		for _, of := range []int{1, restOf} {
			name, at := each.name, each.slope(of)
			if of == restOf {
				name += " at rest"
			}
			if rise := (at.perHour - 2*at.err) * took.Hours(); rise > grows*at.mean {
				s.Broken("%s: grew by at least %.1f %s", name, rise, each.unit)
			}
			rows = append(rows, []string{
				name, fmt.Sprintf("%.0f %s", at.mean, each.unit), fmt.Sprintf("%+.1f ± %.1f %s", at.perHour, at.err, each.unit),
				fmt.Sprintf("%+.2f %%", 100*at.perHour*took.Hours()/at.mean),
			})
		}
		plots = append(plots, chart.Plot{
			Title: each.name, X: chart.Axis{Label: "minutes"}, Y: chart.Axis{Label: each.unit}, Lines: []chart.Line{{Name: each.name, Points: each.points}},
		})
	}
	p.Table([]string{"", "mean", "slope an hour", "over the run"}, rows)
	p.Text("The slope is that of a line fitted to the last three quarters of the run, with its standard error. \"At rest\" is of the least of each %d samples: requests", restOf)
	p.Text("under way, of which there are more the busier the machine is, are not in it. It counts as growth where it is larger than twice its error by more than %.0f %%", 100*grows)
	p.Text("of the mean within the run.\n\n![what could grow](soak.svg)\n")
	s.Finish(p, plots...)
}

// slope is how a line through the points rises, with its standard error.
type slope struct{ perHour, err, mean float64 }

// slope takes the least of each so many samples, and returns the slope of these.
func (s *series) slope(of int) slope {
	var least []chart.Point
	for points := range slices.Chunk(s.points[int(math.Ceil(warm*float64(len(s.points)))):], of) {
		lowest := slices.MinFunc(points, func(a, b chart.Point) int { return cmp.Compare(a.Y, b.Y) })
		least = append(least, chart.Point{X: points[0].X / 60, Y: lowest.Y})
	}
	return slopeOf(least)
}

// slopeOf fits a line by least squares. Samples that follow on each other are alike,
// so the true error is larger than the one returned.
func slopeOf(points []chart.Point) slope {
	n := float64(len(points))
	if n < 3 {
		return slope{math.NaN(), math.NaN(), math.NaN()}
	}
	var x, y float64
	for _, p := range points {
		x, y = x+p.X/n, y+p.Y/n
	}
	var xx, xy float64
	for _, p := range points {
		xx += (p.X - x) * (p.X - x)
		xy += (p.X - x) * (p.Y - y)
	}
	rise := xy / xx
	var rest float64
	for _, p := range points {
		r := p.Y - y - rise*(p.X-x)
		rest += r * r
	}
	return slope{rise, math.Sqrt(rest / (n - 2) / xx), y}
}

func TestSlope(t *testing.T) {
	var flat, rising []chart.Point
	for n := range 100 {
		hours, noise := float64(n)/100, float64(n%3-1)
		flat, rising = append(flat, chart.Point{X: hours, Y: 50 + noise}), append(rising, chart.Point{X: hours, Y: 50 + 20*hours + noise})
	}
	if s := slopeOf(flat); math.Abs(s.perHour) > 2*s.err || math.Abs(s.mean-50) > 0.1 {
		t.Errorf("flat: %+v", s)
	}
	if s := slopeOf(rising); math.Abs(s.perHour-20) > 2*s.err || s.err > 1 {
		t.Errorf("rising: %+v", s)
	}
}

// histogram counts durations in bins that are a twentieth wider each.
type histogram struct {
	bins [600]atomic.Int64
	most atomic.Int64
}

const binWidth = 1.05

func (h *histogram) add(d time.Duration) {
	n := int(math.Log(float64(max(d, 1))) / math.Log(binWidth))
	h.bins[min(n, len(h.bins)-1)].Add(1)
	for most := h.most.Load(); int64(d) > most && !h.most.CompareAndSwap(most, int64(d)); {
		most = h.most.Load()
	}
}

// quantile returns the upper end of the bin in which it lies.
func (h *histogram) quantile(q float64) time.Duration {
	var all, seen int64
	for n := range h.bins {
		all += h.bins[n].Load()
	}
	for n := range h.bins {
		if seen += h.bins[n].Load(); float64(seen) >= q*float64(all) {
			return time.Duration(math.Pow(binWidth, float64(n+1)))
		}
	}
	return 0
}

func (h *histogram) row(name string) []string {
	return []string{
		name, report.Rounded(h.quantile(0.5)), report.Rounded(h.quantile(0.99)), report.Rounded(h.quantile(0.999)),
		report.Rounded(time.Duration(h.most.Load())),
	}
}

func TestQuantile(t *testing.T) {
	var h histogram
	for n := range 1000 {
		h.add(time.Duration(n+1) * time.Microsecond)
	}
	for q, want := range map[float64]time.Duration{0.5: 500 * time.Microsecond, 0.99: 990 * time.Microsecond} {
		if got := h.quantile(q); got < want || got > want*11/10 {
			t.Errorf("%v: %v", q, got)
		}
	}
}
