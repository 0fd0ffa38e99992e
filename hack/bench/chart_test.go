// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"fmt"
	"image/color"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Lines of the plot, in colours that people with any kind of colour vision can tell apart
// (Okabe and Ito). The floor is no mapper.
var plotted = []struct {
	mapper string
	color  color.Color
}{
	{"ours", color.RGBA{0x00, 0x72, 0xb2, 0xff}}, {"stock", color.RGBA{0xd5, 0x5e, 0x00, 0xff}},
	{"deferred", color.RGBA{0x00, 0x9e, 0x73, 0xff}}, {"floor", color.Gray{0x70}},
}

// drawHit writes an SVG file that shows the time of a hit by the size of the server. Its legend
// is on the right.
func (s samples) drawHit(file string) error {
	const width, height, legend = 800, 400, 200
	p := plot.New()
	p.Title.Text, p.Title.Padding = "Time of a hit (RESTMapping without a version)", vg.Points(10)
	setFont(&p.Title.TextStyle, 13)
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{0xe4}, color.Gray{0xe4}
	p.Add(grid)
	list := plot.NewLegend()
	setFont(&list.TextStyle, 10)
	list.Top, list.Left, list.Padding, list.ThumbnailWidth = true, true, vg.Points(5), vg.Points(24)
	for _, of := range plotted {
		line, dots, err := plotter.NewLinePoints(s.hits(of.mapper))
		if err != nil {
			return fmt.Errorf("draw %s: %w", of.mapper, err)
		}
		line.Color, line.Width = of.color, vg.Points(2)
		dots.Color, dots.Shape, dots.Radius = of.color, draw.CircleGlyph{}, vg.Points(2.5)
		if of.mapper == "floor" {
			line.Dashes = []vg.Length{vg.Points(5), vg.Points(4)}
		}
		p.Add(line, dots)
		list.Add(of.mapper, line, dots)
	}
	scale(&p.X, "API groups on the server", 10, 100, 500, 2000)
	scale(&p.Y, "time per lookup in µs", 0.1, 1, 10, 100, 1000, 10000)
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
	const measured = "font-family:Liberation Sans"
	data := bytes.ReplaceAll(svg.Bytes(), []byte(measured), []byte(measured+",Arial,Helvetica,sans-serif"))
	return os.WriteFile(file, data, 0o644)
}

// hits are the times in µs of a mapper.
func (s samples) hits(mapper string) (points plotter.XYs) {
	lookup := map[bool]string{true: "floor", false: "RESTMapping"}[mapper == "floor"]
	for _, size := range hitSizes {
		at := s.median(fmt.Sprintf("Hit/groups=%d/lookup=%s/mapper=%s ns/op", size, lookup, mapper)) / 1e3
		points = append(points, plotter.XY{X: float64(size), Y: at})
	}
	return points
}

func setFont(style *text.Style, size vg.Length) {
	style.Font = font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size)
}

// scale makes an axis logarithmic. It begins and ends at a tick, if there is one beyond the points.
func scale(axis *plot.Axis, label string, ticks ...float64) {
	axis.Label.Text, axis.Label.Padding, axis.Padding, axis.Scale = label, vg.Points(6), 0, plot.LogScale{}
	setFont(&axis.Label.TextStyle, 11)
	setFont(&axis.Tick.Label, 10)
	var shown plot.ConstantTicks
	for i, at := range ticks {
		if (i == len(ticks)-1 || ticks[i+1] > axis.Min) && (i == 0 || ticks[i-1] < axis.Max) {
			shown = append(shown, plot.Tick{Value: at, Label: fmt.Sprint(at)})
		}
	}
	axis.Min, axis.Max = min(axis.Min, shown[0].Value), max(axis.Max, shown[len(shown)-1].Value)
	axis.Tick.Marker = shown
}
