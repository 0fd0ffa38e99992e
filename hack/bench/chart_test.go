// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"fmt"
	"math"
	"os"
)

// Lines of the plot, in colours that people with any kind of colour vision can tell apart
// (Okabe and Ito). The floor is no mapper.
var plotted = []struct{ mapper, style string }{
	{"ours", `stroke="#0072b2"`}, {"stock", `stroke="#d55e00"`}, {"deferred", `stroke="#009e73"`}, {"floor", `stroke="#707070" stroke-dasharray="6 5"`},
}

// drawHit writes an SVG file that shows the time of a hit by the size of the server, on
// logarithmic scales. Its legend is on the right.
func (s samples) drawHit(file string) error {
	const left, right, top, bottom = 80, 600, 50, 430
	scale := func(v, from, to, at, end float64) float64 { return at + (end-at)*math.Log(v/from)/math.Log(to/from) }
	x := func(groups int) float64 { return scale(float64(groups), 10, 2000, left, right) }
	y := func(micros float64) float64 { return scale(micros, 0.01, 10000, bottom, top) }
	var svg bytes.Buffer
	add := func(format string, args ...any) { fmt.Fprintf(&svg, format+"\n", args...) }
	text := func(x, y float64, anchor, text string) {
		add(`<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, text)
	}
	add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 490" font-family="Liberation Sans,Arial,Helvetica,sans-serif" font-size="13">`)
	add(`<rect width="760" height="490" fill="#fff"/>`)
	text((left+right)/2, 28, "middle", "Time of a hit (RESTMapping without a version)")
	text((left+right)/2, bottom+44, "middle", "API groups on the server")
	add(`<text transform="translate(22 %d) rotate(-90)" text-anchor="middle">time per lookup in µs</text>`, (top+bottom)/2)
	for _, groups := range hitSizes {
		add(`<path d="M%.1f %dV%d" stroke="#e4e4e4"/>`, x(groups), top, bottom)
		text(x(groups), bottom+20, "middle", fmt.Sprint(groups))
	}
	for micros := 0.01; micros <= 10000; micros *= 10 {
		add(`<path d="M%d %.1fH%d" stroke="#e4e4e4"/>`, left, y(micros), right)
		text(left-8, y(micros)+4, "end", fmt.Sprintf("%g", micros))
	}
	for i, of := range plotted {
		lookup := map[bool]string{true: "floor", false: "RESTMapping"}[of.mapper == "floor"]
		points := ""
		for _, groups := range hitSizes {
			ns := s.median(fmt.Sprintf("Hit/groups=%d/lookup=%s/mapper=%s ns/op", groups, lookup, of.mapper))
			points += fmt.Sprintf("%.1f,%.1f ", x(groups), y(ns/1e3))
		}
		at := float64(top + 20 + 26*i)
		add(`<polyline points="%s" fill="none" stroke-width="2.5" %s/>`, points, of.style)
		add(`<path d="M%d %.1fh30" fill="none" stroke-width="2.5" %s/>`, right+24, at, of.style)
		text(right+62, at+4, "start", of.mapper)
	}
	add("</svg>")
	return os.WriteFile(file, svg.Bytes(), 0o644)
}
