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
		if compiled, err := regexp.Compile(ignoreExpression(pattern)); err == nil {
			rules = append(rules, ignoreRule{line: i + 1, include: include, pattern: compiled})
		}
	}
	return rules
}

// ignoreExpression is a pattern as a regular expression that matches what the
// pattern matches, and all below that.
func ignoreExpression(pattern string) string {
	var out strings.Builder
	for rest := pattern; rest != ""; {
		switch {
		case strings.HasPrefix(rest, "**/"):
			out.WriteString("(.*/)?")
			rest = rest[3:]
		case strings.HasPrefix(rest, "**"):
			out.WriteString(".*")
			rest = rest[2:]
		case rest[0] == '*':
			out.WriteString("[^/]*")
			rest = rest[1:]
		case rest[0] == '?':
			out.WriteString("[^/]")
			rest = rest[1:]
		case rest[0] == '[' && strings.Contains(rest, "]"):
			end := strings.Index(rest, "]") + 1
			out.WriteString(rest[:end])
			rest = rest[end:]
		default:
			out.WriteString(regexp.QuoteMeta(rest[:1]))
			rest = rest[1:]
		}
	}
	return "^" + out.String() + "(/.*)?$"
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
