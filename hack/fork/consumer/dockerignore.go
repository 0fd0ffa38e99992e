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

// meant makes a regular expression of a quoted pattern.
var meant = strings.NewReplacer(`\*\*/`, "(.*/)?", `\*\*`, ".*", `\*`, "[^/]*", `\?`, "[^/]", `\[`, "[", `\]`, "]")

func parseDockerignore(text string) dockerignore {
	var rules dockerignore
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		pattern, include := strings.CutPrefix(line, "!")
		pattern = strings.TrimPrefix(path.Clean(strings.TrimSpace(pattern)), "/")
		// A pattern that can't be compiled is Docker's to complain about.
		if compiled, err := regexp.Compile("^" + meant.Replace(regexp.QuoteMeta(pattern)) + "(/.*)?$"); err == nil {
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
