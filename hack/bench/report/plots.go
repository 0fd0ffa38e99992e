// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A curve is one line of a plot.
type curve struct {
	name   string
	color  color.Color
	dashed bool
	points plotter.XYs
}

// Colours that people with any kind of colour vision can tell apart (Okabe and Ito).
var (
	blue   = color.RGBA{0x00, 0x72, 0xb2, 0xff}
	sky    = color.RGBA{0x56, 0xb4, 0xe9, 0xff}
	green  = color.RGBA{0x00, 0x9e, 0x73, 0xff}
	red    = color.RGBA{0xd5, 0x5e, 0x00, 0xff}
	orange = color.RGBA{0xe6, 0x9f, 0x00, 0xff}
	grey   = color.RGBA{0x70, 0x70, 0x70, 0xff}
	pale   = color.RGBA{0xe4, 0xe4, 0xe4, 0xff}
)

var colors = map[string]color.Color{"ours": blue, "stock": red, "deferred": orange}

// plot draws every plot whose values were measured.
func (s *samples) plot(dir string) error {
	plots := map[string]func() (*plot.Plot, []curve){"hit.svg": s.hitPlot, "heap.svg": s.heapPlot, "latency.svg": s.latencyPlot}
	for name, make := range plots {
		p, curves := make()
		if slices.ContainsFunc(curves, func(c curve) bool { return len(c.points) == 0 }) {
			continue
		}
		if err := save(filepath.Join(dir, name), p, curves); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (s *samples) hitPlot() (*plot.Plot, []curve) {
	p := newPlot("Time of a hit (RESTMapping without a version)", "API groups on the server", "time per lookup")
	bySize(p)
	byPowers(&p.Y, seconds, powersOfTen...)
	time := func(name string, c color.Color, dashed bool, lookup, mapper string) curve {
		return curve{name, c, dashed, s.points(func(groups int) (string, string) {
			return hit(groups, lookup, mapper), perOp
		})}
	}
	return p, []curve{
		time("stock", red, false, "RESTMapping", "stock"),
		time("deferred", orange, true, "RESTMapping", "deferred"),
		time("ours", blue, false, "RESTMapping", "ours"),
		time("floor: map lookup, copy", grey, true, "floor", "floor"),
	}
}

func (s *samples) heapPlot() (*plot.Plot, []curve) {
	p := newPlot("Heap that a mapper keeps", "API groups on the server", "heap per mapper")
	bySize(p)
	byPowers(&p.Y, bytesOf, 1<<10, 10<<10, 100<<10, 1<<20, 10<<20, 100<<20)
	kept := func(name string, c color.Color, dashed bool, mapperOf, mapper string) curve {
		return curve{name, c, dashed, s.points(func(groups int) (string, string) {
			return of("OnceHeap/mapper_of="+mapperOf, groups, mapper), heap
		})}
	}
	return p, []curve{
		kept("stock", red, false, "own_server", "stock"),
		kept("deferred", orange, true, "own_server", "deferred"),
		kept("ours", blue, false, "own_server", "ours"),
		kept("ours, equal server read", sky, false, "equal_server", "ours"),
		kept("ours, same server read", green, false, "same_server", "ours"),
	}
}

func (s *samples) latencyPlot() (*plot.Plot, []curve) {
	const groups = 500
	p := newPlot("Hits during two discoveries of a server that takes 300 ms to answer, 500 groups",
		"latency of a hit", "hits that took no longer")
	byPowers(&p.X, seconds, powersOfTen...)
	p.Y.Min, p.Y.Max = 0, 1
	p.Y.Tick.Marker = fixed(func(v float64) string { return number(100*v) + " %" }, 0, 0.25, 0.5, 0.75, 0.9, 1)
	var curves []curve
	for _, m := range []string{"stock", "deferred", "ours"} {
		for _, when := range []string{"busy", "quiet"} {
			label := m + ", during discovery"
			if when == "quiet" {
				label = m + ", without"
			}
			curves = append(curves, curve{label, colors[m], when == "quiet", s.distribution(of("OnceLatency", groups, m), when)})
		}
	}
	return p, curves
}

// points are the medians at each size; none if any was not measured.
func (s *samples) points(of func(groups int) (name, unit string)) plotter.XYs {
	var points plotter.XYs
	for _, groups := range sizes {
		y := s.median(of(groups))
		if !(y > 0) {
			return nil
		}
		points = append(points, plotter.XY{X: float64(groups), Y: y})
	}
	return points
}

// distribution goes through the percentiles that were measured, but for the
// longest hit of all, which is one sample.
func (s *samples) distribution(name, when string) plotter.XYs {
	var points plotter.XYs
	for unit := range s.values[name] {
		p, ok := strings.CutPrefix(unit, when+"-p")
		if !ok {
			continue
		}
		percent, err := strconv.ParseFloat(strings.TrimSuffix(p, "-sec"), 64)
		if err != nil || percent == 100 {
			continue
		}
		points = append(points, plotter.XY{X: s.median(name, unit), Y: percent / 100})
	}
	slices.SortFunc(points, func(a, b plotter.XY) int { return int(math.Copysign(1, a.Y-b.Y)) })
	return points
}

func newPlot(title, x, y string) *plot.Plot {
	face := font.Font{Typeface: "Liberation", Variant: "Sans"}
	style := func(s *text.Style, size vg.Length) {
		s.Font = font.From(face, size)
	}
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.Padding = vg.Points(10)
	p.X.Label.Padding, p.Y.Label.Padding = vg.Points(6), vg.Points(6)
	style(&p.Title.TextStyle, 13)
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		style(&axis.Label.TextStyle, 11)
		style(&axis.Tick.Label, 10)
		axis.Padding = 0
	}
	style(&p.Legend.TextStyle, 10)
	p.Legend.Padding = vg.Points(5)
	p.Legend.ThumbnailWidth = vg.Points(24)
	p.Legend.Top, p.Legend.Left = true, true
	return p
}

// bySize makes the x axis one of numbers of groups.
func bySize(p *plot.Plot) {
	at := make([]float64, 0, len(sizes))
	for _, n := range sizes {
		at = append(at, float64(n))
	}
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, fixed(number, at...)
}

// fixed puts ticks at the values given.
func fixed(label func(float64) string, at ...float64) plot.Ticker {
	return plot.TickerFunc(func(low, high float64) []plot.Tick {
		var ticks []plot.Tick
		for _, v := range at {
			if v >= low*0.999 && v <= high*1.001 {
				ticks = append(ticks, plot.Tick{Value: v, Label: label(v)})
			}
		}
		return ticks
	})
}

var powersOfTen = []float64{1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 10, 100}

// byPowers makes an axis logarithmic, with ticks at the powers given, between
// the powers that enclose the values.
func byPowers(a *plot.Axis, label func(float64) string, powers ...float64) {
	a.Scale, a.Tick.Marker = enclosing{powers}, fixed(label, powers...)
}

// enclosing is a plot.LogScale that save widens to whole powers.
type enclosing struct{ powers []float64 }

func (enclosing) Normalize(low, high, x float64) float64 {
	return plot.LogScale{}.Normalize(low, high, x)
}

func (e enclosing) widen(a *plot.Axis) {
	for _, p := range e.powers {
		if p >= a.Max {
			a.Max = p
			break
		}
	}
	for _, p := range slices.Backward(e.powers) {
		if p <= a.Min {
			a.Min = p
			break
		}
	}
}

// save draws the curves, and the legend to the right of them.
func save(path string, p *plot.Plot, curves []curve) error {
	const width, height, legend = 800, 400, 200
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = pale, pale
	p.Add(grid)
	for _, c := range curves {
		if err := c.add(p); err != nil {
			return err
		}
	}
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		if scale, ok := axis.Scale.(enclosing); ok {
			scale.widen(axis)
		}
	}

	list := p.Legend
	p.Legend = plot.NewLegend()
	canvas := vgsvg.New(width, height)
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	p.Draw(draw.Crop(all, 10, -legend, 10, -8))
	list.Draw(draw.Crop(all, width-legend+12, -4, 0, -44))

	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return err
	}
	// Few have the font that the text is measured with.
	text := bytes.ReplaceAll(svg.Bytes(), []byte("font-family:Liberation Sans"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif"))
	return os.WriteFile(path, text, 0o644)
}

func (c curve) add(p *plot.Plot) error {
	line, dots, err := plotter.NewLinePoints(c.points)
	if err != nil {
		return err
	}
	line.Color, line.Width = c.color, vg.Points(2)
	dots.Color, dots.Shape, dots.Radius = c.color, draw.CircleGlyph{}, vg.Points(2.5)
	if c.dashed {
		line.Dashes = []vg.Length{vg.Points(5), vg.Points(4)}
	}
	p.Add(line, dots)
	p.Legend.Add(c.name, line, dots)
	return nil
}
