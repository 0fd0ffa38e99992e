// SPDX-License-Identifier: Apache-2.0

package gotest_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper/hack/dev/gotest"
)

// module is one with a package for each text of a test file.
func module(t *testing.T, packages map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/m\n\ngo 1.23\n")
	for name, text := range packages {
		write(name+"/a_test.go", "package "+name+"\n\nimport \"testing\"\n\n"+text)
	}
	return dir
}

func TestRun(t *testing.T) {
	dir := module(t, map[string]string{
		"good":   `func TestA(t *testing.T) { t.Run("sub", func(*testing.T) {}) }; func TestB(t *testing.T) { t.Skip("no moon") }`,
		"bad":    `func TestA(t *testing.T) { t.Error("two is", 3) }; func TestB(*testing.T) {}`,
		"dies":   `import "os"; func TestA(t *testing.T) { t.Log("so far"); os.Exit(7) }`,
		"broken": `func TestA(t *testing.T) { missing() }`,
		"begins": `import "os"; func TestMain(*testing.M) { os.Exit(1) }`,
	})
	var progress strings.Builder
	report, err := gotest.Command{Dir: dir, Env: []string{"GOWORK=off"}, Args: []string{"./..."}, Progress: &progress}.Run(context.Background())
	if err == nil {
		t.Error("go test is said to have passed")
	}
	got := map[string]string{}
	for _, test := range report.Tests {
		got[strings.TrimPrefix(test.Package, "example.com/m/")+" "+test.Name] = test.State.String()
		if test.State == gotest.Skipped && !strings.HasSuffix(test.Reason(), "no moon") {
			t.Errorf("the reason for a skip is %q", test.Reason())
		}
	}
	want := map[string]string{
		"good TestA": "passed", "good TestA/sub": "passed", "good TestB": "skipped",
		"bad TestA": "failed", "bad TestB": "passed",
		"dies TestA": "failed", "broken ": "failed", "begins ": "failed",
	}
	for name, state := range want {
		if got[name] != state {
			t.Errorf("%q: %q, want %s", name, got[name], state)
		}
	}
	if len(got) != len(want) || report.Count(gotest.Failed) != 4 || report.Count(gotest.Passed) != 3 {
		t.Errorf("%d passed, %d failed: %v", report.Count(gotest.Passed), report.Count(gotest.Failed), got)
	}
	for _, said := range []string{"two is 3", "undefined: missing", "so far"} {
		if !strings.Contains(progress.String(), said) {
			t.Errorf("no %q in\n%s", said, &progress)
		}
	}
}
