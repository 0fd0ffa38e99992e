// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"fmt"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

const notes = `# controller-runtime %[1]s with a RESTMapper that stays fresh

This is [controller-runtime](https://github.com/kubernetes-sigs/controller-runtime) %[1]s, with the mapper of
[freshmapper](https://github.com/freshmapper/freshmapper) in the place of its own. It is not a release of the Kubernetes
project. The branch holds upstream's release as it is, and what is different as one commit on top of it.

To use it, paste this line into your go.mod and run ` + "`go mod tidy`" + `:

` + "```" + `
replace %[2]s => %[3]s %[4]s
` + "```" + `

Keep the two versions together: ` + "`go run github.com/freshmapper/freshmapper/hack/fork -check .`" + ` fails in CI after an update of
controller-runtime alone.

Made by hack/release, mapper %[5]s. The same sources give the same commits: run it yourself and compare.

## Upstream's own tests, on stock and on the fork

%[6]s
## Licence

Apache-2.0, as upstream's: see LICENSE.
`

// describe writes the release notes, which are the tree's README, too. There are
// none without a record of how upstream's tests fare.
func (r Request) describe(e *edition) (string, error) {
	rows := matrixRows(r.Matrix, e.version)
	if rows == "" {
		return "", fmt.Errorf("MATRIX.md has no rows for %s: run hack/test.sh -matrix first", e.version)
	}
	digest, err := tree.SourceDigest(r.Ours)
	if err != nil {
		return "", fmt.Errorf("read our sources: %w", err)
	}
	return fmt.Sprintf(notes, e.version, tree.Module, r.Module, e.tag, digest, rows), nil
}

// matrixRows are those tables of MATRIX.md that have rows of a version, with
// those rows alone.
func matrixRows(matrix, version string) string {
	var out, head strings.Builder
	for _, line := range strings.Split(matrix, "\n") {
		switch {
		case !strings.HasPrefix(line, "|"):
			head.Reset()
		case strings.HasPrefix(line, "| "+version+" |"):
			out.WriteString(head.String())
			head.Reset()
			out.WriteString(line + "\n")
		case strings.HasPrefix(line, "| v0."):
		default: // the table's head and the line below it
			if head.Len() == 0 && out.Len() > 0 {
				head.WriteString("\n")
			}
			head.WriteString(line + "\n")
		}
	}
	if out.Len() > 0 {
		out.WriteString("\n")
	}
	return out.String()
}
