// SPDX-License-Identifier: Apache-2.0

package main

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

// readEquivalents reads why some changes can't be caught, by their key. Each has to be
// one that can be made to the code as it is today.
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

type summary struct {
	results    []result
	equivalent map[string]string
	caught     int
	explained  []result // survived, and it is known why
	survived   []result // survived otherwise
	wrong      []result // explained, and caught all the same
}

func newSummary(results []result, equivalent map[string]string) *summary {
	s := &summary{results: results, equivalent: equivalent}
	for _, r := range results {
		_, known := equivalent[r.key()]
		switch {
		case r.by == "" && known:
			s.explained = append(s.explained, r)
		case r.by == "":
			s.survived = append(s.survived, r)
		default:
			s.caught++
			if known {
				s.wrong = append(s.wrong, r)
			}
		}
	}
	return s
}

func (s *summary) err() error {
	var errs []error
	for _, r := range s.survived {
		errs = append(errs, fmt.Errorf("no test catches, and nothing explains, at %s: %s", r.pos, r.key()))
	}
	for _, r := range s.wrong {
		errs = append(errs, fmt.Errorf("it is explained why this can't be caught, but it was, by %s: %s", r.by, r.key()))
	}
	if share := s.share(); share < least {
		errs = append(errs, fmt.Errorf("the tests catch %.1f %%, which is too little", 100*share))
	}
	return errors.Join(errs...)
}

// share is the part that was caught of the changes that are no equivalents.
func (s *summary) share() float64 {
	return float64(s.caught) / float64(max(1, len(s.results)-len(s.explained)))
}

func (s *summary) write(o options, possible int, took time.Duration) error {
	p := report.NewPage("Mutation", fmt.Sprintf("go run ./mutate -n %d -seed %d", o.places, o.seed), took)
	n := len(s.results)
	p.Text("%d changes were made to the engine, one at a time, of %d that the tool can make, picked at random.", n, possible)
	p.Text("The tests catch %d of them, %.1f %%. Of the other %d, %d change nothing that anybody could notice, as is explained below:", s.caught, 100*float64(s.caught)/float64(n), n-s.caught, len(s.explained))
	p.Text("of the changes that matter **the tests catch %.1f %%**. They used %.0f minutes of one core.\n", 100*s.share(), time.Duration(processor.Load()).Minutes())
	p.Text("Each change has to pass the tests of its package, of internal/reload, 200 histories of hack/lincheck with fixed seeds, and the tests of apiutil, in this")
	p.Text("order, until one fails; what is explained below has not had to pass the last. Tests with a real API server or a browser are not among them, nor is the race detector. A failure counts if the same tests fail once more by")
	p.Text("themselves, in one of three tries, and pass without the change right after. A test that hangs fails.\n")
	p.Table(s.count("kind of change", func(r result) string { return r.kind }))
	p.Table(s.count("file", func(r result) string { return r.file }))
	p.Table(s.stages())
	s.list(p, "## What changes nothing that anybody could notice\n", s.explained)
	s.list(p, "## What no test catches\n", s.survived)
	if err := p.Write(o.out, "mutate.md"); err != nil {
		return err
	}
	return s.err()
}

func (s *summary) list(p *report.Page, title string, results []result) {
	if len(results) == 0 {
		return
	}
	p.Text("%s", title)
	for _, r := range results {
		p.Text("- `%s`: %s", strings.ReplaceAll(r.key(), "`", "'"), s.equivalent[r.key()])
	}
	p.Text("")
}

// count makes a table of changes and how many were caught, by what part says.
func (s *summary) count(column string, part func(result) string) (columns []string, rows [][]string) {
	type counts struct{ made, caught, explained int }
	by := map[string]*counts{}
	for _, r := range s.results {
		c := by[part(r)]
		if c == nil {
			c = &counts{}
			by[part(r)] = c
		}
		c.made++
		if r.by != "" {
			c.caught++
		} else if s.equivalent[r.key()] != "" {
			c.explained++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		c := by[name]
		rows = append(rows, []string{name, fmt.Sprint(c.made), fmt.Sprint(c.caught), fmt.Sprint(c.explained), fmt.Sprint(c.made - c.caught - c.explained)})
	}
	return []string{column, "changes", "caught", "not to be noticed", "not caught"}, rows
}

// stages makes a table of which tests caught how many.
func (s *summary) stages() (columns []string, rows [][]string) {
	by := map[string]int{}
	for _, r := range s.results {
		if r.by != "" {
			by[r.stage]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		rows = append(rows, []string{name, fmt.Sprint(by[name])})
	}
	return []string{"caught first by the tests of", "changes"}, rows
}
