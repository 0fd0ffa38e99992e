// SPDX-License-Identifier: Apache-2.0

// Package full makes the full series: this project's mapper in the place of
// upstream's.
package full

import (
	"embed"
	"fmt"
	"io/fs"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
	"github.com/freshmapper/freshmapper/hack/stage/series"
)

// messages are the commit messages, by the name of the patch.
//
//go:embed messages
var messages embed.FS

// Changes lists the series.
func Changes(base string, upstream tree.Files, ours fs.FS) ([]series.Change, error) {
	steps, err := tree.Steps(base, upstream, ours)
	if err != nil {
		return nil, err
	}
	var changes []series.Change
	for _, step := range steps {
		message, err := messages.ReadFile("messages/" + step.Patch + ".txt")
		if err != nil {
			return nil, fmt.Errorf("patch %q has no commit message: %w", step.Patch, err)
		}
		changes = append(changes, series.Change{Message: string(message), Files: step.Files})
	}
	return changes, nil
}
