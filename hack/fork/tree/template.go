// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"embed"
	"fmt"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/gotool"
)

// templates are files of ours that have a place in the tree only. They are no Go
// files here because they compile only there.
//
//go:embed template
var templates embed.FS

// template returns the text of a file. A line with a key of lines in it stands
// once for each of the key's values.
func template(name string, lines map[string][]string) ([]byte, error) {
	data, err := templates.ReadFile("template/" + name + ".txt")
	if err != nil {
		return nil, fmt.Errorf("our template: %w", err)
	}
	text := string(data)
	for key, values := range lines {
		text = repeat(text, key, values)
	}
	return []byte(text), nil
}

func repeat(text, key string, values []string) string {
	var out strings.Builder
	for _, line := range gotool.SplitLines(text) {
		if !strings.Contains(line, key) {
			out.WriteString(line)
			continue
		}
		for _, value := range values {
			out.WriteString(strings.ReplaceAll(line, key, value))
		}
	}
	return out.String()
}
