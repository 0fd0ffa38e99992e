// SPDX-License-Identifier: Apache-2.0

// Package chart draws the plots of hack/bench and hack/proof.
package chart

import (
	"bytes"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Point is a point of a plot.
type Point = plotter.XY

// Line is one line of a plot, or a cloud of dots.
type Line struct {
	Name   string
	Points []Point
	Dashed bool // and grey
	Dots   bool // the points are drawn, too
	Cloud  bool // nothing but the points is drawn
}

// Level is a bound from one x to another, which is no measurement.
func Level(name string, y, from, to float64) Line {
	return Line{Name: name, Dashed: true, Points: []Point{{X: from, Y: y}, {X: to, Y: y}}}
}

// Axis is an axis of a plot. One without ticks begins at 0. One with ticks ends at
// ticks, and is logarithmic unless they begin at 0.
type Axis struct {
	Label string
	Ticks []float64
	Say   func(float64) string // the label of a tick
}

// Plot is a plot.
type Plot struct {
	Title string
	X, Y  Axis
	Lines []Line
}

// Colours that people with any kind of colour vision can tell apart (Okabe and Ito).
var palette = []color.Color{
	color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xd5, 0x5e, 0x00, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff},
	color.RGBA{0xe6, 0x9f, 0x00, 0xff}, color.RGBA{0x56, 0xb4, 0xe9, 0xff}, color.RGBA{0xcc, 0x79, 0xa7, 0xff},
}

// Write writes the plots to an SVG file, one above the other, each with its legend
// on the right. It makes the folder, too: what took hours is not lost for want of one.
func Write(file string, height float64, plots ...Plot) error {
	const width, legend = 800, 200
	canvas := vgsvg.New(width, vg.Length(height*float64(len(plots))))
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	for i, p := range plots {
		drawn, err := p.draw()
		if err != nil {
			return fmt.Errorf("%s: draw %q: %w", file, p.Title, err)
		}
		list := drawn.Legend
		drawn.Legend = plot.NewLegend()
		part := draw.Crop(all, 0, 0, vg.Length(height*float64(len(plots)-1-i)), vg.Length(-height*float64(i)))
		drawn.Draw(draw.Crop(part, 10, -legend, 10, -8))
		list.Draw(draw.Crop(part, width-legend+12, -4, 0, -44))
	}
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return err
	}
	// Few have the font that the text is measured with.
	data := bytes.ReplaceAll(svg.Bytes(), []byte("font-family:Liberation Sans"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif"))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

func (p Plot) draw() (*plot.Plot, error) {
	drawn := plot.New()
	drawn.Title.Text = p.Title
	drawn.Title.Padding = vg.Points(10)
	setFont(&drawn.Title.TextStyle, 13)
	setFont(&drawn.Legend.TextStyle, 10)
	drawn.Legend.Top, drawn.Legend.Left = true, true
	drawn.Legend.Padding, drawn.Legend.ThumbnailWidth = vg.Points(5), vg.Points(24)
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{0xe4}, color.Gray{0xe4}
	drawn.Add(grid)
	for i, l := range p.Lines {
		if err := l.add(drawn, palette[i%len(palette)]); err != nil {
			return nil, err
		}
	}
	if len(p.Y.Ticks) == 0 {
		drawn.Y.Max *= 1.05
	}
	p.X.apply(&drawn.X)
	p.Y.apply(&drawn.Y)
	return drawn, nil
}

func setFont(style *text.Style, size vg.Length) {
	style.Font = font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size)
}

func (a Axis) apply(axis *plot.Axis) {
	axis.Label.Text, axis.Label.Padding, axis.Padding = a.Label, vg.Points(6), 0
	setFont(&axis.Label.TextStyle, 11)
	setFont(&axis.Tick.Label, 10)
	if len(a.Ticks) == 0 {
		axis.Min = 0
		return
	}
	if a.Ticks[0] > 0 {
		axis.Scale = plot.LogScale{}
	}
	for _, tick := range slices.Backward(a.Ticks) {
		if tick <= axis.Min {
			axis.Min = tick
			break
		}
	}
	if i := slices.IndexFunc(a.Ticks, func(tick float64) bool { return tick >= axis.Max }); i >= 0 {
		axis.Max = a.Ticks[i]
	}
	axis.Tick.Marker = plot.TickerFunc(func(low, high float64) []plot.Tick {
		var ticks []plot.Tick
		for _, v := range a.Ticks {
			if v >= low*0.999 && v <= high*1.001 {
				ticks = append(ticks, plot.Tick{Value: v, Label: a.Say(v)})
			}
		}
		return ticks
	})
}

func (l Line) add(p *plot.Plot, c color.Color) error {
	points := l.Points
	if l.Dashed {
		c = color.Gray{0x70}
	}
	if !l.Cloud {
		points = thinned(points)
	}
	line, dots, err := plotter.NewLinePoints(plotter.XYs(points))
	if err != nil {
		return err
	}
	line.Color, line.Width = c, vg.Points(1.2)
	dots.Color, dots.Shape, dots.Radius = c, draw.CircleGlyph{}, vg.Points(2.5)
	if l.Dashed {
		line.Dashes = []vg.Length{vg.Points(5), vg.Points(4)}
	}
	switch {
	case l.Cloud:
		p.Add(dots)
		p.Legend.Add(l.Name, dots)
	case l.Dots:
		line.Width = vg.Points(2)
		p.Add(line, dots)
		p.Legend.Add(l.Name, line, dots)
	default:
		p.Add(line)
		p.Legend.Add(l.Name, line)
	}
	return nil
}

// thinned leaves out points between equal ones, which change nothing but the size.
func thinned(points []Point) []Point {
	var kept []Point
	for i, p := range points {
		if i == 0 || i == len(points)-1 || points[i-1].Y != p.Y || points[i+1].Y != p.Y {
			kept = append(kept, p)
		}
	}
	return kept
}
