// SPDX-License-Identifier: Apache-2.0

package adopters

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

// again is how often a package with a test that differs is run once more.
const again = 3

// results are those of the tests of several subjects, which are operators or releases: a table,
// and lists by title.
type results struct {
	rows  [][]string
	lists map[string][]string
}

// The lists, in the order of a page.
const (
	worse  = "Worse than on stock"
	better = "Better than on stock"
	rerun  = "Run again, because they differed"
	broken = "Failing everywhere"
	notRun = "What could not be run"
)

func (r *results) page(p *report.Page, columns ...string) {
	p.Table(append(append(columns, sides...), "ours", "verdict"), r.rows...)
	for _, title := range []string{worse, better, rerun, broken, notRun} {
		p.Text("## %s\n", title)
		for _, line := range r.lists[title] {
			p.Text("- %s", strings.Join(strings.Fields(line), " "))
		}
		if len(r.lists[title]) == 0 {
			p.Text("None.")
		}
		p.Text("")
	}
}

// states are the results of tests by name, ginkgo's specs included. The name "" stands
// for a package that failed although none of its tests did.
type states map[string]state

type state int

// A greater state is better.
const (
	absent state = iota
	failed
	skipped
	passed
)

func (s state) String() string { return [...]string{"absent", "failed", "skipped", "passed"}[s] }

// ends are how a test, or a spec, ends. One without an end has failed.
var ends = map[string]state{
	"run": failed, "fail": failed, "skip": skipped, "pass": passed, "passed": passed, "skipped": skipped, "pending": skipped,
}

// comparison compares the tests of a subject's packages. Tests that stock does not have are
// counted in ours alone, unless they fail.
type comparison struct {
	*results
	subject string
	states  map[string][]state // by side
	ours    []state
	count   map[string]int // by title
}

func (r *results) of(subject string) *comparison {
	return &comparison{results: r, subject: subject, states: map[string][]state{}, count: map[string]int{}}
}

func (c *comparison) list(title, format string, args ...any) {
	c.count[title]++
	c.lists[title] = append(c.lists[title], c.subject+": "+fmt.Sprintf(format, args...))
}

// compare runs the tests of a package on all sides, and again if a test differs. The best of
// all runs counts. It reports whether there was anything to compare: a test that passes on stock.
func (c *comparison) compare(pkg string, run map[string]func() states) bool {
	got := allSides(run)
	stock := got["stock"]
	if !slices.Contains(slices.Collect(maps.Values(stock)), passed) {
		c.list(notRun, "%s: no test passes on stock", pkg)
		return false
	}
	for n := 0; n < again && c.judge(pkg, got, func(string) string { return rerun }); n++ {
		for side, of := range allSides(run) {
			for name, is := range of {
				got[side][name] = max(got[side][name], is)
			}
		}
	}
	c.judge(pkg, got, func(title string) string { return title })
	for name, is := range got["fork"] {
		if stock[name] == absent {
			c.ours = append(c.ours, is)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(stock)) {
		best := absent
		for side, of := range got {
			c.states[side] = append(c.states[side], of[name])
			best = max(best, of[name])
		}
		if best == failed {
			c.list(broken, "%s %s", pkg, name)
		}
	}
	return true
}

// allSides runs the sides beside one another: most tests wait most of the time, and what else the
// machine does falls on all alike.
func allSides(run map[string]func() states) map[string]states {
	got, mu, running := map[string]states{}, sync.Mutex{}, sync.WaitGroup{}
	for side := range run {
		running.Go(func() {
			of := run[side]()
			mu.Lock()
			defer mu.Unlock()
			got[side] = of
		})
	}
	running.Wait()
	return got
}

// judge lists the tests that differ from stock, and reports whether there are any.
func (c *comparison) judge(pkg string, got map[string]states, under func(title string) string) (differ bool) {
	stock := got["stock"]
	for _, side := range slices.Sorted(maps.Keys(got)) {
		all := maps.Clone(stock)
		maps.Copy(all, got[side])
		for _, name := range slices.Sorted(maps.Keys(all)) {
			was, is, title := stock[name], got[side][name], better
			switch {
			case is < was, was == absent && is == failed:
				title = worse
			case is == was, was == absent:
				continue
			}
			differ = true
			c.list(under(title), "%s %s: %s on stock, %s with %s", pkg, name, was, is, side)
		}
	}
	return differ
}

// row adds a row, and fails the test if a test is worse than on stock.
func (c *comparison) row(t *testing.T, cells ...string) {
	verdict := "same"
	if n := c.count[worse]; n > 0 {
		verdict = fmt.Sprintf("**%d worse**", n)
		t.Errorf("%q: %d tests are worse than on stock: %v", cells, n, c.lists[worse])
	} else if n := c.count[better]; n > 0 {
		verdict = fmt.Sprintf("%d better", n)
	}
	for _, side := range sides {
		cells = append(cells, counted(c.states[side]))
	}
	c.rows = append(c.rows, append(cells, counted(c.ours), verdict))
}

// counted is "12 passed, 1 failed"; of nothing "none".
func counted(all []state) string {
	var words []string
	for _, of := range []state{passed, failed, skipped, absent} {
		n := len(all) - len(slices.DeleteFunc(slices.Clone(all), func(is state) bool { return is == of }))
		if n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, of))
		}
	}
	return cmp.Or(strings.Join(words, ", "), "none")
}

// A test that is worse must fail the run. A test that fails everywhere must not.
func TestComparison(t *testing.T) {
	c := (&results{lists: map[string][]string{}}).of("One")
	c.compare("pkg", map[string]func() states{
		"stock": func() states {
			return states{"Same": passed, "Broken": failed, "Worse": passed, "Better": failed, "Gone": passed}
		},
		"fork": func() states {
			return states{"Same": passed, "Broken": failed, "Worse": failed, "Better": passed, "Ours": passed, "OursFails": failed}
		},
	})
	got := fmt.Sprintf("%s %s %s %s; %s; %s", c.lists[worse], c.lists[better], c.lists[broken], counted(c.states["stock"]), counted(c.states["fork"]), counted(c.ours))
	want := "[One: pkg Gone: passed on stock, absent with fork One: pkg OursFails: absent on stock, failed with fork" +
		" One: pkg Worse: passed on stock, failed with fork] [One: pkg Better: failed on stock, passed with fork] [One: pkg Broken]" +
		" 3 passed, 2 failed; 2 passed, 2 failed, 1 absent; 1 passed, 1 failed"
	if got != want {
		t.Errorf("a fork with tests that are worse, better, absent and new:\ngot  %s\nwant %s", got, want)
	}
}

// tested is a package with tests, and all that these import.
type tested struct {
	path string
	deps []string
}

func (p tested) has(pkg string) bool { return slices.Contains(p.deps, pkg) }

// listed lists the packages that have tests.
func (c *adoption) listed(dir string, patterns ...string) (all []tested) {
	args := append([]string{"go", "list", "-e", "-test", "-f", `{{.ImportPath}} {{join .Deps " "}}`}, patterns...)
	for line := range strings.Lines(string(c.output(dir, args...))) {
		deps := strings.Fields(line)
		if path, test := strings.CutSuffix(deps[0], ".test"); test {
			all = append(all, tested{path, deps})
		}
	}
	return all
}

// tests makes a function for each tree that runs the tests of a package in it.
func (c *adoption) tests(p tested, trees map[string]string, env []string, flags ...string) map[string]func() states {
	run := map[string]func() states{}
	for side, dir := range trees {
		run[side] = func() states {
			specs := filepath.Join(c.TempDir(), "specs.json")
			args := append(append([]string{"go", "test", "-json", "-count=1"}, flags...), p.path)
			if p.has("github.com/onsi/ginkgo/v2") {
				args = append(args, "-args", "-ginkgo.json-report="+specs)
			}
			said, err := c.command(dir, env, args...).Output()
			got := states{}
			for line := range bytes.Lines(said) {
				var event struct{ Action, Test string }
				if json.Unmarshal(line, &event) == nil && event.Test != "" && ends[event.Action] != absent {
					got[event.Test] = ends[event.Action]
				}
			}
			if err != nil && !slices.Contains(slices.Collect(maps.Values(got)), failed) {
				got[""] = failed
			}
			if text, none := os.ReadFile(specs); none == nil {
				got.addSpecs(text)
			}
			return got
		}
	}
	return run
}

// address matches a pointer that is printed in a name. It differs from run to run.
var address = regexp.MustCompile(`0x[0-9a-f]{6,}`)

// addSpecs adds the specs of a report of ginkgo's, which go test does not know. Of those with the
// same name each gets a number. What comes before and after counts only if it fails.
func (s states) addSpecs(text []byte) {
	var suites []struct {
		SuiteDescription string
		SpecReports      []struct {
			ContainerHierarchyTexts           []string
			LeafNodeType, LeafNodeText, State string
		}
	}
	if json.Unmarshal(text, &suites) != nil {
		s["ginkgo's report"] = failed
	}
	for _, suite := range suites {
		for _, spec := range suite.SpecReports {
			is := max(ends[spec.State], failed)
			name := suite.SuiteDescription + ": " + strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " ")
			if spec.LeafNodeType != "It" {
				if is != failed {
					continue
				}
				name = suite.SuiteDescription + ": " + spec.LeafNodeType
			}
			name = address.ReplaceAllString(name, "0x…")
			unique := name
			for n := 2; s[unique] != absent; n++ {
				unique = fmt.Sprintf("%s (%d)", name, n)
			}
			s[unique] = is
		}
	}
}
