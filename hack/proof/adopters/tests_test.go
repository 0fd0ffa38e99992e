// SPDX-License-Identifier: Apache-2.0

package adopters

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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
	worse  = "Worse on the fork"
	better = "Better on the fork"
	rerun  = "Run again, because they differed"
	broken = "Failing on both"
	notRun = "What could not be run"
)

func (r *results) page(p *report.Page, columns ...string) {
	p.Table(append(columns, "stock", "fork", "ours", "verdict"), r.rows...)
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
	subject           string
	stock, fork, ours []state
	worse, better     int
}

func (c *comparison) list(title, format string, args ...any) {
	c.lists[title] = append(c.lists[title], c.subject+": "+fmt.Sprintf(format, args...))
}

// compare runs the tests of a package on the fork, which have run on stock, and both again if a
// test differs. The best of all runs counts.
func (c *comparison) compare(pkg string, stock states, run func(fork bool) states) {
	fork := run(true)
	for n := 0; n < again && c.differ(pkg, stock, fork); n++ {
		stock.improve(run(false))
		fork.improve(run(true))
	}
	for _, name := range slices.Sorted(maps.Keys(merged(stock, fork))) {
		was, is := stock[name], fork[name]
		if was == absent {
			c.ours = append(c.ours, is)
		} else {
			c.stock, c.fork = append(c.stock, was), append(c.fork, is)
		}
		switch {
		case is < was, was == absent && is == failed:
			c.worse++
			c.list(worse, "%s %s: %s on stock, %s on the fork", pkg, name, was, is)
		case was != absent && is > was:
			c.better++
			c.list(better, "%s %s: %s on stock, %s on the fork", pkg, name, was, is)
		case is == failed:
			c.list(broken, "%s %s", pkg, name)
		}
	}
}

// differ reports whether the sides differ, and lists each test that does.
func (c *comparison) differ(pkg string, stock, fork states) (differ bool) {
	for name := range merged(stock, fork) {
		was, is := stock[name], fork[name]
		if was != is && (was != absent || is == failed) {
			differ = true
			c.list(rerun, "%s %s: %s on stock, %s on the fork", pkg, name, was, is)
		}
	}
	return differ
}

func merged(stock, fork states) states {
	all := maps.Clone(stock)
	maps.Copy(all, fork)
	return all
}

// improve takes over what is better in another run.
func (s states) improve(run states) {
	for name, is := range run {
		s[name] = max(s[name], is)
	}
}

// row adds a row, and fails the test if a test is worse on the fork.
func (c *comparison) row(t *testing.T, cells ...string) {
	verdict := "same"
	if c.worse > 0 {
		verdict = fmt.Sprintf("**%d worse**", c.worse)
		t.Errorf("%q: %d tests are worse on the fork: %v", cells, c.worse, c.lists[worse])
	} else if c.better > 0 {
		verdict = fmt.Sprintf("%d better", c.better)
	}
	c.rows = append(c.rows, append(cells, counted(c.stock), counted(c.fork), counted(c.ours), verdict))
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

// A test that is worse must fail the run. A test that fails on both must not.
func TestComparison(t *testing.T) {
	for name, test := range map[string]struct {
		stock, fork []states // of each run, the last for all that follow
		want        string   // stock, fork, ours; the lists
	}{
		"the same":       {[]states{{"A": passed, "B": skipped}}, []states{{"A": passed, "B": skipped, "Ours": passed}}, "1 passed, 1 skipped | 1 passed, 1 skipped | 1 passed"},
		"worse":          {[]states{{"A": passed}}, []states{{"A": failed}}, "1 passed | 1 failed | none; Worse on the fork: A: passed on stock, failed on the fork"},
		"gone":           {[]states{{"A": passed}}, []states{{}}, "1 passed | 1 absent | none; Worse on the fork: A: passed on stock, absent on the fork"},
		"ours fails":     {[]states{{}}, []states{{"A": failed}}, "none | none | 1 failed; Worse on the fork: A: absent on stock, failed on the fork"},
		"better":         {[]states{{"A": failed}}, []states{{"A": passed}}, "1 failed | 1 passed | none; Better on the fork: A: failed on stock, passed on the fork"},
		"broken on both": {[]states{{"A": failed}}, []states{{"A": failed}}, "1 failed | 1 failed | none; Failing on both: A"},
		"flaky":          {[]states{{"A": passed, "B": failed}, {"A": failed, "B": passed}}, []states{{"A": failed, "B": passed}, {"A": passed}}, "2 passed | 2 passed | none"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &comparison{results: &results{lists: map[string][]string{}}, subject: "One"}
			runs := map[bool]int{false: 1}
			c.compare("pkg", maps.Clone(test.stock[0]), func(fork bool) states {
				all := map[bool][]states{false: test.stock, true: test.fork}[fork]
				n := min(runs[fork], len(all)-1)
				runs[fork]++
				return maps.Clone(all[n])
			})
			got := counted(c.stock) + " | " + counted(c.fork) + " | " + counted(c.ours)
			for _, title := range []string{worse, better, broken} {
				for _, line := range c.lists[title] {
					got += "; " + title + ": " + strings.TrimPrefix(line, "One: pkg ")
				}
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if wrong := strings.Contains(test.want, worse); wrong != (c.worse > 0) {
				t.Errorf("%d tests are worse; want any: %v", c.worse, wrong)
			}
		})
	}
}

// compare builds the operator, and runs its tests on stock and fork.
func (tr *trees) compare(t *testing.T, all *results) {
	tr.build(t, tr.stock, os.DevNull, "./...")
	tr.build(t, tr.fork, os.DevNull, "./...")
	found := &comparison{results: all, subject: tr.Name}
	candidates := slices.DeleteFunc(tr.tested(t, tr.stock, "./..."), func(p tested) bool { return !p.has(controllerRuntime + "/pkg/client/apiutil") })
	ran := 0
	for _, p := range candidates {
		short := strings.TrimPrefix(strings.TrimPrefix(p.path, tr.Module), "/")
		if p.has(controllerRuntime+"/pkg/envtest") && !*servers {
			found.list(notRun, "%s, whose tests start an API server", short)
			continue
		}
		if ran == *packages {
			found.list(notRun, "%s and what follows: more packages than the limit of that run", short)
			break
		}
		run := func(fork bool) states {
			return tr.test(t, map[bool]string{false: tr.stock, true: tr.fork}[fork], p, nil, "-short", "-vet=off", "-timeout=10m")
		}
		stock := run(false)
		if !slices.Contains(slices.Collect(maps.Values(stock)), passed) { // there is nothing to compare
			found.list(notRun, "%s: no test passes on stock", short)
			continue
		}
		ran++
		found.compare(short, stock, run)
	}
	found.row(t, fmt.Sprintf("[%s](%s) %s, controller-runtime %s", tr.Name, tr.Home, tr.Version, tr.requires(t, controllerRuntime)), fmt.Sprintf("%d of %d", ran, len(candidates)))
}

// tested is a package with tests, and all that these import.
type tested struct {
	path string
	deps []string
}

func (p tested) has(pkg string) bool { return slices.Contains(p.deps, pkg) }

// tested lists the packages that have tests. Those whose tests start an API server come first:
// there the mapper has most to do.
func (c commands) tested(t *testing.T, dir string, patterns ...string) []tested {
	t.Helper()
	var first, others []tested
	args := append([]string{"go", "list", "-e", "-test", "-f", `{{.ImportPath}} {{join .Deps " "}}`}, patterns...)
	for line := range strings.Lines(c.output(t, dir, args...)) {
		fields := strings.Fields(line)
		path, test := strings.CutSuffix(fields[0], ".test")
		switch p := (tested{path, fields}); {
		case !test:
		case p.has(controllerRuntime + "/pkg/envtest"):
			first = append(first, p)
		default:
			others = append(others, p)
		}
	}
	return append(first, others...)
}

// test runs the tests of a package in a tree.
func (c commands) test(t *testing.T, dir string, p tested, env []string, flags ...string) states {
	t.Helper()
	specs := filepath.Join(t.TempDir(), "specs.json")
	args := append(append([]string{"go", "test", "-json", "-count=1"}, flags...), p.path)
	if p.has("github.com/onsi/ginkgo/v2") {
		args = append(args, "-args", "-ginkgo.json-report="+specs)
	}
	said, err := c.try(t, dir, env, args...)
	got := states{}
	got.addTests(said)
	if err != nil && !slices.Contains(slices.Collect(maps.Values(got)), failed) {
		got[""] = failed
	}
	if text, none := os.ReadFile(specs); none == nil {
		must(t, got.addSpecs(text))
	}
	return got
}

// addTests adds what go test -json said. The go command's own lines are no events.
func (s states) addTests(said string) {
	for line := range strings.Lines(said) {
		var event struct{ Action, Test string }
		if json.Unmarshal([]byte(line), &event) == nil && event.Test != "" && ends[event.Action] != absent {
			s[event.Test] = ends[event.Action]
		}
	}
}

// address matches a pointer that is printed in a name. It differs from run to run.
var address = regexp.MustCompile(`0x[0-9a-f]{6,}`)

// addSpecs adds the specs of a report of ginkgo's, which go test does not know. Of those with the
// same name each gets a number. What comes before and after counts only if it fails.
func (s states) addSpecs(text []byte) error {
	var suites []struct {
		SuiteDescription string
		SpecReports      []struct {
			ContainerHierarchyTexts           []string
			LeafNodeType, LeafNodeText, State string
		}
	}
	if err := json.Unmarshal(text, &suites); err != nil {
		return err
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
	return nil
}

// Specs are told apart by their names, which may have addresses in them.
func TestReports(t *testing.T) {
	const said = `{"Action":"run","Test":"TestA"}
go: a warning
{"Action":"pass","Test":"TestA"}
{"Action":"run","Test":"TestB"}
{"Action":"skip","Test":"TestC"}
{"Action":"fail"}`
	const report = `[{"SuiteDescription": "S", "SpecReports": [
		{"LeafNodeType": "BeforeSuite", "State": "passed"},
		{"LeafNodeType": "It", "LeafNodeText": "is 0x3532013206a8", "ContainerHierarchyTexts": ["a"], "State": "passed"},
		{"LeafNodeType": "It", "LeafNodeText": "is 0x3532016cdae8", "ContainerHierarchyTexts": ["a"], "State": "failed"},
		{"LeafNodeType": "It", "LeafNodeText": "b", "State": "pending"},
		{"LeafNodeType": "AfterSuite", "State": "panicked"}]}]`
	got := states{}
	got.addTests(said)
	if err := got.addSpecs([]byte(report)); err != nil {
		t.Fatal(err)
	}
	want := states{
		"TestA": passed, "TestB": failed, "TestC": skipped,
		"S: a is 0x…": passed, "S: a is 0x… (2)": failed, "S: b": skipped, "S: AfterSuite": failed,
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if err := got.addSpecs([]byte(`[{"`)); err == nil {
		t.Error("half a report of ginkgo's is taken for one")
	}
}
