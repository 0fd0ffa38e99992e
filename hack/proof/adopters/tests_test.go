// SPDX-License-Identifier: Apache-2.0

package adopters

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

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
	p.Table(columns, r.rows...)
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
	subject             string
	stock, fork, ours   []state
	same, worse, better int
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
		case is < was, ours(was, is) && is == failed:
			c.worse++
			c.list(worse, "%s %s: %s on stock, %s on the fork", pkg, name, was, is)
		case ours(was, is):
		case is > was:
			c.better++
			c.list(better, "%s %s: %s on stock, %s on the fork", pkg, name, was, is)
		default:
			c.same++
			if is == failed {
				c.list(broken, "%s %s", pkg, name)
			}
		}
	}
}

// ours reports whether only the fork has a test.
func ours(was, is state) bool { return was == absent && is != absent }

// differ reports whether the sides differ, and lists each test that does.
func (c *comparison) differ(pkg string, stock, fork states) (differ bool) {
	for name := range merged(stock, fork) {
		was, is := stock[name], fork[name]
		if was != is && (!ours(was, is) || is == failed) {
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

// A test that is worse must fail the run. A test that fails on both must not.
func TestComparison(t *testing.T) {
	for name, test := range map[string]struct {
		stock, fork []states // of each run, the last for all that follow
		want        string
	}{
		"the same":       {[]states{{"A": passed, "B": skipped}}, []states{{"A": passed, "B": skipped, "Ours": passed}}, "2 same, 0 worse, 0 better, [passed] ours"},
		"worse":          {[]states{{"A": passed}}, []states{{"A": failed}}, "0 same, 1 worse, 0 better, [] ours; One: pkg A: passed on stock, failed on the fork"},
		"gone":           {[]states{{"A": passed}}, []states{{}}, "0 same, 1 worse, 0 better, [] ours; One: pkg A: passed on stock, absent on the fork"},
		"ours fails":     {[]states{{}}, []states{{"A": failed}}, "0 same, 1 worse, 0 better, [failed] ours; One: pkg A: absent on stock, failed on the fork"},
		"better":         {[]states{{"A": failed}}, []states{{"A": passed}}, "0 same, 0 worse, 1 better, [] ours; One: pkg A: failed on stock, passed on the fork"},
		"broken on both": {[]states{{"A": failed}}, []states{{"A": failed}}, "1 same, 0 worse, 0 better, [] ours; One: pkg A"},
		"flaky":          {[]states{{"A": passed, "B": failed}, {"A": failed, "B": passed}}, []states{{"A": failed, "B": passed}, {"A": passed}}, "2 same, 0 worse, 0 better, [] ours"},
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
			got := fmt.Sprintf("%d same, %d worse, %d better, %v ours", c.same, c.worse, c.better, c.ours)
			for _, title := range []string{worse, better, broken} {
				for _, line := range c.lists[title] {
					got += "; " + line
				}
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// compare builds the operator, and runs its tests on stock and fork.
func (tr *trees) compare(t *testing.T, all *results) {
	tr.build(t, tr.stock, os.DevNull, "./...")
	tr.build(t, tr.fork, os.DevNull, "./...")
	found := &comparison{results: all, subject: tr.Name}
	candidates := tr.candidates(t)
	slices.SortStableFunc(candidates, func(a, b candidate) int { return strings.Compare(b.server, a.server) }) // there the mapper has most to do
	ran := 0
	for _, c := range candidates {
		short := strings.TrimPrefix(strings.TrimPrefix(c.path, tr.Module), "/")
		if c.server != "" && !*servers {
			found.list(notRun, "%s, whose tests start an API server", short)
			continue
		}
		if ran == *packages {
			found.list(notRun, "%s and what follows: more packages than the limit of that run", short)
			break
		}
		run := func(fork bool) states {
			return tr.test(t, map[bool]string{false: tr.stock, true: tr.fork}[fork], c.path, c.ginkgo != "", nil, "-short", "-vet=off", "-timeout=10m")
		}
		stock := run(false)
		if !slices.Contains(slices.Collect(maps.Values(stock)), passed) { // there is nothing to compare
			found.list(notRun, "%s: no test passes on stock", short)
			continue
		}
		ran++
		found.compare(short, stock, run)
	}
	all.rows = append(all.rows, []string{
		fmt.Sprintf("[%s](%s)", tr.Name, tr.Home), tr.Version, tr.requires(t, controllerRuntime), tr.output(t, tr.stock, "go", "env", "GOVERSION"),
		fmt.Sprintf("%d of %d", ran, len(candidates)), fmt.Sprint(len(found.stock)), fmt.Sprint(found.same), fmt.Sprint(found.worse), fmt.Sprint(found.better),
		time.Now().UTC().Format(time.DateOnly),
	})
	if found.worse > 0 {
		t.Errorf("%d tests are worse on the fork: %v", found.worse, all.lists[worse])
	}
}

// candidate is a package whose tests have controller-runtime's mapper in them. The other
// fields are "yes" if they also start an API server, or use ginkgo.
type candidate struct{ path, server, ginkgo string }

func (tr *trees) candidates(t *testing.T) (all []candidate) {
	for line := range strings.Lines(tr.output(t, tr.stock, "go", "list", "-e", "-test", "-f", `{{.ImportPath}} {{join .Deps " "}}`, "./...")) {
		fields := strings.Fields(line)
		has := func(pkg string) string { return map[bool]string{true: "yes"}[slices.Contains(fields, pkg)] }
		if path, test := strings.CutSuffix(fields[0], ".test"); test && has(controllerRuntime+"/pkg/client/apiutil") != "" {
			all = append(all, candidate{path, has(controllerRuntime + "/pkg/envtest"), has("github.com/onsi/ginkgo/v2")})
		}
	}
	return all
}

// test runs the tests of a package in a tree.
func (c *commands) test(t *testing.T, dir, pkg string, ginkgo bool, env []string, flags ...string) states {
	t.Helper()
	specs := filepath.Join(t.TempDir(), "specs.json")
	args := append(append([]string{"go", "test", "-json", "-count=1"}, flags...), pkg)
	if ginkgo {
		args = append(args, "-args", "-ginkgo.json-report="+specs)
	}
	said, err := c.try(t, dir, env, args...)
	got := states{}
	got.addTests(said)
	if err != nil && !slices.Contains(slices.Collect(maps.Values(got)), failed) {
		got[""] = failed
	}
	if text, none := os.ReadFile(specs); none == nil {
		if err := got.addSpecs(text); err != nil {
			t.Fatal("read ginkgo's report:", err)
		}
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
