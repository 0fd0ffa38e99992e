// SPDX-License-Identifier: Apache-2.0

// Package source edits upstream's Go files for hack/fork and hack/stage. It finds
// places in the syntax tree and edits the bytes, so what is not edited stays byte
// for byte. If a place is not found exactly once, that is an error: the package
// never guesses.
package source

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// File is a Go file that is being edited, one edit after the other. Each edit sees
// the result of those before it. After an error the others do nothing.
type File struct {
	name     string
	upstream []byte // the file as it was
	data     []byte
	fset     *token.FileSet
	file     *ast.File
	err      error
}

// New begins to edit a file.
func New(name string, data []byte) *File {
	f := &File{name: name, upstream: data}
	f.parse(data)
	return f
}

func (f *File) parse(data []byte) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, f.name, data, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		f.Fail(fmt.Errorf("parse upstream's %s: %w", f.name, err))
		return
	}
	f.data, f.fset, f.file = data, fset, file
}

// Err returns the first error.
func (f *File) Err() error { return f.err }

// Done returns the edited file, formatted. Upstream's file must be as gofmt formats
// it, because formatting must not change what was not edited.
func (f *File) Done() ([]byte, error) {
	if f.err != nil {
		return nil, f.err
	}
	if formatted, err := format.Source(f.upstream); err != nil || !bytes.Equal(formatted, f.upstream) {
		return nil, fmt.Errorf("edit upstream's %s: it is not as gofmt has it", f.name)
	}
	return format.Source(f.data)
}

// Unexpected fails with a text that says what was not found.
func (f *File) Unexpected(format string, args ...any) {
	f.Fail(fmt.Errorf("upstream's %s has no %s: this release needs a look before the tool can edit it", f.name, fmt.Sprintf(format, args...)))
}

// Fail notes that something went wrong.
func (f *File) Fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

// Text returns the source text of a node.
func (f *File) Text(n ast.Node) string { return string(f.data[f.offset(n.Pos()):f.offset(n.End())]) }

func (f *File) offset(pos token.Pos) int { return f.fset.Position(pos).Offset }

// replace puts text in the place of what is between two offsets.
func (f *File) replace(from, to int, text string) {
	f.parse(slices.Replace(slices.Clone(f.data), from, to, []byte(text)...))
}

func (f *File) insert(at int, text string) { f.replace(at, at, text) }

// Put puts text in the place of a node.
func (f *File) Put(n ast.Node, text string) { f.replace(f.offset(n.Pos()), f.offset(n.End()), text) }

// above is where a node begins, or the comment right above it.
func (f *File) above(n ast.Node) int {
	line := f.fset.Position(n.Pos()).Line
	for _, comment := range f.file.Comments {
		at := f.offset(comment.Pos())
		if f.fset.Position(comment.End()).Line == line-1 && len(bytes.TrimSpace(f.data[f.lineStart(at):at])) == 0 {
			return at
		}
	}
	return f.offset(n.Pos())
}

func (f *File) lineStart(at int) int { return bytes.LastIndexByte(f.data[:at], '\n') + 1 }

// lineEnd is where the line ends that an offset is on.
func (f *File) lineEnd(at int) int {
	if n := bytes.IndexByte(f.data[at:], '\n'); n >= 0 {
		return at + n
	}
	return len(f.data)
}

// Decls are the declarations of the file, none after an error.
func (f *File) Decls() []ast.Decl {
	if f.err != nil {
		return nil
	}
	return f.file.Decls
}

// Receiver is how the receiver of a method is written, "c *T" say.
func (f *File) Receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return ""
	}
	return strings.Trim(f.Text(fn.Recv), "()")
}

// Named finds the declaration of a function, a method or a type, nil if there is
// none. A name like "(c *T) M" is that of a method of this receiver.
func (f *File) Named(name string) ast.Decl {
	receiver, method, isMethod := strings.Cut(strings.TrimPrefix(name, "("), ") ")
	for _, decl := range f.Decls() {
		switch fn, ok := decl.(*ast.FuncDecl); {
		case !isMethod && NameOf(decl) == name, isMethod && ok && fn.Name.Name == method && f.Receiver(fn) == receiver:
			return decl
		}
	}
	return nil
}

// NameOf is the name of a function, a method or a type.
func NameOf(decl ast.Decl) string {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		return decl.Name.Name
	case *ast.GenDecl:
		if len(decl.Specs) == 1 {
			if spec, ok := decl.Specs[0].(*ast.TypeSpec); ok {
				return spec.Name.Name
			}
		}
	}
	return ""
}

// Function edits a function or a method, which is there and has a body.
func (f *File) Function(name string, do func(*ast.FuncDecl)) {
	fn, ok := f.Named(name).(*ast.FuncDecl)
	if !ok || fn.Body == nil {
		f.Unexpected("function %s", name)
		return
	}
	do(fn)
}

// Fields are the fields of a struct type.
func (f *File) Fields(typeName string) []*ast.Field {
	if decl, ok := f.Named(typeName).(*ast.GenDecl); ok { // Named finds types only
		if found, ok := decl.Specs[0].(*ast.TypeSpec).Type.(*ast.StructType); ok {
			return found.Fields.List
		}
	}
	f.Unexpected("struct type %s", typeName)
	return nil
}
