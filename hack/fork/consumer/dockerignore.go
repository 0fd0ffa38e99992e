// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"path"
	"regexp"
	"strings"
)

// dockerignore are the rules of a .dockerignore file: the last that matches a
// path, or a folder above it, decides.
type dockerignore []ignoreRule

type ignoreRule struct {
	line    int // 1 is the first
	include bool
	pattern *regexp.Regexp
}

// wildcard is a part of a pattern that stands for more than itself.
var wildcard = regexp.MustCompile(`\*\*/|\*\*|\*|\?|\[.*?\]`)

// meant is what such a part is in a regular expression.
var meant = map[string]string{"**/": "(.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}

func parseDockerignore(text string) dockerignore {
	var rules dockerignore
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		pattern, include := strings.CutPrefix(line, "!")
		pattern = strings.TrimPrefix(path.Clean(strings.TrimSpace(pattern)), "/")
		expr, at := "^", 0
		for _, found := range wildcard.FindAllStringIndex(pattern, -1) {
			part := pattern[found[0]:found[1]]
			if meant[part] != "" {
				part = meant[part]
			}
			expr += regexp.QuoteMeta(pattern[at:found[0]]) + part
			at = found[1]
		}
		// A pattern that can't be compiled is Docker's to complain about.
		if compiled, err := regexp.Compile(expr + regexp.QuoteMeta(pattern[at:]) + "(/.*)?$"); err == nil {
			rules = append(rules, ignoreRule{line: i + 1, include: include, pattern: compiled})
		}
	}
	return rules
}

// hiddenBy is the line of the rule that keeps a file out of the image, 0 if none does.
func (d dockerignore) hiddenBy(name string) int {
	by := 0
	for _, rule := range d {
		if !rule.pattern.MatchString(name) {
			continue
		}
		if by = rule.line; rule.include {
			by = 0
		}
	}
	return by
}
