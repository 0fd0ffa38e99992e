// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"bytes"
	"fmt"
	"go/format"
	"regexp"
	"strings"
)

// An edit is of one of upstream's files. What it does not change stays byte for byte.
type edit struct {
	file    string
	changes []change
	since   string // the first line that has it; "" for all
}

// A change replaces a piece of the file, outside of comments. If the piece is not there
// exactly once, that is an error: the tool never guesses. In want a space stands for any
// white space, and a hole, <NAME>, for any text without braces. In what comes instead the
// same hole stands for the same text, and so it does in the templates. With nothing instead
// the piece stays: it is there for its holes.
type change struct{ want, with string }

// holes are what holes stood for, by name.
type holes map[string]string

func (h holes) fill(text string) string {
	for name, found := range h {
		text = strings.ReplaceAll(text, "<"+name+">", found)
	}
	return text
}

// apply returns the edited file, formatted. Upstream's file must be as gofmt formats it,
// because formatting must not change what was not edited.
func (e edit) apply(upstream []byte, noted holes) ([]byte, error) {
	formatted, err := format.Source(upstream)
	if err != nil {
		return nil, fmt.Errorf("parse upstream's %s: %w", e.file, err)
	}
	if !bytes.Equal(formatted, upstream) {
		return nil, fmt.Errorf("edit upstream's %s: it is not as gofmt has it", e.file)
	}
	text := string(upstream)
	for _, c := range e.changes {
		from, to, ok := c.find(text, noted)
		if !ok {
			return nil, fmt.Errorf("upstream's %s has no single %s: this release needs a look before the tool can edit it", e.file, strings.Join(strings.Fields(c.want), " "))
		}
		if c.with != "" {
			text = text[:from] + noted.fill(c.with) + text[to:]
		}
	}
	return format.Source([]byte(text))
}

// find finds the piece, and notes what its holes stand for.
func (c change) find(text string, noted holes) (from, to int, ok bool) {
	pattern, found := c.pattern(), [][]int(nil)
	for _, at := range pattern.FindAllStringSubmatchIndex(text, -1) {
		line := strings.LastIndexByte(text[:at[0]], '\n') + 1
		if !strings.Contains(text[line:at[0]], "//") {
			found = append(found, at)
		}
	}
	if len(found) != 1 {
		return 0, 0, false
	}
	for i, name := range pattern.SubexpNames() {
		if name != "" {
			noted[name] = text[found[0][2*i]:found[0][2*i+1]]
		}
	}
	return found[0][0], found[0][1], true
}

var hole = regexp.MustCompile(`<([A-Z]+)>`)

func (c change) pattern() *regexp.Regexp {
	expr := strings.ReplaceAll(regexp.QuoteMeta(c.want), " ", `\s+`)
	return regexp.MustCompile(hole.ReplaceAllString(expr, `(?P<$1>[^{}]*?)`))
}
