// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
)

// Source is a Go file of upstream's that hack/stage edits as the patches of this
// package do: by its syntax tree, so that what is not edited stays byte for byte.
type Source struct{ *source }

// ParseSource reads a file of a tree.
func ParseSource(files Files, name string) (Source, error) {
	file, ok := files[name]
	if !ok {
		return Source{}, missing(name)
	}
	s, err := parseSource(name, file.Data)
	return Source{s}, err
}

// Write puts the edited file into the tree.
func (s Source) Write(files Files) error {
	data, err := s.edited()
	if err != nil {
		return err
	}
	files[s.name] = File{Data: data, Exec: files[s.name].Exec}
	return nil
}

// Decls are the declarations of the file.
func (s Source) Decls() []ast.Decl { return s.file.Decls }

// Struct finds a struct type.
func (s Source) Struct(name string) (*ast.StructType, error) { return s.structType(name) }

// Text is how a node is written.
func (s Source) Text(n ast.Node) string { return s.text(n) }

// Offset is where a position is in the file.
func (s Source) Offset(pos token.Pos) int { return s.offset(pos) }

// Above is where a statement begins, or the comment right above it.
func (s Source) Above(n ast.Node) int {
	line := s.fset.Position(n.Pos()).Line
	for _, comment := range s.file.Comments {
		if s.fset.Position(comment.End()).Line == line-1 && s.beginsLine(comment.Pos()) {
			return s.offset(comment.Pos())
		}
	}
	return s.offset(n.Pos())
}

// beginsLine reports whether nothing but indentation comes before pos on its line.
func (s Source) beginsLine(pos token.Pos) bool {
	before := s.data[:s.offset(pos)]
	before = before[bytes.LastIndexByte(before, '\n')+1:]
	return len(bytes.TrimSpace(before)) == 0
}

// LineEnd is where the line ends that a position is on.
func (s Source) LineEnd(pos token.Pos) int {
	from := s.offset(pos)
	if n := bytes.IndexByte(s.data[from:], '\n'); n >= 0 {
		return from + n
	}
	return len(s.data)
}

// Replace puts text in the place of what is between two offsets.
func (s Source) Replace(from, to int, text string) { s.replace(from, to, text) }

// Unexpected returns an error that names what upstream's file does not have.
func (s Source) Unexpected(format string, args ...any) error {
	return s.unexpected("%s", fmt.Sprintf(format, args...))
}

// At is a byte of the file.
func (s Source) At(offset int) byte { return s.data[offset] }
