// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"image/color"
	"path/filepath"
	"slices"
	"strings"

	"github.com/freshmapper/freshmapper/hack/bench/chart"
)

var colors = map[string]color.Color{"ours": chart.Blue, "stock": chart.Red, "deferred": chart.Orange}

// plot draws every plot whose values were measured.
func (s *samples) plot(dir string) error {
	plots := map[string]chart.Plot{"hit.svg": s.hits(), "latency.svg": s.latencies()}
	for name, p := range plots {
		if slices.ContainsFunc(p.Lines, func(l chart.Line) bool { return len(l.Points) == 0 }) {
			continue
		}
		if err := chart.Write(filepath.Join(dir, name), 400, p); err != nil {
			return err
		}
	}
	return nil
}

var bySize = chart.Axis{Label: "API groups on the server", Ticks: []float64{10, 100, 500, 2000}, Say: number}

func inSeconds(label string) chart.Axis {
	return chart.Axis{Label: label, Say: seconds, Ticks: []float64{1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 10, 100}}
}

func (s *samples) hits() chart.Plot {
	return chart.Plot{
		Title: "Time of a hit (RESTMapping without a version)", X: bySize, Y: inSeconds("time per lookup"),
		Lines: []chart.Line{
			s.line("stock", chart.Red, false, "Hit/groups=$groups/lookup=RESTMapping/mapper=stock sec/op"),
			s.line("deferred", chart.Orange, true, "Hit/groups=$groups/lookup=RESTMapping/mapper=deferred sec/op"),
			s.line("ours", chart.Blue, false, "Hit/groups=$groups/lookup=RESTMapping/mapper=ours sec/op"),
			s.line("floor: map lookup, copy", chart.Grey, true, "Hit/groups=$groups/lookup=floor/mapper=floor sec/op"),
		},
	}
}

// line has the medians at each size; none if any was not measured.
func (s *samples) line(name string, c color.Color, dashed bool, what string) chart.Line {
	l := chart.Line{Name: name, Color: c, Dashed: dashed, Dots: true}
	for _, groups := range sizes {
		y := s.median(strings.ReplaceAll(what, "$groups", groups))
		if !(y > 0) {
			return chart.Line{}
		}
		l.Points = append(l.Points, chart.Point{X: decimal(groups), Y: y})
	}
	return l
}

func (s *samples) latencies() chart.Plot {
	p := chart.Plot{
		Title: "Hits during two discoveries of a server that takes 300 ms to answer, 500 groups",
		X:     inSeconds("latency of a hit"),
		Y: chart.Axis{
			Label: "hits that took no longer", Ticks: []float64{0, 0.25, 0.5, 0.75, 0.9, 1},
			Say: func(v float64) string { return number(100*v) + " %" },
		},
	}
	for _, mapper := range []string{"stock", "deferred", "ours"} {
		busy := chart.Line{Name: mapper + ", during discovery", Color: colors[mapper], Dots: true, Points: s.distribution(mapper, "busy")}
		quiet := chart.Line{Name: mapper + ", without", Color: colors[mapper], Dashed: true, Dots: true, Points: s.distribution(mapper, "quiet")}
		p.Lines = append(p.Lines, busy, quiet)
	}
	return p
}

// distribution goes through the percentiles that were measured, but for the
// longest hit of all, which is one sample.
func (s *samples) distribution(mapper, when string) []chart.Point {
	var points []chart.Point
	prefix := "OnceLatency/groups=500/mapper=" + mapper + " " + when + "-p"
	for what := range s.values {
		if p, ok := strings.CutPrefix(what, prefix); ok {
			if percent := decimal(strings.TrimSuffix(p, "-sec")); percent < 100 {
				points = append(points, chart.Point{X: s.median(what), Y: percent / 100})
			}
		}
	}
	slices.SortFunc(points, func(a, b chart.Point) int { return cmp.Compare(a.Y, b.Y) })
	return points
}
