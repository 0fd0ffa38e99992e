// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"bytes"
	"go/format"
	"maps"
	"strings"
	"testing"
)

// What the tool writes is formatted as gofmt formats it.
func TestTemplates(t *testing.T) {
	for _, line := range Lines {
		files, err := Generate(line.Newest, maps.Clone(upstreamOf(t, line.Newest)), ours())
		if err != nil {
			t.Fatal(err)
		}
		for name, file := range files {
			if _, stock := upstreamOf(t, line.Newest)[name]; stock || !strings.HasSuffix(name, ".go") {
				continue
			}
			if formatted, err := format.Source(file.Data); err != nil || !bytes.Equal(formatted, file.Data) {
				t.Errorf("%s %s is not as gofmt has it: %v", line.Newest, name, err)
			}
			if found := hole.Find(file.Data); found != nil {
				t.Errorf("%s %s has the hole %s", line.Newest, name, found)
			}
		}
	}
}
