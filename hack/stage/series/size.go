// SPDX-License-Identifier: Apache-2.0

package series

import (
	"fmt"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/gotool"
)

// Size counts the lines of a patch.
type Size struct{ Code, Tests, Removed int }

// Added is how many lines come, with the tests.
func (s Size) Added() int { return s.Code + s.Tests }

func (s Size) String() string {
	return fmt.Sprintf("+%d -%d, and +%d of tests", s.Code, s.Removed, s.Tests)
}

// sizeOf counts in a mail of git format-patch. Whatever is in a testdata folder,
// and internal/fakeapi, counts as a test.
func sizeOf(mail []byte) Size {
	var size Size
	test, inside := false, false
	for _, line := range gotool.SplitLines(string(mail)) {
		switch {
		case strings.HasPrefix(line, "diff --git "):
			name := strings.TrimSpace(line[strings.LastIndex(line, " b/")+len(" b/"):])
			test, inside = IsTest(name), false
		case strings.HasPrefix(line, "@@ "):
			inside = true
		case !inside:
		case line[0] == '+' && test:
			size.Tests++
		case line[0] == '+':
			size.Code++
		case line[0] == '-' && line != "-- \n":
			size.Removed++
		}
	}
	return size
}

// IsTest reports whether a file is there for tests only.
func IsTest(name string) bool {
	return strings.HasSuffix(name, "_test.go") || strings.Contains(name, "/testdata/") || strings.Contains(name, "/internal/fakeapi/")
}
