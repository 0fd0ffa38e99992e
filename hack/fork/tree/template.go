// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"embed"
	"fmt"
	"go/format"

	"github.com/freshmapper/freshmapper/hack/fork/gotool"
)

// templates are files of ours that have a place in the tree only. They are no Go
// files here because they compile only there.
//
//go:embed template
var templates embed.FS

// template returns the text of a file. A line with a key in it stands once for
// each of the key's values.
func template(name string, noted keys) ([]byte, error) {
	data, err := templates.ReadFile("template/" + name + ".txt")
	if err != nil {
		return nil, fmt.Errorf("our template: %w", err)
	}
	text := string(data)
	for key, values := range noted {
		text = gotool.RepeatLines(text, key, values)
	}
	if data, err = format.Source([]byte(text)); err != nil { // what was filled in is longer or shorter
		return nil, fmt.Errorf("our template %s, filled in: %w", name, err)
	}
	return data, nil
}
