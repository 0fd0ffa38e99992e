// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/hack/dev/gotest"
)

func TestUsage(t *testing.T) {
	for _, words := range []string{
		"", "dance", "-x", "test -x", "test more", "test -only (", "test -quick -nightly", "test -matrix -lines", "test -matrix more",
		"test -compatibility", "test -series", "test -measure", "envtest", "envtest newest", "envtest legacy-store",
	} {
		args := append([]string{t.TempDir()}, strings.Fields(words)...)
		if err := dispatch(context.Background(), args, io.Discard, io.Discard); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v", words, err)
		}
	}
	for script, words := range map[string]string{
		"test.sh [": "test -h", "test.sh -matrix": "test -matrix -h",
	} {
		var said strings.Builder
		err := dispatch(context.Background(), append([]string{t.TempDir()}, strings.Fields(words)...), &said, io.Discard)
		if !errors.Is(err, flag.ErrHelp) || !strings.HasPrefix(said.String(), "usage: hack/"+script) {
			t.Errorf("%s: %v\n%s", words, err, &said)
		}
	}
}

// The tests that a commit leaves out must exist; otherwise nothing, or something
// else, would be left out. The same is true of the tests that other commands run.
func TestNightTestsExist(t *testing.T) {
	var all bytes.Buffer
	err := filepath.WalkDir("../..", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	names := append(slices.Concat(nightTests, never), "TestCheckout")
	for _, pattern := range append(names, strings.Split(longest+"|"+shortRun+"|"+onlyProof, "|")...) {
		name := strings.Trim(pattern, "^()$")
		if !bytes.Contains(all.Bytes(), []byte("\nfunc "+name+"(t *testing.T)")) {
			t.Errorf("there is no test %s", name)
		}
	}
	for name, i := range insteads {
		if test := strings.Trim(i.test, "^$"); !bytes.Contains(all.Bytes(), []byte("\nfunc "+test+"(t *testing.T)")) {
			t.Errorf("there is no test %s, which %s runs", test, name)
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
	for _, want := range []string{"skipped: p TestB: b_test.go:1: no moon\n", "not run: what needs an API server (-quick)\n", "(.github/workflows/nightly.yml)\n"} {
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

// A slip in a pattern would look like a success.
func TestSumOfNothing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // a run changes it
	var said strings.Builder
	args := []string{t.TempDir(), "test", "-quick", "-only", "^library,-race$"}
	if err := dispatch(context.Background(), args, &said, io.Discard); !errors.Is(err, errSaid) || !strings.Contains(said.String(), "NO PART") {
		t.Errorf("%v\n%s", err, &said)
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
