// SPDX-License-Identifier: Apache-2.0

package adopters

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freshmapper/freshmapper/hack/dev/gotest"
)

func TestAlone(t *testing.T) {
	differ := states{"TestA/one": gotest.Passed, "TestA/two": gotest.Passed, "TestB": gotest.Passed, "Suite: a spec": gotest.Failed, "TestC": gotest.Passed}.
		differing(states{"TestA/one": gotest.Failed, "TestB": gotest.Skipped, "Suite: a spec": gotest.Passed, "TestC": gotest.Passed})
	got := alone(differ)
	want := []part{
		{pattern: "", names: []string{"Suite: a spec"}},
		{pattern: "^TestA$", names: []string{"TestA/one", "TestA/two"}},
		{pattern: "^TestB$", names: []string{"TestB"}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(part{})); diff != "" {
		t.Error(diff)
	}
}

// A test that is worse must fail the run and be on the page. A test that fails on
// both must not fail the run.
func TestVerdict(t *testing.T) {
	r := &result{Operator: operator{Name: "One"}, Fork: "ok", BuildStock: "ok", BuildFork: "ok"}
	r.add("pkg", states{"TestBoth": gotest.Failed, "TestFine": gotest.Passed, "TestBetter": gotest.Failed},
		states{"TestBoth": gotest.Failed, "TestFine": gotest.Passed, "TestBetter": gotest.Passed})
	if err := r.verdict(); err != nil {
		t.Error(err)
	}
	r.add("other", states{"TestWorse": gotest.Passed}, states{"TestWorse": gotest.Failed})
	if err := r.verdict(); err == nil {
		t.Error("a test is worse on the fork, and nobody is told")
	}
	if r.Tests != 4 || r.Same != 2 || r.Failing != 1 {
		t.Errorf("%d tests, %d same, %d failing; want 4, 2 and 1", r.Tests, r.Same, r.Failing)
	}
	page := (&results{all: []*result{r}}).page(nil)
	for _, want := range []string{
		"other TestWorse: passed on stock, failed on the fork", "pkg TestBetter: failed on stock, passed on the fork", "pkg TestBoth",
		"| 2 of 0 | 4 | 2 | 1 | 1 |",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}

// A run of one operator's tests keeps the results of the others, and its own live
// results.
func TestResultsAreKept(t *testing.T) {
	file, page := filepath.Join(t.TempDir(), "results.json"), filepath.Join(t.TempDir(), "page.md")
	table := operators(t)
	put := func(op operator, change func(*result)) []*result {
		t.Helper()
		known := readResults(t, file)
		change(known.of(op))
		known.write(t, page)
		return known.all
	}
	one, two := table[0].operator, table[1].operator
	put(two, func(r *result) { r.Packages = 2 })
	put(one, func(r *result) { r.Packages = 1 })
	put(two, func(r *result) { r.Live = &liveResult{Date: "today"} })
	all := put(one, func(r *result) { r.Packages = 3 })
	if len(all) != 2 {
		t.Fatalf("%d operators are known, want 2", len(all))
	}
	if all[0].Packages != 3 || all[1].Packages != 2 || all[1].Live == nil || all[1].Live.Date != "today" {
		t.Errorf("known are %+v and %+v", all[0], all[1])
	}
	newer := two
	newer.Version += "-newer"
	if r := put(newer, func(r *result) { r.Fork = "ok" })[1]; r.Live != nil || r.Packages != 0 {
		t.Errorf("of a newer version %+v is known", r)
	}
	if _, err := os.Stat(page); err != nil {
		t.Error(err)
	}
}

// The published page is what adopters.json says. With -o it is written first.
func TestPageIsPublished(t *testing.T) {
	t.Chdir("..")
	if *out != "" {
		readResults(t, filepath.Join(*out, "adopters.json")).write(t, *page)
	}
	want, err := os.ReadFile(filepath.Join(root, "docs/adopters.md"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), readResults(t, "results/adopters.json").page(operators(t))); diff != "" {
		t.Error(diff)
	}
}

func TestCondition(t *testing.T) {
	for status, want := range map[string]bool{
		"conditions: [{type: Ready, status: 'True', observedGeneration: 2}]":  true,
		"conditions: [{type: Ready, status: 'True', observedGeneration: 1}]":  false,
		"conditions: [{type: Ready, status: 'False', observedGeneration: 2}]": false,
		"conditions: [{type: Other, status: 'True'}]":                         false,
	} {
		objects := parse(t, []byte("---\n---\napiVersion: v1\nkind: Any\nmetadata: {generation: 2}\nstatus: {"+status+"}\n"))
		if said, got := condition(objects[0], "Ready"); got != want {
			t.Errorf("%s: %v (%s), want %v", status, got, said, want)
		}
	}
}
