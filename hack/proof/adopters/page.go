// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

const head = `<!-- SPDX-License-Identifier: Apache-2.0 -->

# Other people's operators

Written by ` + "`go run ./adopters`" + ` in hack/proof, the last part by ` + "`go run ./adopters -live`" + `. Each module comes from the Go module proxy and is not
changed. ` + "`hack/fork -into`" + ` forks a copy of it; stock and fork are built, and the operator's own tests are run on both, with ` + "`-short`" + `. Tests are compared by
name, ginkgo's specs included.

Packages are those whose tests have controller-runtime's mapper in them, and of these no more than ` + "`-packages`" + `. Such that start an API server are left out,
but with ` + "`-servers`" + `, which gives them the one of ` + "`hack/envtest.sh latest`" + `. "Same" counts tests that fail on both, too; they are listed below. A test that differs is run three times more, alone, on both
sides, and counts as the best that it came to there.

`

// page is everything that is known, for a reader.
func (all *results) page() string {
	var p report.Page
	var rows [][]string
	for _, r := range *all {
		if r.Fork == "" {
			continue
		}
		op := r.Operator
		rows = append(rows, []string{
			fmt.Sprintf("[%s](%s)", op.Name, op.Home), op.Version, r.Runtime, strings.TrimPrefix(r.Go, "go"), word(r.Fork), word(r.BuildStock), word(r.BuildFork),
			fmt.Sprintf("%d of %d", r.Packages, r.Candidates), fmt.Sprint(r.Tests), fmt.Sprint(r.Same), fmt.Sprint(len(r.Worse)), fmt.Sprint(len(r.Better)), r.Date,
		})
	}
	p.Table([]string{"operator", "version", "controller-runtime", "Go", "forks", "builds, stock", "builds, fork", "packages", "tests", "same", "worse", "better", "run on"}, rows)
	p.Text("Machine: %s.\n", strings.Join(all.machines(), "; "))
	if missing := all.missing(); len(missing) > 0 {
		p.Text("In the program's table, and not run yet: %s.\n", strings.Join(missing, ", "))
	}
	all.section(&p, "Worse on the fork", func(r *result) []string { return r.Worse })
	all.section(&p, "Better on the fork", func(r *result) []string { return r.Better })
	all.section(&p, "Run again, because they differed", func(r *result) []string { return r.Again })
	all.section(&p, "Failing on both", func(r *result) []string { return r.Broken })
	all.section(&p, "What could not be run", func(r *result) []string {
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
	})
	all.live(&p)
	return head + strings.TrimSpace(p.String()) + "\n"
}

// word is the text of a cell: whether something worked.
func word(outcome string) string {
	if outcome == "ok" {
		return "yes"
	}
	return "**no**"
}

// missing are the operators whose tests were not compared.
func (all *results) missing() []string {
	var list []string
	for _, op := range operators {
		if !slices.ContainsFunc(*all, func(r *result) bool { return r.Operator.Module == op.Module && r.Fork != "" }) {
			list = append(list, op.Name+" "+op.Version)
		}
	}
	return list
}

func (all *results) machines() []string {
	var list []string
	for _, r := range *all {
		if r.Machine != "" && (len(list) == 0 || list[len(list)-1] != r.Machine) {
			list = append(list, r.Machine)
		}
	}
	return list
}

func (all *results) section(p *report.Page, title string, of func(*result) []string) {
	p.Text("## %s\n", title)
	none := true
	for _, r := range *all {
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

// live tells what operators did on a real API server.
func (all *results) live(p *report.Page) {
	p.Text("## On a real API server\n")
	p.Text("Each side has an API server of its own. Times depend on what else the machine does; what counts is whether the operator acts at all, within %v.\n", giveUp)
	for _, r := range *all {
		scenario := scenarios[r.Operator.Module]
		if r.Live == nil || scenario == nil {
			continue
		}
		p.Text("### %s %s, controller-runtime %s\n", r.Operator.Name, r.Operator.Version, r.Live.Runtime)
		p.Text("%s\n", scenario.about)
		var rows [][]string
		for _, s := range r.Live.Steps {
			rows = append(rows, []string{s.What, s.Stock, s.Fork})
		}
		p.Table([]string{"what happens", "stock", "fork"}, rows)
		p.Text("%s; %s; %s.\n", r.Live.Server, r.Live.Machine, r.Live.Date)
	}
}
