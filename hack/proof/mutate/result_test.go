// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

// least is the share of the changes that matter which the tests have to catch.
const least = 0.95

// readEquivalents reads why some changes can't be caught, by their key. Each key
// must be of a change that can be made to the present code.
func readEquivalents(file string, all []*change) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var known map[string]string
	if err := json.Unmarshal(text, &known); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	stale := maps.Clone(known)
	for _, c := range all {
		delete(stale, c.key())
	}
	if len(stale) > 0 {
		return nil, fmt.Errorf("%s explains changes that can't be made any more: remove %q", file, slices.Sorted(maps.Keys(stale)))
	}
	return known, nil
}

// result is the outcome of a change.
type result struct {
	*change
	why       string // why nothing can catch it, if that is known
	stage, by string // the stage and the tests that caught it, if any did
}

// outcome is an index of the columns of a table.
type outcome int

const (
	caught outcome = iota
	explained
	survived
)

func (r result) outcome() outcome {
	switch {
	case r.by != "":
		return caught
	case r.why != "":
		return explained
	}
	return survived
}

func (r result) verdict() string {
	if r.by == "" {
		return "SURVIVED at " + r.pos.String()
	}
	return "caught in " + r.stage + ": " + r.by
}

type results []result

// count counts outcomes, by what part says.
func (rs results) count(part func(result) string) map[string][3]int {
	counts := map[string][3]int{}
	for _, r := range rs {
		n := counts[part(r)]
		n[r.outcome()]++
		counts[part(r)] = n
	}
	return counts
}

func (rs results) countAll() [3]int { return rs.count(func(result) string { return "" })[""] }

// share is the part that was caught of the changes that matter.
func share(n [3]int) float64 { return float64(n[caught]) / float64(max(1, n[caught]+n[survived])) }

func (rs results) err() error {
	var errs []error
	for _, r := range rs {
		switch {
		case r.outcome() == survived:
			errs = append(errs, fmt.Errorf("no test catches, and nothing explains, at %s: %s", r.pos, r.key()))
		case r.outcome() == caught && r.why != "":
			errs = append(errs, fmt.Errorf("equivalent.json says why nothing can catch this, but %s did: remove it there: %s", r.by, r.key()))
		}
	}
	if share := share(rs.countAll()); share < least {
		errs = append(errs, fmt.Errorf("the tests catch %.1f %% of the changes that matter, and have to catch %.0f %%", 100*share, 100*least))
	}
	return errors.Join(errs...)
}

const how = `Each change has to pass the tests of its package, of internal/reload, 200 histories of hack/lincheck with fixed seeds, and the tests of apiutil, in this
order, until one fails; what is explained below has not had to pass the last. Tests with a real API server or a browser are not among them, nor is the race detector. A failure counts if the same tests fail once more by
themselves, in one of three tries, and pass without the change right after. A test that hangs fails.
`

func (rs results) page(command string, possible int, took time.Duration) *report.Page {
	p := report.NewPage("Mutation", command, took)
	n := rs.countAll()
	p.Text("%d changes were made to the engine, one at a time, of %d that the tool can make, picked at random.", len(rs), possible)
	p.Text("The tests catch %d of them, %.1f %%. Of the other %d, %d change nothing that anybody could notice, as is explained below:", n[caught], 100*float64(n[caught])/float64(len(rs)), len(rs)-n[caught], n[explained])
	p.Text("of the changes that matter **the tests catch %.1f %%**. They used %.0f minutes of one core.\n", 100*share(n), time.Duration(processor.Load()).Minutes())
	p.Text(how)
	rs.table(p, "kind of change", func(r result) string { return r.kind })
	rs.table(p, "file", func(r result) string { return r.file })
	var rows [][]string
	for stage, n := range rs.count(func(r result) string { return r.stage }) {
		if stage != "" {
			rows = append(rows, []string{stage, fmt.Sprint(n[caught])})
		}
	}
	p.Table([]string{"caught first by the tests of", "changes"}, sorted(rows))
	rs.list(p, "What changes nothing that anybody could notice", explained)
	rs.list(p, "What no test catches", survived)
	return p
}

func (rs results) table(p *report.Page, column string, part func(result) string) {
	var rows [][]string
	for name, n := range rs.count(part) {
		rows = append(rows, []string{name, fmt.Sprint(n[caught] + n[explained] + n[survived]), fmt.Sprint(n[caught]), fmt.Sprint(n[explained]), fmt.Sprint(n[survived])})
	}
	p.Table([]string{column, "changes", "caught", "not to be noticed", "not caught"}, sorted(rows))
}

func sorted(rows [][]string) [][]string {
	slices.SortFunc(rows, slices.Compare[[]string])
	return rows
}

func (rs results) list(p *report.Page, title string, of outcome) {
	rs = slices.DeleteFunc(slices.Clone(rs), func(r result) bool { return r.outcome() != of })
	if len(rs) == 0 {
		return
	}
	p.Text("## %s\n", title)
	for _, r := range rs {
		p.Text("- `%s`: %s", strings.ReplaceAll(r.key(), "`", "'"), r.why)
	}
	p.Text("")
}
