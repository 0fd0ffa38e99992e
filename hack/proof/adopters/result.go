// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/freshmapper/freshmapper/hack/dev/gotest"
	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

// result is what is known of an operator.
type result struct {
	Operator                    operator
	Runtime, Go, Machine, Date  string
	Fork, BuildStock, BuildFork string // "ok", or why not
	Candidates, Packages        int    // packages whose tests have the mapper in them; of these compared
	Servers                     int    // of the candidates were left out, because their tests start an API server
	Tests, Same, Failing        int    // tests compared; those that came to the same; that to a failure
	Worse, Better               []string
	Broken, Again, NotRun       []string
	Live                        *liveResult `json:",omitempty"`
}

func (r *result) begin(runtime string) {
	r.Runtime, r.Machine, r.Date = runtime, report.Machine(), time.Now().UTC().Format(time.DateOnly)
}

// add counts the tests of a package.
func (r *result) add(pkg string, stock, fork states) {
	r.Packages++
	both := maps.Clone(stock)
	maps.Copy(both, fork)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		was, is := stock[name], fork[name]
		label := pkg + " " + display(name)
		r.Tests++
		switch {
		case is < was:
			r.Worse = append(r.Worse, fmt.Sprintf("%s: %s on stock, %s on the fork", label, was, is))
		case is > was:
			r.Better = append(r.Better, fmt.Sprintf("%s: %s on stock, %s on the fork", label, was, is))
		default:
			r.Same++
			if is == gotest.Failed {
				r.Failing++
				r.Broken = append(r.Broken, label)
			}
		}
	}
}

// verdict is an error if the fork is worse than stock.
func (r *result) verdict() error {
	switch {
	case r.Fork != "" && r.Fork != "ok":
		return fmt.Errorf("it can't be forked: %s", r.Fork)
	case r.BuildStock == "ok" && r.BuildFork != "ok":
		return fmt.Errorf("the fork does not build: %s", r.BuildFork)
	case len(r.Worse) > 0:
		return fmt.Errorf("%d tests are worse on the fork, the first: %s", len(r.Worse), r.Worse[0])
	}
	return r.Live.verdict()
}

// results are those of all operators, in the order of the table.
type results []*result

func readResults(file string) (*results, error) {
	var all results
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &all)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return &all, nil
}

// put replaces what was known of an operator, of either its tests or what it did live,
// and both if that was of another version.
func (all *results) put(r *result) {
	i := slices.IndexFunc(*all, func(was *result) bool { return was.Operator.Module == r.Operator.Module })
	switch {
	case i < 0:
		*all = append(*all, r)
		return
	case (*all)[i].Operator.Version != r.Operator.Version:
	case r.Live == nil:
		r.Live = (*all)[i].Live
	case r.Fork == "":
		tests := *(*all)[i]
		tests.Operator, tests.Live = r.Operator, r.Live
		r = &tests
	}
	(*all)[i] = r
}

// write writes what is known, and the page.
func (all *results) write(file, page string) error {
	at := func(r *result) int {
		return slices.IndexFunc(operators, func(o operator) bool { return o.Module == r.Operator.Module })
	}
	*all = slices.DeleteFunc(*all, func(r *result) bool { return at(r) < 0 })
	slices.SortFunc(*all, func(a, b *result) int {
		return strings.Compare(a.Runtime+string(rune(at(a))), b.Runtime+string(rune(at(b))))
	})
	text, err := json.MarshalIndent(all, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(page, []byte(all.page()), 0o644)
}
