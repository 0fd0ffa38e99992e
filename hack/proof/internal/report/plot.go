// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"image/color"

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

// Series is one line of a plot, or one cloud of dots.
type Series struct {
	Name   string
	Points []Point
	Dots   bool // not joined
	Limit  bool // a bound and no measurement
}

// Plot is a plot with both axes from 0.
type Plot struct {
	Title, X, Y string
	Series      []Series
}

// Write writes the plots, one above the other, as SVG to a file of the folder.
func Write(dir, name string, plots ...Plot) error {
	const width, height, legend = 900, 300, 190
	canvas := vgsvg.New(width, vg.Length(height*len(plots)))
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	for i, p := range plots {
		drawn, err := p.drawn()
		if err != nil {
			return err
		}
		part := draw.Crop(all, 10, -10, vg.Length(height*(len(plots)-1-i))+8, vg.Length(-height*i)-8)
		list := drawn.Legend
		drawn.Legend = plot.NewLegend()
		drawn.Draw(draw.Crop(part, 0, -legend, 0, 0))
		list.Draw(draw.Crop(part, width-legend-8, 0, 0, -28))
	}
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return err
	}
	// Few have the font that the text is measured with.
	data := bytes.ReplaceAll(svg.Bytes(), []byte("font-family:Liberation Sans"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif"))
	return write(dir, name, data)
}

func (p Plot) drawn() (*plot.Plot, error) {
	drawn := plot.New()
	drawn.Title.Text, drawn.X.Label.Text, drawn.Y.Label.Text = p.Title, p.X, p.Y
	drawn.Title.Padding = vg.Points(6)
	for style, size := range map[*text.Style]vg.Length{
		&drawn.Title.TextStyle: 12, &drawn.X.Label.TextStyle: 10, &drawn.Y.Label.TextStyle: 10,
		&drawn.X.Tick.Label: 9, &drawn.Y.Tick.Label: 9, &drawn.Legend.TextStyle: 9,
	} {
		style.Font = font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size)
	}
	drawn.Legend.Top, drawn.Legend.Left = true, true
	drawn.Legend.Padding, drawn.Legend.ThumbnailWidth = vg.Points(4), vg.Points(18)
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{0xe4}, color.Gray{0xe4}
	drawn.Add(grid)
	for i, s := range p.Series {
		if err := s.add(drawn, colors()[i%len(colors())]); err != nil {
			return nil, err
		}
	}
	drawn.X.Min, drawn.Y.Min = 0, 0
	drawn.Y.Max *= 1.05
	return drawn, nil
}

func (s Series) add(p *plot.Plot, c color.Color) error {
	points := s.Points
	if !s.Dots {
		points = thinned(points)
	}
	line, dots, err := plotter.NewLinePoints(plotter.XYs(points))
	if err != nil {
		return err
	}
	line.Color, line.Width = c, vg.Points(1.2)
	dots.Color, dots.Shape, dots.Radius = c, draw.CircleGlyph{}, vg.Points(2)
	switch {
	case s.Dots:
		p.Add(dots)
		p.Legend.Add(s.Name, dots)
		return nil
	case s.Limit:
		line.Color, line.Dashes = color.Gray{0x70}, []vg.Length{vg.Points(5), vg.Points(4)}
	}
	p.Add(line)
	p.Legend.Add(s.Name, line)
	return nil
}

// thinned leaves out points between equal ones, which change nothing but the size.
func thinned(points []Point) []Point {
	var kept []Point
	for i, p := range points {
		if i > 0 && i < len(points)-1 && points[i-1].Y == p.Y && points[i+1].Y == p.Y {
			continue
		}
		kept = append(kept, p)
	}
	return kept
}

// colors can be told apart with any kind of colour vision (Okabe and Ito).
func colors() []color.Color {
	return []color.Color{
		color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xd5, 0x5e, 0x00, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff},
		color.RGBA{0xe6, 0x9f, 0x00, 0xff}, color.RGBA{0x56, 0xb4, 0xe9, 0xff}, color.RGBA{0xcc, 0x79, 0xa7, 0xff},
	}
}

// Level is a bound from one x to another.
func Level(name string, y, from, to float64) Series {
	return Series{Name: name, Limit: true, Points: []Point{{X: from, Y: y}, {X: to, Y: y}}}
}
