// SPDX-License-Identifier: Apache-2.0

package adopters

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"testing"

	"github.com/freshmapper/freshmapper/hack/dev/gotest"
)

// result is what is known of an operator.
type result struct {
	Operator                    operator
	Runtime, Go, Machine, Date  string
	Fork, BuildStock, BuildFork string // "ok", or why not
	Candidates, Packages        int    // packages whose tests have the mapper in them; those of them that were compared
	Servers                     int    // candidates left out because their tests start an API server
	Tests, Same, Failing        int    // tests compared; those that came to the same; those that failed on both
	Worse, Better               []string
	Broken, Again, NotRun       []string
	Live                        *liveResult `json:",omitempty"`
}

// add counts the tests of a package.
func (r *result) add(pkg string, stock, fork states) {
	r.Packages++
	for _, name := range stock.names(fork) {
		was, is := stock[name], fork[name]
		label := pkg + " " + display(name)
		differs := fmt.Sprintf("%s: %s on stock, %s on the fork", label, was, is)
		r.Tests++
		switch {
		case is < was:
			r.Worse = append(r.Worse, differs)
		case is > was:
			r.Better = append(r.Better, differs)
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
	case r.Live == nil:
		return nil
	}
	for _, s := range r.Live.Steps {
		if s.ForkFailed {
			return fmt.Errorf("on the fork, %s: %s", s.What, s.Fork)
		}
	}
	return nil
}

// results are what is known of all operators.
type results struct {
	file string
	all  []*result
}

func readResults(t *testing.T, file string) *results {
	t.Helper()
	rs := &results{file: file}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return rs
	}
	if err := errors.Join(err, json.Unmarshal(text, &rs.all)); err != nil {
		t.Fatalf("read %s: %v", file, err)
	}
	return rs
}

// of returns what is known of an operator: nothing if that is of another version.
func (rs *results) of(op operator) *result {
	i := slices.IndexFunc(rs.all, func(r *result) bool { return r.Operator.Module == op.Module })
	if i < 0 {
		i, rs.all = len(rs.all), append(rs.all, &result{})
	}
	if rs.all[i].Operator.Version != op.Version {
		*rs.all[i] = result{}
	}
	rs.all[i].Operator = op
	return rs.all[i]
}

// write writes what is known, in the order of the table, and the page.
func (rs *results) write(t *testing.T, page string) {
	t.Helper()
	table := operators(t)
	at := func(r *result) int {
		return slices.IndexFunc(table, func(e entry) bool { return e.Module == r.Operator.Module })
	}
	rs.all = slices.DeleteFunc(rs.all, func(r *result) bool { return at(r) < 0 })
	slices.SortFunc(rs.all, func(a, b *result) int { return at(a) - at(b) })
	text, err := json.MarshalIndent(rs.all, "", "\t")
	if err == nil {
		err = os.WriteFile(rs.file, append(text, '\n'), 0o644)
	}
	if err == nil {
		err = os.WriteFile(page, []byte(rs.page(table)), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
