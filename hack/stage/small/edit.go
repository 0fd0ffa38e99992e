// SPDX-License-Identifier: Apache-2.0

package small

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// file edits one file of a tree, one edit after the other: each sees what the
// one before it has made. After an error the others do nothing.
type file struct {
	files tree.Files
	name  string
	err   error
}

// edit parses the file, has it edited, and writes it.
func (f *file) edit(do func(tree.Source) error) {
	if f.err != nil {
		return
	}
	s, err := tree.ParseSource(f.files, f.name)
	if err == nil {
		err = do(s)
	}
	if err == nil {
		err = s.Write(f.files)
	}
	f.err = err
}

// function edits a function or method.
func (f *file) function(name string, do func(s tree.Source, fn *ast.FuncDecl) error) {
	f.edit(func(s tree.Source) error {
		fn, ok := named(s, name).(*ast.FuncDecl)
		if !ok {
			return s.Unexpected("function %s", name)
		}
		return do(s, fn)
	})
}

// change replaces a piece of a function, which must be there once. want is how
// the piece is written, an expression or the beginning of a statement.
func (f *file) change(function, want, with string) {
	f.function(function, func(s tree.Source, fn *ast.FuncDecl) error {
		n, err := only(s, fn, want)
		if err != nil {
			return err
		}
		from := s.Offset(n.Pos())
		s.Replace(from, from+len(want), with)
		return nil
	})
}

// before puts text in front of a statement or the comment above it.
func (f *file) before(function, want, text string) {
	f.function(function, func(s tree.Source, fn *ast.FuncDecl) error {
		n, err := only(s, fn, want)
		if err == nil {
			s.Replace(s.Above(n), s.Above(n), text)
		}
		return err
	})
}

// after puts text behind a statement.
func (f *file) after(function, want, text string) {
	f.function(function, func(s tree.Source, fn *ast.FuncDecl) error {
		n, err := only(s, fn, want)
		if err == nil {
			s.Replace(s.Offset(n.End()), s.Offset(n.End()), text)
		}
		return err
	})
}

// remove takes a statement out, with its line.
func (f *file) remove(function, want string) {
	f.function(function, func(s tree.Source, fn *ast.FuncDecl) error {
		n, err := only(s, fn, want)
		if err == nil {
			from := s.Above(n)
			for from > 0 && s.At(from-1) != '\n' {
				from--
			}
			s.Replace(from, s.LineEnd(n.End())+1, "")
		}
		return err
	})
}

// only finds the outermost node of a function that is written so, or begins so.
func only(s tree.Source, fn *ast.FuncDecl, want string) (ast.Node, error) {
	var found []ast.Node
	ast.Inspect(fn, func(n ast.Node) bool {
		if n == nil || n == ast.Node(fn) || n == ast.Node(fn.Body) {
			return n != nil
		}
		if strings.HasPrefix(s.Text(n), want) {
			found = append(found, n)
			return false
		}
		return true
	})
	if len(found) != 1 {
		return nil, s.Unexpected("single %q in %s (there are %d)", want, fn.Name.Name, len(found))
	}
	return found[0], nil
}

// field puts a field behind another one of a struct type.
func (f *file) field(typeName, behind, text string) {
	f.edit(func(s tree.Source) error {
		fields, err := s.Struct(typeName)
		if err != nil {
			return err
		}
		for _, field := range fields.Fields.List {
			for _, name := range field.Names {
				if name.Name == behind {
					end := s.LineEnd(field.End())
					s.Replace(end, end, "\n\n"+text)
					return nil
				}
			}
		}
		return s.Unexpected("field %s in %s", behind, typeName)
	})
}

// comment replaces the comment above a field.
func (f *file) comment(typeName, fieldName, text string) {
	f.edit(func(s tree.Source) error {
		fields, err := s.Struct(typeName)
		if err != nil {
			return err
		}
		for _, field := range fields.Fields.List {
			if len(field.Names) == 1 && field.Names[0].Name == fieldName && field.Doc != nil {
				s.Replace(s.Offset(field.Doc.Pos()), s.Offset(field.Doc.End())+1, text)
				return nil
			}
		}
		return s.Unexpected("comment above the field %s of %s", fieldName, typeName)
	})
}

// element puts text behind the line of a composite literal's element.
func (f *file) element(function, want, text string) {
	f.function(function, func(s tree.Source, fn *ast.FuncDecl) error {
		n, err := only(s, fn, want)
		if err == nil {
			s.Replace(s.LineEnd(n.End()), s.LineEnd(n.End()), text)
		}
		return err
	})
}

// imports adds packages of the standard library to the first group of imports.
func (f *file) imports(packages ...string) {
	for _, p := range packages {
		f.edit(func(s tree.Source) error { return importOne(s, strconv.Quote(p)) })
	}
}

func importOne(s tree.Source, quoted string) error {
	for _, decl := range s.Decls() {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.IMPORT {
			continue
		}
		has := func(spec ast.Spec) bool { return s.Text(spec) == quoted }
		if slices.ContainsFunc(group.Specs, has) {
			return nil
		}
		for _, spec := range group.Specs {
			if text := s.Text(spec); text > quoted && !strings.Contains(text, ".") {
				s.Replace(s.Offset(spec.Pos()), s.Offset(spec.Pos()), quoted+"\n\t")
				return nil
			}
		}
	}
	return s.Unexpected("group of imports for %s", quoted)
}
