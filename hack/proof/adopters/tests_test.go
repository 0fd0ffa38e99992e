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

// results are those of all operators' own tests.
type results struct {
	rows  [][]string
	lists map[string][]string
}

// The lists, in the order of the page.
const (
	worse  = "Worse on the fork"
	better = "Better on the fork"
	rerun  = "Run again, because they differed"
	broken = "Failing on both"
	notRun = "What could not be run"
)

func (r *results) page(p *report.Page) {
	p.Table([]string{"operator", "version", "controller-runtime", "Go", "packages", "tests", "same", "worse", "better", "run on"}, r.rows...)
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

var ends = map[string]state{"fail": failed, "skip": skipped, "pass": passed, "passed": passed, "skipped": skipped, "pending": skipped}

// compare builds the operator, and runs its tests on stock and fork.
func (tr *trees) compare(t *testing.T, all *results) {
	tr.build(t, tr.stock, os.DevNull, "./...")
	tr.build(t, tr.fork, os.DevNull, "./...")
	found := &comparison{name: tr.Name, results: all}
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
		stock := tr.run(t, tr.stock, c)
		if !slices.Contains(slices.Collect(maps.Values(stock)), passed) { // there is nothing to compare
			found.list(notRun, "%s: no test passes on stock", short)
			continue
		}
		ran++
		fork := tr.run(t, tr.fork, c)
		for n := 0; n < again && found.differ(short, stock, fork); n++ {
			stock.improve(tr.run(t, tr.stock, c))
			fork.improve(tr.run(t, tr.fork, c))
		}
		found.add(short, stock, fork)
	}
	all.rows = append(all.rows, []string{
		fmt.Sprintf("[%s](%s)", tr.Name, tr.Home), tr.Version, tr.requires(t, controllerRuntime), strings.TrimSpace(tr.output(t, tr.stock, "go", "env", "GOVERSION")),
		fmt.Sprintf("%d of %d", ran, len(candidates)), fmt.Sprint(found.tests), fmt.Sprint(found.same), fmt.Sprint(found.worse), fmt.Sprint(found.better),
		time.Now().UTC().Format(time.DateOnly),
	})
	if found.worse > 0 {
		t.Errorf("%d tests are worse on the fork: %v", found.worse, all.lists[worse])
	}
}

// comparison counts the tests of an operator.
type comparison struct {
	*results
	name                       string
	tests, same, worse, better int
}

func (c *comparison) list(title, format string, args ...any) {
	c.lists[title] = append(c.lists[title], c.name+": "+fmt.Sprintf(format, args...))
}

// differ reports whether the sides differ, and lists each test that does.
func (c *comparison) differ(pkg string, stock, fork states) bool {
	for name := range merged(stock, fork) {
		if stock[name] != fork[name] {
			c.list(rerun, "%s %s: %s on stock, %s on the fork", pkg, name, stock[name], fork[name])
		}
	}
	return !maps.Equal(stock, fork)
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

// add counts the tests of a package.
func (c *comparison) add(pkg string, stock, fork states) {
	for _, name := range slices.Sorted(maps.Keys(merged(stock, fork))) {
		label := pkg + " " + name
		was, is := stock[name], fork[name]
		c.tests++
		switch {
		case is < was:
			c.worse++
			c.list(worse, "%s: %s on stock, %s on the fork", label, was, is)
		case is > was:
			c.better++
			c.list(better, "%s: %s on stock, %s on the fork", label, was, is)
		default:
			c.same++
			if is == failed {
				c.list(broken, "%s", label)
			}
		}
	}
}

// A test that is worse must fail the run. A test that fails on both must not.
func TestComparison(t *testing.T) {
	c := &comparison{results: &results{lists: map[string][]string{}}, name: "One"}
	c.add("pkg", states{"Both": failed, "Fine": passed, "Better": failed, "Worse": passed}, states{"Both": failed, "Fine": passed, "Better": passed, "Worse": failed})
	got := fmt.Sprint(c.tests, c.same, c.worse, c.better, c.lists[worse], c.lists[better], c.lists[broken])
	want := "4 2 1 1 [One: pkg Worse: passed on stock, failed on the fork] [One: pkg Better: failed on stock, passed on the fork] [One: pkg Both]"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
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

// run runs the tests of a package in a tree.
func (tr *trees) run(t *testing.T, dir string, c candidate) states {
	t.Helper()
	specs := filepath.Join(t.TempDir(), "specs.json")
	args := []string{"go", "test", "-json", "-short", "-count=1", "-vet=off", "-timeout=10m", c.path}
	if c.ginkgo != "" {
		args = append(args, "-args", "-ginkgo.json-report="+specs)
	}
	said, err := tr.try(t, dir, args...)
	got, broke := states{}, false
	for line := range strings.Lines(said) {
		var event struct{ Action, Test string }
		_ = json.Unmarshal([]byte(line), &event) // the go command's own lines are no events
		if is := ends[event.Action]; is != absent && event.Test != "" {
			got[event.Test] = is
			broke = broke || is == failed
		}
	}
	if err != nil && !broke {
		got[""] = failed
	}
	if text, none := os.ReadFile(specs); none == nil {
		if err := got.addSpecs(text); err != nil {
			t.Fatal("read ginkgo's report:", err)
		}
	}
	return got
}

// address matches a pointer that is printed in a name. It differs from run to run.
var address = regexp.MustCompile(`0x[0-9a-f]{6,}`)

// addSpecs adds the specs of a report of ginkgo's. Of those with the same name the worst
// counts.
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
			if worst, known := s[name]; !known || is < worst {
				s[name] = is
			}
		}
	}
	return nil
}
