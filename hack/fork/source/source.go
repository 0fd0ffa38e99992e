// SPDX-License-Identifier: Apache-2.0

// Package source edits upstream's Go files for hack/fork. It looks at their text alone, and
// relies on gofmt for where a declaration ends. If a place is not found exactly once, that
// is an error: the package never guesses. What is not edited stays byte for byte.
//
// A place is a function, a method ("(c *T) M") or a type, or "T{" for the only literal of a
// type, or "" for the whole file. want is a piece of its text, outside of comments. A space
// in it stands for any white space.
package source

import (
	"bytes"
	"fmt"
	"go/format"
	"regexp"
	"strings"
)

// File is a Go file that is being edited, one edit after the other. Each edit sees
// the result of those before it. After an error the others do nothing.
type File struct {
	name, text string
	gofmts     bool // it was as gofmt formats it
	err        error
}

// New begins to edit a file.
func New(name string, data []byte) *File {
	f := &File{name: name, text: string(data)}
	formatted, err := format.Source(data)
	if err != nil {
		f.err = fmt.Errorf("parse upstream's %s: %w", name, err)
	}
	f.gofmts = bytes.Equal(formatted, data)
	return f
}

// Err returns the first error.
func (f *File) Err() error { return f.err }

// Done returns the edited file, formatted. Upstream's file must be as gofmt formats
// it, because formatting must not change what was not edited.
func (f *File) Done() ([]byte, error) {
	if f.err == nil && !f.gofmts {
		f.err = fmt.Errorf("edit upstream's %s: it is not as gofmt has it", f.name)
	}
	if f.err != nil {
		return nil, f.err
	}
	return format.Source([]byte(f.text))
}

// Unexpected fails with a text that says what was not found.
func (f *File) Unexpected(format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf("upstream's %s has no %s: this release needs a look before the tool can edit it", f.name, fmt.Sprintf(format, args...))
	}
}

// Change replaces what matches want.
func (f *File) Change(place, want, with string) {
	if from, to, ok := f.once(place, want); ok {
		f.replace(from, to, with)
	}
}

// Has makes sure that there is a piece.
func (f *File) Has(place, want string) { f.once(place, want) }

// Wrap puts text before and after a literal, which want begins.
func (f *File) Wrap(place, want, before, after string) {
	if from, _, ok := f.once(place, want); ok {
		to := f.literalEnd(from)
		f.replace(from, to, before+f.text[from:to]+after)
	}
}

// Remove removes a piece that is alone on its lines, with the comment above it.
func (f *File) Remove(place, want string) {
	from, to, ok := f.once(place, want)
	if !ok {
		return
	}
	begin, end := f.lineStart(from), f.lineEnd(to)
	if strings.TrimSpace(f.text[begin:end]) != f.text[from:to] {
		f.Unexpected("%q alone on its lines", want)
		return
	}
	for begin > 0 {
		above := f.lineStart(begin - 1)
		if !strings.HasPrefix(strings.TrimSpace(f.text[above:begin]), "//") {
			break
		}
		begin = above
	}
	f.replace(begin, end+1, "")
}

// Either returns the one of several pieces that is there. It must be there once.
func (f *File) Either(wants ...string) string {
	for _, want := range wants {
		if len(f.find("", want)) == 1 {
			return want
		}
	}
	f.Unexpected("%s, or more than one", strings.Join(wants, " or "))
	return ""
}

// Shape compares a function with a pattern, from its first line to its last. In
// the pattern a line of "…" stands for any lines or none, and <name> for anything
// on its line. It returns what these stand for.
func (f *File) Shape(name, pattern string) []string {
	expr := regexp.QuoteMeta(pattern)
	expr = strings.ReplaceAll(expr, "…\n", `(?:[^\n]*\n)*`)
	expr = regexp.MustCompile("<[a-z]+>").ReplaceAllLiteralString(expr, `([^\n]*)`)
	found := regexp.MustCompile("^" + expr + "$").FindStringSubmatch(f.Text(name))
	if found == nil {
		f.Unexpected("%s like this: %s", name, strings.Join(strings.Fields(pattern), " "))
		return nil
	}
	return found[1:]
}

// Text is the text of a place, "" after an error.
func (f *File) Text(place string) string {
	from, to := f.span(place)
	return f.text[from:to]
}

// span finds a place.
func (f *File) span(place string) (from, to int) {
	switch {
	case f.err != nil:
		return 0, 0
	case place == "":
		return 0, len(f.text)
	case strings.HasSuffix(place, "{"):
		if from, _, ok := f.once("", place); ok {
			return from, f.literalEnd(from)
		}
		return 0, 0
	}
	head := `(?:func|type) ` + regexp.QuoteMeta(place)
	found := regexp.MustCompile(`(?m)^`+head+`\b(?:.*[^{(\n]$|[^\n]*\n(?:[^}\n][^\n]*\n|\n)*\}$)`).FindAllStringIndex(f.text, -1)
	if len(found) != 1 {
		if !strings.HasPrefix(place, "(") {
			place += ", nor struct type " + place
		}
		f.Unexpected("function %s", place)
		return 0, 0
	}
	return found[0][0], found[0][1]
}

// literalEnd is where the literal ends that begins at an offset.
func (f *File) literalEnd(at int) int {
	for open, i := 0, at; i < len(f.text); i++ {
		switch f.text[i] {
		case '{':
			open++
		case '}':
			if open--; open == 0 {
				return i + 1
			}
		}
	}
	f.Unexpected("end of a literal")
	return at
}

// once finds a piece.
func (f *File) once(place, want string) (from, to int, ok bool) {
	found := f.find(place, want)
	if len(found) == 1 && f.err == nil {
		return found[0][0], found[0][1], true
	}
	if place == "" {
		place = "the file"
	}
	f.Unexpected("single %q in %s (there are %d)", want, place, len(found))
	return 0, 0, false
}

func (f *File) find(place, want string) (found [][]int) {
	from, to := f.span(place)
	for _, at := range pattern(want).FindAllStringIndex(f.text[from:to], -1) {
		at[0], at[1] = at[0]+from, at[1]+from
		if !strings.Contains(f.text[f.lineStart(at[0]):at[0]], "//") {
			found = append(found, at)
		}
	}
	return found
}

var word = regexp.MustCompile(`^\w$`)

// pattern matches want as whole words.
func pattern(want string) *regexp.Regexp {
	expr := strings.ReplaceAll(regexp.QuoteMeta(want), " ", `\s+`)
	if word.MatchString(want[:1]) {
		expr = `\b` + expr
	}
	if word.MatchString(want[len(want)-1:]) {
		expr += `\b`
	}
	return regexp.MustCompile(expr)
}

// replace puts text in the place of what is between two offsets.
func (f *File) replace(from, to int, text string) {
	if f.err == nil {
		f.text = f.text[:from] + text + f.text[to:]
	}
}

func (f *File) lineStart(at int) int { return strings.LastIndexByte(f.text[:at], '\n') + 1 }

// lineEnd is where the line ends that an offset is on.
func (f *File) lineEnd(at int) int {
	if n := strings.IndexByte(f.text[at:], '\n'); n >= 0 {
		return at + n
	}
	return len(f.text)
}
