// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/freshmapper/freshmapper/hack/e2e/internal/runner"
)

// Widths of columns, in characters.
const (
	whatWidth = 22
	sideWidth = 38
	nameWidth = 12
)

// style is a terminal's escape sequence.
type style string

const (
	plain style = ""
	bold  style = "\x1b[1m"
	faint style = "\x1b[2m"
	red   style = "\x1b[31m"
	green style = "\x1b[32m"
)

type printer struct {
	out   io.Writer
	color bool
}

// cell pads text to a column and colours it.
func (p *printer) cell(s style, width int, text string) string {
	padding := strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
	if !p.color || s == plain {
		return text + padding
	}
	return string(s) + text + "\x1b[0m" + padding
}

func (p *printer) line(cells ...string) {
	fmt.Fprintln(p.out, strings.TrimRight(strings.Join(cells, " "), " "))
}

func (p *printer) timelines(pairs []replay) {
	for _, r := range pairs {
		p.line(p.cell(bold, nameWidth, r.stock.Replay), p.cell(bold, 0, r.stock.Title))
		p.line(p.cell(faint, 8, "       s"), p.cell(plain, whatWidth, ""),
			p.cell(faint, sideWidth, r.stock.Build), p.cell(faint, 0, r.fork.Build))
		for i := range min(len(r.stock.Steps), len(r.fork.Steps)) {
			p.step(r.stock.Steps[i], r.fork.Steps[i])
		}
		p.line()
	}
}

// step prints what was done, and how both sides took it. A change to the server
// has no outcome.
func (p *printer) step(stock, fork runner.Step) {
	when := p.cell(faint, 8, fmt.Sprintf("%8.2f", stock.Seconds))
	if stock.Outcome == "" && fork.Outcome == "" {
		p.line(when, p.cell(bold, 0, stock.What))
		return
	}
	p.line(when, p.cell(plain, whatWidth, stock.What), p.outcome(stock, sideWidth), p.outcome(fork, 0))
}

func (p *printer) outcome(s runner.Step, width int) string {
	text := fmt.Sprintf("%s · %s", s.Outcome, runner.Count(s.Requests, "request", "requests"))
	if s.OK {
		return p.cell(green, width, "✓ "+text)
	}
	return p.cell(red, width, "✗ "+text)
}

func (p *printer) summary(pairs []replay) {
	p.line(p.cell(bold, nameWidth, "time to heal"), p.cell(bold, sideWidth, pairs[0].stock.Build),
		p.cell(bold, sideWidth, pairs[0].fork.Build), p.cell(bold, 0, "as expected"))
	for _, r := range pairs {
		p.line(p.cell(plain, nameWidth, r.stock.Replay), p.verdict(r.stock), p.verdict(r.fork), p.expected(r))
	}
}

func (p *printer) verdict(r *runner.Result) string {
	if r.Healed {
		return p.cell(green, sideWidth, r.Verdict())
	}
	return p.cell(red, sideWidth, r.Verdict())
}

func (p *printer) expected(r replay) string {
	if r.stock.Expected && r.fork.Expected {
		return p.cell(green, 0, "yes")
	}
	return p.cell(red, 0, "NO")
}
