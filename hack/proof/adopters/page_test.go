// SPDX-License-Identifier: Apache-2.0

package adopters

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

//go:embed head.md
var head string

// page returns the page with all results. The table has what was done live.
func (rs *results) page(table []entry) string {
	var p report.Page
	var rows [][]string
	var machines []string
	for _, r := range rs.all {
		if r.Fork == "" {
			continue
		}
		op := r.Operator
		machines = append(machines, r.Machine)
		rows = append(rows, []string{
			fmt.Sprintf("[%s](%s)", op.Name, op.Home), op.Version, r.Runtime, strings.TrimPrefix(r.Go, "go"), word(r.Fork), word(r.BuildStock), word(r.BuildFork),
			fmt.Sprintf("%d of %d", r.Packages, r.Candidates), fmt.Sprint(r.Tests), fmt.Sprint(r.Same), fmt.Sprint(len(r.Worse)), fmt.Sprint(len(r.Better)), r.Date,
		})
	}
	p.Table([]string{"operator", "version", "controller-runtime", "Go", "forks", "builds, stock", "builds, fork", "packages", "tests", "same", "worse", "better", "run on"}, rows)
	p.Text("Machine: %s.\n", strings.Join(slices.Compact(machines), "; "))
	rs.section(&p, "Worse on the fork", func(r *result) []string { return r.Worse })
	rs.section(&p, "Better on the fork", func(r *result) []string { return r.Better })
	rs.section(&p, "Run again, because they differed", func(r *result) []string { return r.Again })
	rs.section(&p, "Failing on both", func(r *result) []string { return r.Broken })
	rs.section(&p, "What could not be run", (*result).leftOut)
	p.Text("## On a real API server\n")
	p.Text("Each side has an API server of its own. Times depend on what else the machine does; what counts is whether the operator acts at all, within %v.\n", giveUp)
	for _, r := range rs.all {
		i := slices.IndexFunc(table, func(e entry) bool { return e.Module == r.Operator.Module })
		if r.Live != nil && i >= 0 && table[i].Live != nil {
			r.live(&p, table[i].Live.About)
		}
	}
	return head + strings.TrimSpace(p.String()) + "\n"
}

// word returns the text of a cell that tells whether something worked.
func word(outcome string) string {
	if outcome == "ok" {
		return "yes"
	}
	return "**no**"
}

func (rs *results) section(p *report.Page, title string, of func(*result) []string) {
	p.Text("## %s\n", title)
	none := true
	for _, r := range rs.all {
		for _, line := range of(r) {
			p.Text("- %s: %s", r.Operator.Name, strings.Join(strings.Fields(line), " "))
			none = false
		}
	}
	if none {
		p.Text("None.")
	}
	p.Text("")
}

func (r *result) leftOut() []string {
	var list []string
	for _, problem := range []string{r.Fork, r.BuildStock, r.BuildFork} {
		if strings.HasPrefix(problem, "failed") {
			list = append(list, problem)
		}
	}
	if r.Servers > 0 {
		list = append(list, fmt.Sprintf("%d packages whose tests start an API server", r.Servers))
	}
	if limit := r.Candidates - r.Servers - r.Packages - len(r.NotRun); r.Fork == "ok" && limit > 0 {
		list = append(list, fmt.Sprintf("%d packages more than the limit of that run", limit))
	}
	return append(list, r.NotRun...)
}

// live writes what an operator did on a real API server.
func (r *result) live(p *report.Page, about string) {
	p.Text("### %s %s, controller-runtime %s\n", r.Operator.Name, r.Operator.Version, r.Live.Runtime)
	p.Text("%s\n", about)
	var rows [][]string
	for _, s := range r.Live.Steps {
		rows = append(rows, []string{s.What, s.Stock, s.Fork})
	}
	p.Table([]string{"what happens", "stock", "fork"}, rows)
	p.Text("%s; %s; %s.\n", r.Live.Server, r.Live.Machine, r.Live.Date)
}
