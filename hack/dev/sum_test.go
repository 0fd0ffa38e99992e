// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dev

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The last line of hack/test.sh counts, and a run in which anything failed fails.
func TestSumSaysWhetherAllIsWell(t *testing.T) {
	const (
		begins = `{"Action":"run","Package":"p","Test":"TestD"}` + "\n"
		passes = begins + `{"Action":"pass","Package":"p","Test":"TestD"}` + "\n"
		skips  = `{"Action":"run","Package":"p","Test":"TestB"}` + "\n" + `{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:1: no moon\n"}` + "\n" + `{"Action":"skip","Package":"p","Test":"TestB"}` + "\n"
		fails  = `{"Action":"run","Package":"p","Test":"TestC"}` + "\n" + `{"Action":"fail","Package":"p","Test":"TestC"}` + "\n"
	)
	tests := map[string]struct {
		files  map[string]string
		reason string
		want   []string // the last is the end
	}{
		"well":         {map[string]string{"a1.part": "one\t0\t7\n", "a1.1.json": passes, "a1.2.json": "go: warned\n" + skips, "b1.part": "two\t0\t0\n"}, "", []string{"SKIP: p TestB", "no moon", "\n1 passed, 0 failed, 1 skipped; all 2 parts are ok\n"}},
		"a test":       {map[string]string{"a1.part": "one\t1\t7\n", "a1.1.json": passes + fails}, "", []string{"FAIL: p TestC", "\n1 passed, 1 failed, 0 skipped; FAILED: one\n"}},
		"no status":    {map[string]string{"a1.part": "one\t0\t7\n", "a1.1.json": passes + begins}, "", []string{"1 passed, 1 failed, 0 skipped; tests FAILED\n"}},
		"no test":      {map[string]string{"a1.part": "one\t2\t7\n", "b1.part": "two\t0\t7\n", "c1.part": "three\t3\t7\n"}, "", []string{"0 passed, 0 failed, 0 skipped; FAILED: one; three\n"}},
		"a slip":       {map[string]string{"a1.part": "one\t0\t7\n", "a1.1.json": ""}, "", []string{"FAILED (no tests)", "0 passed, 0 failed, 0 skipped; FAILED: one\n"}},
		"a part stays": {map[string]string{"a1.part": "one\n", "a1.1.json": passes}, "", []string{"UNFINISHED", "1 passed, 0 failed, 0 skipped; FAILED: one\n"}},
		"no part":      {nil, "", []string{"\n0 passed, 0 failed, 0 skipped; NO PART was run\n"}},
		"interrupted":  {map[string]string{"a1.part": "one\t0\t7\n", "a1.1.json": passes}, "INTERRUPTED", []string{"1 passed, 0 failed, 0 skipped; INTERRUPTED\n"}},
	}
	root := t.TempDir()
	said, err := exec.Command("go", "-C", "../tools", "build", "-o", filepath.Join(root, ".cache", "gotestsum"), "gotest.tools/gotestsum").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range test.files {
				must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
			}
			said, err := exec.Command("bash", "-euo", "pipefail", "-c", `source ../sum.sh; root=$1; sum_up "${@:2}"`, "-", root, dir, test.reason).Output()
			if (err == nil) != (name == "well") || !strings.HasSuffix(string(said), test.want[len(test.want)-1]) {
				t.Errorf("%v\n%s", err, said)
			}
			for _, want := range test.want {
				if !strings.Contains(string(said), want) {
					t.Errorf("no %q in\n%s", want, said)
				}
			}
		})
	}
}
