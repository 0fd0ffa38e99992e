// SPDX-License-Identifier: Apache-2.0

package source

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// In what follows place is a function or a method, as Named takes it, or "" for
// the whole file; want is how a piece of it is written, or how it begins.

// Change replaces a piece: as much of it as want says.
func (f *File) Change(place, want, with string) {
	f.once(place, want, func(n ast.Node) { f.replace(f.offset(n.Pos()), f.offset(n.Pos())+len(want), with) })
}

// Before puts text in front of a piece and the comment above it.
func (f *File) Before(place, want, text string) {
	f.once(place, want, func(n ast.Node) { f.insert(f.above(n), text) })
}

// After puts text behind a piece.
func (f *File) After(place, want, text string) {
	f.once(place, want, func(n ast.Node) { f.insert(f.offset(n.End()), text) })
}

// AfterLine puts text behind the line that a piece ends on.
func (f *File) AfterLine(place, want, text string) {
	f.once(place, want, func(n ast.Node) { f.insert(f.lineEnd(f.offset(n.End())), text) })
}

// Wrap puts text before and after a piece.
func (f *File) Wrap(place, want, before, after string) {
	f.once(place, want, func(n ast.Node) { f.Put(n, before+f.Text(n)+after) })
}

// Remove takes a piece out, which must be as want says to its end, with its lines
// and the comment above it.
func (f *File) Remove(place, want string) {
	f.once(place, want, func(n ast.Node) {
		if f.Text(n) != want {
			f.Unexpected("%q in %s that ends there", want, place)
			return
		}
		f.replace(f.lineStart(f.above(n)), f.lineEnd(f.offset(n.End()))+1, "")
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

// find finds all of the outermost nodes that are written so, or begin so.
func (f *File) find(place, want string) (found []ast.Node) {
	if f.err != nil {
		return nil
	}
	within := []ast.Node{f.file}
	if place != "" {
		f.Function(place, func(fn *ast.FuncDecl) { within = []ast.Node{fn, fn.Body} })
	}
	ast.Inspect(within[0], func(n ast.Node) bool {
		if n == nil || slices.Contains(within, n) {
			return n != nil
		}
		if strings.HasPrefix(f.Text(n), want) {
			found = append(found, n)
			return false
		}
		return true
	})
	return found
}

// Either returns which of several pieces there is, once.
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

// Value replaces the value of a key in the one literal of a type that has
// elements.
func (f *File) Value(typeName, key, want, with string) {
	var values []ast.Expr
	for _, n := range f.find("", typeName+"{") {
		lit, ok := n.(*ast.CompositeLit)
		for i := 0; ok && i < len(lit.Elts); i++ {
			if pair, ok := lit.Elts[i].(*ast.KeyValueExpr); ok && f.Text(pair.Key) == key && f.Text(pair.Value) == want {
				values = append(values, pair.Value)
			}
		}
	}
	if len(values) != 1 {
		f.Unexpected("single element %q in the literal %s{...}", key+": "+want, typeName)
		return
	}
	f.Put(values[0], with)
}

// FieldType replaces the type of a field.
func (f *File) FieldType(typeName, name, want, with string) {
	switch field := f.field(typeName, name); {
	case f.err != nil:
	case f.Text(field.Type) != want:
		f.Unexpected("field %q in %s", name+" "+want, typeName)
	default:
		f.Put(field.Type, with)
	}
}

// AddField puts a field behind another one.
func (f *File) AddField(typeName, behind, text string) {
	if field := f.field(typeName, behind); f.err == nil {
		f.insert(f.lineEnd(f.offset(field.End())), "\n\n"+text)
	}
}

// Comment replaces the comment above a field.
func (f *File) Comment(typeName, name, text string) {
	field := f.field(typeName, name)
	if f.err == nil && field.Doc == nil {
		f.Unexpected("comment above the field %s of %s", name, typeName)
	}
	if f.err == nil {
		f.replace(f.offset(field.Doc.Pos()), f.offset(field.Doc.End())+1, text)
	}
}

// Rename renames a function where it is declared, and in its comment's first word.
func (f *File) Rename(from, to string) {
	f.Function(from, func(fn *ast.FuncDecl) {
		was, at := fn.Name.Name, -1
		if fn.Doc != nil && strings.HasPrefix(f.Text(fn.Doc), "// "+was+" ") {
			at = f.offset(fn.Doc.Pos()) + len("// ")
		}
		f.Put(fn.Name, to)
		if at >= 0 {
			f.replace(at, at+len(was), to)
		}
	})
}

// Declare puts a declaration in the place of the one of that name or, if there is
// none, behind another one.
func (f *File) Declare(name, text, behind string) {
	if old := f.Named(name); old != nil {
		f.replace(f.above(old), f.offset(old.End()), text)
		return
	}
	before := f.Named(behind)
	if before == nil {
		f.Unexpected("declaration of %s", behind)
		return
	}
	f.insert(f.lineEnd(f.offset(before.End())), "\n\n"+text)
}

// DeclareBefore puts declarations in front of the one of a name.
func (f *File) DeclareBefore(name, text string) {
	decl := f.Named(name)
	if decl == nil {
		f.Unexpected("declaration of %s", name)
		return
	}
	f.insert(f.above(decl), text)
}

// Import adds a package of the standard library to the first group of imports.
func (f *File) Import(name string) {
	quoted := strconv.Quote(name)
	for _, decl := range f.Decls() {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.IMPORT {
			continue
		}
		for _, spec := range group.Specs {
			switch text := f.Text(spec); {
			case text == quoted:
				return
			case text > quoted && !strings.Contains(text, "."):
				f.insert(f.offset(spec.Pos()), quoted+"\n\t")
				return
			}
		}
	}
	f.Unexpected("group of imports for %s", quoted)
}

// DropImport takes out an import that has no use left, with its line.
func (f *File) DropImport(name string) {
	for _, decl := range f.Decls() {
		group, ok := decl.(*ast.GenDecl)
		for i := 0; ok && i < len(group.Specs); i++ {
			if spec, ok := group.Specs[i].(*ast.ImportSpec); ok && f.Text(spec) == strconv.Quote(name) {
				f.replace(f.lineStart(f.offset(spec.Pos())), f.lineEnd(f.offset(spec.End()))+1, "")
				return
			}
		}
	}
	f.Unexpected("import of %s", name)
}
