// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"maps"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper/hack/fork/source"
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
			if _, err := source.New(name, file.Data).Done(); err != nil {
				t.Error(err)
			}
			if strings.Contains(string(file.Data), "MAPS") {
				t.Errorf("%s %s is half filled in", line.Newest, name)
			}
		}
	}
}
