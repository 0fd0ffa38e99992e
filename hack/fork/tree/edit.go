// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// source is a Go file that is being edited: positions come from its syntax tree,
// edits are made to its bytes. So what is not edited stays byte for byte.
type source struct {
	name  string
	data  []byte
	fset  *token.FileSet
	file  *ast.File
	edits []edit
}

// edit puts text in the place of the bytes from from up to to.
type edit struct {
	from, to int
	text     string
}

func parseSource(name string, data []byte) (*source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, data, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse upstream's %s: %w", name, err)
	}
	return &source{name: name, data: data, fset: fset, file: file}, nil
}

// edit has upstream's file of that name edited.
func (d *Draft) edit(name string, do func(*source) error) error {
	upstream, ok := d.Files[name]
	if !ok {
		return missing(name)
	}
	s, err := parseSource(name, upstream.Data)
	if err != nil {
		return err
	}
	if err := do(s); err != nil {
		return err
	}
	edited, err := s.edited()
	if err != nil {
		return err
	}
	d.Files[name] = File{Data: edited, Exec: upstream.Exec}
	return nil
}

// unexpected returns an error that names what upstream's file does not have.
func (s *source) unexpected(format string, args ...any) error {
	return fmt.Errorf("upstream's %s has no %s: this release needs a look before the tool can edit it", s.name, fmt.Sprintf(format, args...))
}

func (s *source) offset(pos token.Pos) int { return s.fset.Position(pos).Offset }

// text is how a node is written.
func (s *source) text(n ast.Node) string {
	return string(s.data[s.offset(n.Pos()):s.offset(n.End())])
}

func (s *source) insert(at int, text string) { s.replace(at, at, text) }

func (s *source) replace(from, to int, text string) {
	s.edits = append(s.edits, edit{from, to, text})
}

// edited applies the edits. The result must be as gofmt would have it, since
// whatever gofmt would change elsewhere is not ours to touch.
func (s *source) edited() ([]byte, error) {
	data := slices.Clone(s.data)
	slices.SortStableFunc(s.edits, func(a, b edit) int { return b.from - a.from })
	for i, e := range s.edits {
		if i > 0 && e.to > s.edits[i-1].from {
			return nil, fmt.Errorf("edit upstream's %s: two edits overlap", s.name)
		}
		data = slices.Replace(data, e.from, e.to, []byte(e.text)...)
	}
	formatted, err := format.Source(data)
	if err != nil {
		return nil, fmt.Errorf("edit upstream's %s: %w", s.name, err)
	}
	if !bytes.Equal(formatted, data) {
		return nil, fmt.Errorf("edit upstream's %s: %w", s.name, errors.New("the result is not as gofmt has it"))
	}
	return data, nil
}

// structType finds a type of the file.
func (s *source) structType(name string) (*ast.StructType, error) {
	for _, decl := range s.file.Decls {
		types, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range types.Specs {
			if spec, ok := spec.(*ast.TypeSpec); ok && spec.Name.Name == name {
				if found, ok := spec.Type.(*ast.StructType); ok {
					return found, nil
				}
			}
		}
	}
	return nil, s.unexpected("struct type %s", name)
}

// method finds a method of a pointer type by its receiver, "c *T" say, and name.
func (s *source) method(receiver, name string) (*ast.FuncDecl, error) {
	for _, decl := range s.file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if ok && f.Name.Name == name && f.Recv != nil && f.Body != nil && strings.Trim(s.text(f.Recv), "()") == receiver {
			return f, nil
		}
	}
	return nil, s.unexpected("method (%s) %s", receiver, name)
}
