// SPDX-License-Identifier: Apache-2.0

package full

import (
	"embed"
	"fmt"
	"path"
	"strings"

	"github.com/freshmapper/freshmapper/hack/stage/series"
)

// A stage is a purpose: its files are found by patterns below pkg/client/apiutil,
// those that are there for tests by patterns of their own. A pattern that ends
// in /... matches all below a folder.
type stage struct {
	name        string
	code, tests []string
}

// stages lists them in the order in which they come. Each is worth having without
// those behind it. A test comes with its stage or, if it needs more, later.
var stages = []stage{
	{name: "snapshot", code: []string{"internal/snapshot/..."}, tests: []string{"internal/snapshot/..."}},
	{name: "server", code: []string{"internal/fakeapi/..."}},
	{name: "discovery", code: []string{"internal/share/...", "internal/discovery/..."}, tests: []string{"internal/share/...", "internal/discovery/..."}},
	{name: "engine", code: []string{"internal/reload/...", "internal/refresh/..."}, tests: []string{"internal/reload/...", "internal/refresh/..."}},
	{name: switching, code: []string{"*"}},
	{name: "lifecycle", tests: []string{"*", "testdata/..."}},
	{name: last, tests: []string{"internal/fakeapi/..."}},
}

const (
	// switching puts our mapper in the place of upstream's: of the package's own
	// files those that a mapper needs. The others come in the stage behind it.
	switching = "switch"
	// last comes after what hack/fork's other patches do.
	last = "servertests"
)

// stageOf finds the one stage that a file belongs to.
func stageOf(name string) (int, error) {
	short, below := strings.CutPrefix(name, apiutilDir)
	if !below {
		return 0, fmt.Errorf("%s is outside of %s: the table of stages knows nothing of it", name, apiutilDir)
	}
	found := -1
	for i, s := range stages {
		patterns := s.code
		if isTest(name) {
			patterns = s.tests
		}
		if !matches(patterns, short) {
			continue
		}
		if found >= 0 {
			return 0, fmt.Errorf("%s belongs to two stages, %q and %q", name, stages[found].name, s.name)
		}
		found = i
	}
	if found < 0 {
		return 0, fmt.Errorf("%s belongs to no stage: add a pattern to the table of stages", name)
	}
	return found, nil
}

// isTest reports whether a file is there for tests only. The server in memory is,
// but to these stages it is code that tests are written with.
func isTest(name string) bool {
	return series.IsTest(strings.Replace(name, "/internal/fakeapi/", "/internal/server/", 1))
}

func matches(patterns []string, name string) bool {
	for _, pattern := range patterns {
		folder, all := strings.CutSuffix(pattern, "...")
		if all && strings.HasPrefix(name, folder) {
			return true
		}
		if ok, err := path.Match(pattern, name); !all && ok && err == nil {
			return true
		}
	}
	return false
}

// messages are the commit messages, by stage or by the name of hack/fork's patch.
//
//go:embed messages
var messages embed.FS

func (s slice) message() (string, error) {
	text, err := messages.ReadFile("messages/" + s.stage + ".txt")
	if err != nil {
		return "", fmt.Errorf("stage %q has no commit message: %w", s.stage, err)
	}
	if s.of == 1 {
		return string(text), nil
	}
	subject, body, _ := strings.Cut(string(text), "\n")
	return fmt.Sprintf("%s (%d of %d)\n%s", subject, s.part, s.of, body), nil
}
