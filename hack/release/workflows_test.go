// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper/hack/fork/forktest"
)

// Each action is pinned to a commit, with its version beside it for the reader and for
// Dependabot.
func TestActionsArePinned(t *testing.T) {
	names, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(names) == 0 {
		t.Fatalf("workflows %q, %v", names, err)
	}
	pinned := regexp.MustCompile(`uses: [a-z-]+/[a-z-]+@[0-9a-f]{40} # v[0-9.]+$`)
	for _, name := range names {
		for _, line := range strings.Split(forktest.Text(t, filepath.Dir(name), filepath.Base(name)), "\n") {
			if strings.Contains(line, "uses:") && !pinned.MatchString(line) {
				t.Errorf("%s: %s", filepath.Base(name), strings.TrimSpace(line))
			}
		}
	}
}

// Dependabot looks after each nested module but those of fixed versions, and after no
// folder that is none.
func TestDependabotKnowsTheModules(t *testing.T) {
	listed := map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^  - (/\S+)$`).FindAllStringSubmatch(forktest.Text(t, "../../.github", "dependabot.yml"), -1) {
		listed[found[1]] = true
	}
	modules := strings.Fields(forktest.Run(t, "../..", "git", "ls-files", "*go.mod"))
	for _, name := range modules {
		dir := "/" + path.Dir(name)
		if _, err := os.Stat(filepath.Join("../..", name)); err != nil {
			continue // removed, and not yet committed
		}
		if fixed := dir == "/." || dir == "/hack/envtest/latest" || dir == "/hack/envtest/legacy"; fixed == listed[dir] {
			t.Errorf("%s: listed %v", dir, listed[dir])
		}
		delete(listed, dir)
	}
	for dir := range listed {
		t.Errorf("%s is no module", dir)
	}
}
