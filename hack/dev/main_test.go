// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/hack/dev/gotest"
	"github.com/freshmapper/freshmapper/hack/dev/proc"
)

func here(t *testing.T) *checkout {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return &checkout{root: root, stdout: io.Discard, stderr: io.Discard}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		{}, {"dance"}, {"-x"}, {"test", "-x"}, {"test", "more"}, {"test", "-only", "("}, {"verify", "more"}, {"matrix", "-lines"},
		{"matrix", "more"}, {"demo", "more"}, {"bench", "-count", "x"}, {"compatibility", "-x"}, {"compatibility", "v0.25.2"}, {"envtest"}, {"envtest", "newest"}, {"envtest", "legacy-store"},
	} {
		if err := dispatch(context.Background(), args, io.Discard, io.Discard); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v", args, err)
		}
	}
	for script, args := range map[string][]string{
		"test.sh [": {"test"}, "test.sh -matrix": {"test", "-matrix"}, "test.sh -compatibility": {"test", "-compatibility"},
		"verify.sh": {"verify"}, "demo.sh": {"demo"}, "bench.sh": {"bench"},
	} {
		var said strings.Builder
		err := dispatch(context.Background(), append(args, "-h"), &said, io.Discard)
		if !errors.Is(err, flag.ErrHelp) || !strings.HasPrefix(said.String(), "usage: hack/"+script) {
			t.Errorf("%s -h: %v\n%s", script, err, &said)
		}
	}
}

// What a commit leaves out are tests that there are, else it would leave out
// nothing, or something else.
func TestNightTestsExist(t *testing.T) {
	ctx, c := context.Background(), here(t)
	files, err := c.files(ctx, "*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	for _, file := range files {
		text, err := os.ReadFile(c.path(file))
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	named := strings.Split(strings.Trim(longest, "^()$"), "|")
	for _, name := range append(slices.Concat(named, nightTests), "TestProvider", "TestFork", strings.Trim(shortRun, "^$")) {
		if !bytes.Contains(all.Bytes(), []byte("\nfunc "+name+"(t *testing.T)")) {
			t.Errorf("there is no test %s", name)
		}
	}
}

// repository is a git repository with files of these texts.
func repository(t *testing.T, files map[string]string) *checkout {
	t.Helper()
	c := &checkout{root: t.TempDir(), stdout: io.Discard, stderr: io.Discard}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(c.path(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(c.path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"git", "init", "-q"}, {"git", "add", ".gitignore"}} {
		if _, err := proc.Output(context.Background(), c.root, nil, args...); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func TestModules(t *testing.T) {
	c := repository(t, map[string]string{
		".gitignore": "ignored/\n", "go.mod": "", "hack/tools/go.mod": "", "testdata/consumers/heal/go.mod": "",
		"testdata/input/go.mod": "", "hack/testdata/go.mod": "", "ignored/go.mod": "", "hack/ä b/go.mod": "",
	})
	modules, err := c.modules(context.Background())
	if want := []string{".", "hack/tools", "hack/ä b", "testdata/consumers/heal"}; err != nil || !slices.Equal(modules, want) {
		t.Errorf("%v, %q", err, modules)
	}
}

func TestLocalPaths(t *testing.T) {
	t.Setenv("HOME", "/home/gopher")
	c := repository(t, map[string]string{
		".gitignore": "", "good": "see /home/gophers and a/home/gopher/b", "bad": "one\nsee /home/gopher/notes\n",
	})
	var said bytes.Buffer
	if err := c.localPaths(context.Background(), &said); !errors.Is(err, errFound) || said.String() != "bad:2:see /home/gopher/notes\n" {
		t.Errorf("%v\n%s", err, &said)
	}
}

// A check that fails does not stop the others.
func TestVerify(t *testing.T) {
	c := repository(t, map[string]string{
		".gitignore": "", "go.mod": "module m\n\ngo 1.23\n", "a.go": "package m\nvar  A int\n", "bad.sh": "if\n", "good.sh": "true\n",
	})
	t.Setenv("GOWORK", "off")
	t.Setenv("HOME", "/home/gopher")
	t.Setenv("GOCACHE", filepath.Join(t.TempDir(), "cache")) // HOME leads to it
	var out strings.Builder
	c.stdout = &out
	if err := verify(context.Background(), c, []string{"-fast"}); !errors.Is(err, errSaid) {
		t.Errorf("verify returned %v", err)
	}
	if !strings.HasSuffix(out.String(), "verify: 5 checks, 3 passed, 2 failed\n") {
		t.Errorf("it said\n%s", &out)
	}
	for _, row := range []string{"gofmt . failed", "bash . failed", "paths . ok", "vet . ok", "tidy . ok"} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), row) {
			t.Errorf("no %q in\n%s", row, &out)
		}
	}
}

// The last line of a run counts, and a run in which anything failed fails.
func TestSum(t *testing.T) {
	var out strings.Builder
	tested := &tester{checkout: &checkout{stdout: &out, stderr: io.Discard}, plan: plan{quick: true}}
	ctx := context.Background()
	tested.part(ctx, "one", func(r *row) error {
		r.report.Tests = []*gotest.Test{
			{Package: "p", Name: "TestA", State: gotest.Passed, Time: time.Second},
			{Package: "p", Name: "TestB", State: gotest.Skipped, Said: "=== RUN   TestB\n    b_test.go:1: no moon\n--- SKIP: TestB\n"},
		}
		return nil
	})
	if err := tested.sum(time.Second, false); err != nil || !strings.HasSuffix(out.String(), "\n1 passed, 0 failed, 1 skipped\n") {
		t.Errorf("%v\n%s", err, &out)
	}
	for _, want := range []string{"skipped: p TestB: b_test.go:1: no moon\n", "not run: what needs an API server (-quick)\n", "not run: the oldest Go (hack/test.sh -compatibility)\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	tested.part(ctx, "two", func(*row) error { return errSaid })
	if err := tested.sum(time.Second, false); !errors.Is(err, errSaid) || !strings.HasSuffix(out.String(), "1 skipped; parts FAILED, see above\n") {
		t.Errorf("with a part that failed: %v\n%s", err, &out)
	}
}

func TestSumOfInterruptedRun(t *testing.T) {
	var out strings.Builder
	tested := &tester{checkout: &checkout{stdout: &out, stderr: io.Discard}}
	if err := tested.sum(time.Second, true); !errors.Is(err, errSaid) || !strings.HasSuffix(out.String(), "\n0 passed, 0 failed, 0 skipped; INTERRUPTED\n") {
		t.Errorf("%v\n%s", err, &out)
	}
}

func TestRan(t *testing.T) {
	r := row{report: gotest.Report{Tests: []*gotest.Test{{Name: "TestA"}}}}
	if err := r.ran([]string{"TestA"}); err != nil {
		t.Error(err)
	}
	if err := r.ran([]string{"TestA", "TestB"}); err == nil || !strings.Contains(err.Error(), "TestB") {
		t.Errorf("%v", err)
	}
}

func TestMinor(t *testing.T) {
	for version, want := range map[string]string{"1.23.4": "1.23", "1.26": "1.26", "1": "1"} {
		if got := minor(version); got != want {
			t.Errorf("%s: %s", version, got)
		}
	}
}
