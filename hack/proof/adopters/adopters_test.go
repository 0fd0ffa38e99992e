// SPDX-License-Identifier: Apache-2.0

// Package adopters compares stock with both installations by other people's tests, by name: upstream's own
// (hack/test.sh -matrix runs TestUpstream), and those of operators, unmodified except for one line and from
// the Go module proxy or their repository. Six operators are also at work on a real API server, while
// CRDs come late, change and go. operators.yaml lists the operators. In hack/proof:
//
//	go test ./adopters -v -timeout 0 -run TestAdopters/JobSet/tests -args -page /tmp/page.md [-packages 12]
//	go test ./adopters -v -timeout 0 -run TestAdopters/kro/live -args -page /tmp/page.md
//
// A run of all operators writes docs/third-party-tests.md.
package adopters

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/freshmapper/freshmapper"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

const root = "../../.."

// sides are the trees of each operator or release: as it is, forked, and with our constructors.
var sides = []string{"upstream", "patched", "fresh"}

var (
	page     = flag.String("page", "", "the page to write; empty: no operator is run")
	packages = flag.Int("packages", 12, "how many packages of each operator are tested at most")
	releases = flag.String("lines", "", "releases, v0.20.4,v0.25.2 say; default: the newest tested one of each line")
	folders  = flag.String("folders", "./pkg/client/...,./pkg/cache/...,./pkg/cluster/...,./pkg/manager/...,./pkg/controller/...,./pkg/builder/...,./pkg/handler,./pkg/source", "of upstream's packages")
)

//go:embed operators.yaml
var table []byte

// adoption compares the trees of one operator or release.
type adoption struct {
	*report.Campaign
	operator
	trees map[string]string // by side; not all may be
	mod   struct {
		Module  struct{ Path string }
		Require []struct{ Path, Version string }
		Replace []struct {
			Old, New struct{ Path, Version string }
		}
	}
}

// operator is a published module, or without one a repository at the tag. operators.yaml explains Live.
type operator struct {
	Name, Module, Version, Home string
	Live                        *scenario
}

// No test of an operator's own is worse than on stock, and on a real API server our sides act on
// what comes late or changes.
func TestAdopters(t *testing.T) {
	compared(t, "docs/third-party-tests.md", []string{"operator", "packages"}, func(c *adoption, all *results) string {
		var known struct{ Operators []operator }
		var live report.Page
		c.Must(yaml.Unmarshal(table, &known))
		for _, op := range known.Operators {
			t.Run(op.Name, func(t *testing.T) {
				a := &adoption{Campaign: report.Begin(t), operator: op}
				a.plant(all)
				t.Run("tests", func(t *testing.T) { a.in(t).compare(all) })
				if op.Live != nil {
					t.Run("live", func(t *testing.T) { a.in(t).live(&live) })
				}
			})
		}
		return fmt.Sprintf("## On a real API server\n\nEach side has an API server of its own. Times depend on what else the machine does; "+
			"what counts is whether the operator acts at all, within %v.\n\n%s\n", giveUp, live.String())
	})
}

// in returns the same in a test of its own.
func (c *adoption) in(t *testing.T) *adoption {
	with := *c
	with.Campaign = report.Begin(t)
	return &with
}

// compared writes the page of what run compares. What the last page says before its first table stays.
func compared(t *testing.T, file string, columns []string, run func(c *adoption, all *results) (more string)) {
	if *page == "" {
		t.Skip("-page does not say where to write; this takes hours")
	}
	c, all := &adoption{Campaign: report.Begin(t)}, &results{lists: map[string][]string{}}
	more := run(c, all)
	c.Must(c.Ctx.Err())
	all.page(&c.Page, columns...)
	c.Text("%s\nMachine: %s.", more, report.Machine())
	last, err := os.ReadFile(filepath.Join(root, file))
	c.Must(err)
	c.Must(c.Write(*page, string(last[:bytes.Index(last, []byte("\n| "))])))
}

// plant makes the trees of an operator.
func (c *adoption) plant(all *results) {
	dir := c.TempDir()
	c.trees = map[string]string{}
	for _, side := range sides {
		c.trees[side] = filepath.Join(dir, side)
	}
	stock := c.trees["upstream"]
	if c.Module == "" {
		c.output("", "git", "clone", "--quiet", "--depth=1", "--branch="+c.Version, c.Home, stock)
	} else {
		c.Must(os.CopyFS(stock, os.DirFS(c.download(c.Module, c.Version))))
	}
	// Modules that a repository keeps in folders of its own, and replaces with these, are not in the module's zip.
	c.Must(json.Unmarshal(c.output(stock, "go", "mod", "edit", "-json"), &c.mod))
	for _, r := range c.mod.Replace {
		to := filepath.Join(stock, filepath.FromSlash(r.New.Path))
		if _, err := os.Stat(to); err != nil && r.New.Version == "" {
			c.Must(os.CopyFS(to, os.DirFS(c.download(r.Old.Path, c.requires(r.Old.Path)))))
		}
	}
	c.Must(os.CopyFS(c.trees["patched"], os.DirFS(stock)))
	c.output(root, "go", "run", "./hack/fork", "-into", c.trees["patched"])
	const newManager = `(?:ctrl\w*|manager)\.NewManager`
	making := regexp.MustCompile(`\b` + newManager + `\(`)
	c.freshen(all, c.requires(tree.Module), func(file string) bool {
		text, _ := os.ReadFile(file) // what cannot be read is not changed
		return !strings.HasSuffix(file, "_test.go") && making.Match(text)
	}, map[string]string{newManager: "NewManager", `client\.New`: "NewClient", `cache\.New`: "NewCache"})
}

// freshen makes the tree fresh, if it can: that of stock, with files that call our constructors.
func (c *adoption) freshen(all *results, version string, in func(file string) bool, constructors map[string]string) {
	dir, changed := c.trees["fresh"], 0
	if version < "v0.23" {
		all.of(c.Name).list(notRun, "fresh needs controller-runtime v0.23 or newer, this is %s", version)
		delete(c.trees, "fresh")
		return
	}
	c.Must(os.CopyFS(dir, os.DirFS(c.trees["upstream"])))
	c.Must(filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, ".go") || !in(file) {
			return err
		}
		text, err := os.ReadFile(file)
		with := constructedByFresh(text, constructors)
		if err != nil || bytes.Equal(text, with) {
			return err
		}
		changed++
		with = regexp.MustCompile(`(?m)^package \w+`).ReplaceAll(with, []byte("$0\n\nimport \"github.com/freshmapper/freshmapper/fresh\"\n"))
		return os.WriteFile(file, with, 0o644)
	}))
	ours, err := filepath.Abs(root)
	c.Must(err)
	const module = "github.com/freshmapper/freshmapper"
	c.output(dir, "go", "mod", "edit", "-require="+module+"@v0.0.0", "-require="+module+"/fresh@v0.0.0", "-replace="+module+"="+ours, "-replace="+module+"/fresh="+ours+"/fresh")
	said, err := c.command(dir, nil, "go", "build", "./...").CombinedOutput()
	if changed == 0 || err != nil {
		all.of(c.Name).list(notRun, "with fresh in %d files, go build: %v %s", changed, err, said[max(0, len(said)-300):])
		delete(c.trees, "fresh")
	}
}

// constructedByFresh returns the text of a Go file in which functions of fresh take the place of others, by the
// pattern of a name. A name counts where it is called and where it is an argument, as upstream's tests of the cache
// hand cache.New over.
func constructedByFresh(text []byte, constructors map[string]string) []byte {
	for _, pattern := range slices.Sorted(maps.Keys(constructors)) {
		use := regexp.MustCompile(`\b(` + pattern + `)([(,)\n])`)
		found := use.FindSubmatch(text)
		if found == nil {
			continue
		}
		imported := "\nvar _ = " + string(found[1]) + "\n" // so that its import is used
		text = append(use.ReplaceAll(text, []byte("fresh."+constructors[pattern]+"$2")), imported...)
	}
	return text
}

func TestConstructedByFresh(t *testing.T) {
	for before, want := range map[string]string{
		"cache.New(cfg)":          "fresh.NewCache(cfg)\nvar _ = cache.New\n",
		"Test(cache.New, opts)":   "Test(fresh.NewCache, opts)\nvar _ = cache.New\n",
		"Test(cache.New)":         "Test(fresh.NewCache)\nvar _ = cache.New\n",
		"f := cache.New\n":        "f := fresh.NewCache\n\nvar _ = cache.New\n",
		"ctrlruntime.NewManager(": "fresh.NewManager(\nvar _ = ctrlruntime.NewManager\n",
		"cache.NewInformer(":      "cache.NewInformer(",
		"lrucache.New(":           "lrucache.New(",
	} {
		got := constructedByFresh([]byte(before), map[string]string{`cache\.New`: "NewCache", `(?:ctrl\w*|manager)\.NewManager`: "NewManager"})
		if string(got) != want {
			t.Errorf("%q became %q, want %q", before, got, want)
		}
	}
}

// requires returns the version of a module in the operator's go.mod.
func (c *adoption) requires(path string) string {
	for _, r := range c.mod.Require {
		if r.Path == path {
			return r.Version
		}
	}
	c.Fatalf("%s is not in the go.mod of %s", path, c.Name)
	return ""
}

// compare builds the operator, and runs its tests on all sides: of those packages whose
// tests have the mapper in them, and start no API server.
func (c *adoption) compare(all *results) {
	c.output(c.trees["upstream"], "go", "build", "./...")
	c.output(c.trees["patched"], "go", "build", "./...")
	found, ran := all.of(c.Name), 0
	candidates := slices.DeleteFunc(c.listed(c.trees["upstream"], "./..."), func(p tested) bool { return !p.has(tree.Module + "/pkg/client/apiutil") })
	for _, p := range candidates {
		short := strings.TrimPrefix(strings.TrimPrefix(p.path, c.mod.Module.Path), "/")
		if ran < *packages && !p.has(tree.Module+"/pkg/envtest") && found.compare(short, c.trees, c.tests(p, nil, "-short", "-vet=off", "-timeout=10m")) {
			ran++
		}
	}
	found.row(c.T, "["+c.Name+"]("+c.Home+") "+c.Version+", controller-runtime "+c.requires(tree.Module), fmt.Sprintf("%d of %d", ran, len(candidates)))
}

// download returns the folder of a module in the module cache.
func (c *adoption) download(module, version string) string {
	var got struct{ Dir string }
	c.Must(json.Unmarshal(c.output("", "go", "mod", "download", "-json", module+"@"+version), &got))
	return got.Dir
}

func (c *adoption) command(dir string, env []string, args ...string) *exec.Cmd {
	if dir == c.trees["fresh"] {
		env = append(env, "GOFLAGS=-mod=mod") // its go.mod and go.sum lack what fresh requires
	}
	return c.Command(dir, append([]string{"GOTOOLCHAIN=auto", // an operator may need a newer Go than ours
		"KUBEBUILDER_CONTROLPLANE_START_TIMEOUT=5m", "KUBEBUILDER_CONTROLPLANE_STOP_TIMEOUT=2m"}, env...), args...) // for a busy machine
}

// output runs a command that must work, and returns what it writes to stdout.
func (c *adoption) output(dir string, args ...string) []byte {
	c.Helper()
	said, err := c.command(dir, nil, args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		c.Fatalf("%s: %v\n%s%s", strings.Join(args, " "), err, said, exit.Stderr)
	}
	c.Must(err)
	return bytes.TrimSpace(said)
}

// TestUpstream fails if an upstream test is worse on the fork, or with our constructors, than on stock.
func TestUpstream(t *testing.T) {
	compared(t, "hack/fork/MATRIX.md", []string{"controller-runtime", "package"}, func(c *adoption, all *results) string {
		latest, legacy := os.Getenv("KUBEBUILDER_ASSETS"), os.Getenv("LEGACY_ASSETS")
		versions := strings.Split(*releases, ",")
		if *releases == "" {
			versions = nil
			for _, line := range tree.Lines {
				versions = append(versions, line.Newest)
			}
		}
		for _, c.Name = range versions {
			c.release(all, c.Name, latest, legacy)
		}
		version := func(assets string) []byte { return c.output("", filepath.Join(assets, "kube-apiserver"), "--version") }
		return fmt.Sprintf("fresh: from v0.23 on, upstream's tree, where the tests call the constructors of `fresh`: those of clients, caches, controllers, sources and builders.\n\n"+
			"API servers: %s; and %s where upstream tests the mapper without aggregated discovery.", version(latest), version(legacy))
	})
}

// release makes the trees of a release, all without the white-box test, and runs the tests on them.
func (c *adoption) release(all *results, version, latest, legacy string) {
	source, err := tree.Folder(c.Ctx, version, nil)
	c.Must(err)
	work := c.TempDir()
	stock, fork, fresh := filepath.Join(work, "upstream"), filepath.Join(work, "patched"), filepath.Join(work, "fresh")
	c.trees = map[string]string{"upstream": stock, "patched": fork, "fresh": fresh}
	c.Must(os.CopyFS(stock, os.DirFS(source)))
	if err := os.Remove(filepath.Join(stock, "pkg/client/apiutil/restmapper_wb_test.go")); !errors.Is(err, fs.ErrNotExist) {
		c.Must(err)
	}
	c.Must(tree.Create(c.Ctx, tree.Request{Dir: fork, Version: version, Ours: freshmapper.Source, Full: true, Out: os.Stderr}))
	external := regexp.MustCompile(`(?m)^package (client_test|cache_test|controller_test|source_test|builder|builder_test)$`) // fresh imports none of them
	c.freshen(all, version, func(file string) bool {
		text, _ := os.ReadFile(file) // what cannot be read is not changed
		return external.Match(text)
	}, map[string]string{
		`cache\.New`: "NewCache", `client\.New`: "NewClient", `manager\.New`: "NewManager",
		`client\.NewWithWatch`: "NewWithWatch", `client\.NewNamespacedClient`: "NewNamespacedClient",
	})
	c.add(all, "build and vet", func(dir string) states {
		got := states{"go build": passed, "go vet": passed}
		for name := range got {
			if said, err := c.command(dir, nil, append(strings.Fields(name), "./...")...).CombinedOutput(); err != nil {
				c.Logf("%s", said)
				got[name] = failed
			}
		}
		return got
	})
	mapper, err := os.ReadFile(filepath.Join(stock, "pkg/client/apiutil/restmapper_test.go"))
	c.Must(err)
	for _, p := range c.listed(stock, strings.Split("./"+strings.NewReplacer("./", "", ",", ",./").Replace(*folders), ",")...) {
		// In v0.20 both parts of the mapper's test take the same server, which has to be the old one.
		// In later lines the part without aggregated discovery finds its server in setup-envtest's store.
		pkg, server := strings.TrimPrefix(p.path, tree.Module+"/"), latest
		if pkg == "pkg/client/apiutil" && !bytes.Contains(mapper, []byte("DownloadBinaryAssets")) {
			server = legacy
		}
		c.add(all, pkg, c.tests(p, []string{"KUBEBUILDER_ASSETS=" + server}, "-timeout=20m"))
	}
}

// add adds the row of a package.
func (c *adoption) add(all *results, pkg string, run func(dir string) states) {
	found := all.of(c.Name)
	found.compare(pkg, c.trees, run)
	found.row(c.T, c.Name, pkg)
}

const again = 3 // times a package with a test that differs is run once more

// results are those of the tests of several subjects, which are operators or releases: a table, and lists by title.
type results struct {
	rows  [][]string
	lists map[string][]string
}

// The lists, in the order of a page.
const (
	worse  = "Worse than upstream"
	better = "Better than upstream"
	rerun  = "Run again, because they differed"
	broken = "Failing everywhere"
	notRun = "What could not be run"
)

func (r *results) page(p *report.Page, columns ...string) {
	p.Table(append(append(columns, sides...), "verdict"), r.rows...)
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

// state is how a test ended. A greater one is better.
type state int

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

// comparison compares the tests of a subject's packages. Tests that stock does not have count only if they fail.
type comparison struct {
	*results
	subject string
	states  map[string][]state // by side
	count   map[string]int     // by title
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
func (c *comparison) compare(pkg string, trees map[string]string, run func(dir string) states) bool {
	got := allSides(trees, run)
	stock := got["upstream"]
	if !slices.Contains(slices.Collect(maps.Values(stock)), passed) {
		c.list(notRun, "%s: no test passes on upstream", pkg)
		return false
	}
	for n := 0; n < again && c.judge(pkg, got, rerun); n++ {
		for side, of := range allSides(trees, run) {
			for name, is := range of {
				got[side][name] = max(got[side][name], is)
			}
		}
	}
	c.judge(pkg, got, "")
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
func allSides(trees map[string]string, run func(dir string) states) map[string]states {
	got, mu, running := map[string]states{}, sync.Mutex{}, sync.WaitGroup{}
	for side, dir := range trees {
		running.Go(func() {
			of := run(dir)
			mu.Lock()
			defer mu.Unlock()
			got[side] = of
		})
	}
	running.Wait()
	return got
}

// judge lists the tests that differ from stock, and reports whether there are any.
func (c *comparison) judge(pkg string, got map[string]states, under string) (differ bool) {
	stock := got["upstream"]
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
			c.list(cmp.Or(under, title), "%s %s: %s on upstream, %s with %s", pkg, name, was, is, side)
		}
	}
	return differ
}

// row adds a row, and fails the test if a test is worse than on stock.
func (c *comparison) row(t *testing.T, cells ...string) {
	verdict := "same"
	if n := c.count[worse]; n > 0 {
		verdict = fmt.Sprintf("**%d worse**", n)
		t.Errorf("%q: %d tests are worse than on upstream: %v", cells, n, c.lists[worse])
	} else if n := c.count[better]; n > 0 {
		verdict = fmt.Sprintf("%d better", n)
	}
	for _, side := range sides {
		cells = append(cells, counted(c.states[side]))
	}
	c.rows = append(c.rows, append(cells, verdict))
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
	c, got := (&results{lists: map[string][]string{}}).of("One"), map[string]states{
		"upstream": {"Same": passed, "Broken": failed, "Worse": passed, "Better": failed, "Gone": passed},
		"patched":  {"Same": passed, "Broken": failed, "Worse": failed, "Better": passed, "Ours": passed, "OursFails": failed},
	}
	c.compare("pkg", map[string]string{"upstream": "upstream", "patched": "patched"}, func(side string) states { return got[side] })
	said := fmt.Sprintf("%s %s %s %s; %s", c.lists[worse], c.lists[better], c.lists[broken], counted(c.states["upstream"]), counted(c.states["patched"]))
	want := "[One: pkg Gone: passed on upstream, absent with patched One: pkg OursFails: absent on upstream, failed with patched" +
		" One: pkg Worse: passed on upstream, failed with patched] [One: pkg Better: failed on upstream, passed with patched] [One: pkg Broken]" +
		" 3 passed, 2 failed; 2 passed, 2 failed, 1 absent"
	if said != want {
		t.Errorf("a patched tree with tests that are worse, better, absent and new:\ngot  %s\nwant %s", said, want)
	}
}

// An edit must be refused unless the file has its text exactly once.
func TestEdit(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "main.go")
	for old, want := range map[string]string{
		"once":   "new twice twice",
		"twice":  "once twice twice", // as it was
		"absent": "once twice twice",
		"":       "once twice twice",
	} {
		if err := os.WriteFile(file, []byte("once twice twice"), 0o644); err != nil {
			t.Fatal(err)
		}
		refused := edit{File: "main.go", Old: old, New: "new"}.apply(dir)
		got, err := os.ReadFile(file)
		if err != nil || string(got) != want || (refused == nil) != (old == "once") {
			t.Errorf("the edit of %q: %v, and the file has %q, want %q", old, errors.Join(refused, err), got, want)
		}
	}
}

// A column that does not exist would leave out an edit, or let a step be missed, without a word.
func TestColumns(t *testing.T) {
	var known struct{ Operators []operator }
	if err := yaml.Unmarshal(table, &known); err != nil {
		t.Fatal(err)
	}
	for _, op := range known.Operators {
		if op.Live == nil {
			continue
		}
		var named []string
		for _, e := range op.Live.Edits {
			named = append(named, e.In...)
		}
		for _, s := range op.Live.Steps {
			named = append(named, s.Must...)
		}
		for _, side := range named {
			if !slices.Contains(sides, side) {
				t.Errorf("%s names the column %q in operators.yaml; there are %v", op.Name, side, sides)
			}
		}
	}
}
