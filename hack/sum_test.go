// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package hack tests what hack/test.sh makes of a run.
package hack

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The last line of hack/test.sh counts, and a run in which anything failed fails.
func TestSumSaysWhetherAllIsWell(t *testing.T) {
	event := func(test, action string) string {
		return fmt.Sprintf(`{"Action":"run","Package":"p","Test":%q}`+"\n"+`{"Action":%q,"Package":"p","Test":%[1]q}`+"\n", test, action)
	}
	passes, fails, skips, begins := event("TestA", "pass"), event("TestB", "fail"), event("TestC", "skip"), event("TestD", "run")
	tests := map[string]struct {
		files  map[string]string
		reason string
		want   []string // the last is the last line
	}{
		"well":         {map[string]string{"a1.part": "one\t0\t7\n", "a1.1.json": passes, "a1.2.json": "go: warned\n" + skips, "b1.part": "two\t0\t0\n"}, "", []string{"SKIP: p TestC", "1 passed, 0 failed, 1 skipped; all 2 parts are ok"}},
		"a test fails": {map[string]string{"a1.part": "one\t1\t7\n", "a1.1.json": passes + fails}, "", []string{"FAIL: p TestB", "1 passed, 1 failed, 0 skipped; FAILED: one"}},
		"a test stays": {map[string]string{"a1.part": "one\t0\t7\n", "a1.1.json": passes + begins}, "", []string{"1 passed, 1 failed, 0 skipped; tests FAILED"}},
		"no tests":     {map[string]string{"a1.part": "one\t2\t7\n", "b1.part": "two\t0\t7\n", "c1.part": "three\t3\t7\n"}, "", []string{"0 passed, 0 failed, 0 skipped; FAILED: one; three"}},
		"no match":     {map[string]string{"a1.part": "one\t0\t7\n", "a1.1.json": ""}, "", []string{"FAILED (no tests)", "0 passed, 0 failed, 0 skipped; FAILED: one"}},
		"a part stays": {map[string]string{"a1.part": "one\n", "a1.1.json": passes}, "", []string{"UNFINISHED", "1 passed, 0 failed, 0 skipped; FAILED: one"}},
		"no part":      {nil, "", []string{"0 passed, 0 failed, 0 skipped; NO PART was run"}},
		"interrupted":  {map[string]string{"a1.part": "one\t0\t7\n", "a1.1.json": passes}, "INTERRUPTED", []string{"1 passed, 0 failed, 0 skipped; INTERRUPTED"}},
	}
	root := t.TempDir()
	said, err := exec.Command("go", "-C", "tools", "build", "-o", filepath.Join(root, ".cache", "gotestsum"), "gotest.tools/gotestsum").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range test.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			said, err := exec.Command("bash", "-euo", "pipefail", "-c", `source sum.sh; root=$1; sum_up "${@:2}"`, "-", root, dir, test.reason).Output()
			first, last := test.want[0], test.want[len(test.want)-1]
			if ok := err == nil; ok != (name == "well") || !strings.Contains(string(said), first) || !strings.HasSuffix(string(said), "\n"+last+"\n") {
				t.Errorf("want %q, the last line %q, and success only if all is well; got success: %v, and\n%s", first, last, ok, said)
			}
		})
	}
}
