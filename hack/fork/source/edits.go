// SPDX-License-Identifier: Apache-2.0

package source

import (
	"go/ast"
	"regexp"
	"strings"
)

// In these methods, place is a function, a method or a type, as Named takes it, or
// "T{" for the literals of a type, or "" for the whole file. want is the text of a
// piece of it, or how that text begins. A space in want stands for any white space.

// Change replaces the part of a piece that want matches.
func (f *File) Change(place, want, with string) {
	f.once(place, want, func(n ast.Node) {
		from := f.offset(n.Pos())
		f.replace(from, from+len(pattern(want).Find(f.data[from:])), with)
	})
}

// Has makes sure that there is a piece.
func (f *File) Has(place, want string) { f.once(place, want, func(ast.Node) {}) }

// Before puts text in front of a piece and the comment above it.
func (f *File) Before(place, want, text string) {
	f.once(place, want, func(n ast.Node) { f.insert(f.above(n), text) })
}

// Wrap puts text before and after a piece.
func (f *File) Wrap(place, want, before, after string) {
	f.once(place, want, func(n ast.Node) { f.Put(n, before+f.Text(n)+after) })
}

// Remove removes a piece, with the comment above it. want must match the whole
// piece, and the piece must be alone on its lines.
func (f *File) Remove(place, want string) {
	f.once(place, want, func(n ast.Node) {
		from, to := f.lineStart(f.offset(n.Pos())), f.lineEnd(f.offset(n.End()))
		if strings.TrimSpace(string(f.data[from:to])) != want {
			f.Unexpected("%q alone on its lines", want)
			return
		}
		f.replace(f.lineStart(f.above(n)), to+1, "")
	})
}

// once finds a piece.
func (f *File) once(place, want string, do func(ast.Node)) {
	found := f.find(place, want)
	if len(found) == 1 && f.err == nil {
		do(found[0])
		return
	}
	if place == "" {
		place = "the file"
	}
	f.Unexpected("single %q in %s (there are %d)", want, place, len(found))
}

// find finds the outermost nodes in a place whose text is want or begins with it.
func (f *File) find(place, want string) (found []ast.Node) {
	begins := pattern(want)
	for _, within := range f.places(place) {
		ast.Inspect(within, func(n ast.Node) bool {
			if n == nil || n == within {
				return n != nil
			}
			if begins.MatchString(f.Text(n)) {
				found = append(found, n)
				return false
			}
			return true
		})
	}
	return found
}

func (f *File) places(place string) []ast.Node {
	switch {
	case f.err != nil:
		return nil
	case place == "":
		return []ast.Node{f.file}
	case strings.HasSuffix(place, "{"):
		return f.find("", place)
	}
	decl := f.Named(place)
	if decl == nil {
		f.Unexpected("function %s, nor a type of that name", place)
		return nil
	}
	return []ast.Node{decl}
}

// pattern returns a pattern that matches want, up to the end of a word.
func pattern(want string) *regexp.Regexp {
	expr := strings.ReplaceAll(regexp.QuoteMeta(want), " ", `\s+`)
	if wordEnd.MatchString(want) {
		expr += `\b`
	}
	return regexp.MustCompile("^" + expr)
}

var wordEnd = regexp.MustCompile(`\w$`)

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
func (f *File) Shape(name, pattern string) (found []string) {
	f.Function(name, func(fn *ast.FuncDecl) {
		expr := regexp.QuoteMeta(pattern)
		expr = strings.ReplaceAll(expr, "…\n", `(?:[^\n]*\n)*`)
		expr = regexp.MustCompile("<[a-z]+>").ReplaceAllLiteralString(expr, `([^\n]*)`)
		if found = regexp.MustCompile("^" + expr + "\n$").FindStringSubmatch(f.Text(fn) + "\n"); found == nil {
			f.Unexpected("%s like this: %s", name, strings.Join(strings.Fields(pattern), " "))
			return
		}
		found = found[1:]
	})
	return found
}

// Rename renames a function where it is declared, and in its comment's first word.
func (f *File) Rename(from, to string) {
	f.Function(from, func(fn *ast.FuncDecl) {
		start, name := f.above(fn), f.offset(fn.Name.Pos())
		above := string(f.data[start:name])
		if rest, ok := strings.CutPrefix(above, "// "+fn.Name.Name+" "); ok {
			above = "// " + to + " " + rest
		}
		f.replace(start, name+len(fn.Name.Name), above+to)
	})
}
