// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

// localize makes a file of ours at home in the tree: imports of our module
// become imports of the tree's. Whatever is not Go, and everything below a
// testdata folder, stays as it is.
func localize(name string, src []byte) ([]byte, error) {
	if path.Ext(name) != ".go" || slices.Contains(strings.Split(name, "/"), "testdata") {
		return src, nil
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.ImportsOnly)
	if err != nil {
		return nil, fmt.Errorf("parse our %s: %w", name, err)
	}
	edited, err := editImports(fset, file, src)
	if err != nil {
		return nil, fmt.Errorf("our %s: %w", name, err)
	}
	if edited == nil {
		return src, nil
	}
	if edited, err = format.Source(edited); err != nil { // the new paths sort elsewhere
		return nil, fmt.Errorf("format our %s after its imports were rewritten: %w", name, err)
	}
	return edited, nil
}

// editImports replaces the path literals of our own imports and nothing else.
// It returns nil when there are none. It works from the last import to the
// first, so that the positions ahead stay true.
func editImports(fset *token.FileSet, file *ast.File, src []byte) ([]byte, error) {
	var edited []byte
	for _, spec := range slices.Backward(file.Imports) {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, fmt.Errorf("import %s: %w", spec.Path.Value, err)
		}
		moved, err := moveImport(imported)
		if err != nil {
			return nil, err
		}
		if moved == imported {
			continue
		}
		if edited == nil {
			edited = slices.Clone(src)
		}
		from, to := fset.Position(spec.Path.Pos()).Offset, fset.Position(spec.Path.End()).Offset
		edited = slices.Replace(edited, from, to, []byte(strconv.Quote(moved))...)
	}
	return edited, nil
}

// moveImport returns the path of an import in the tree. It refuses any other
// package of ours than apiutil and internal, because the tree has only those.
func moveImport(imported string) (string, error) {
	name, ours := cutRoot(imported, Ours)
	if !ours {
		return imported, nil
	}
	for _, root := range []string{"apiutil", "internal"} {
		if _, ok := cutRoot(name, root); ok {
			return path.Join(Module, destination(name)), nil
		}
	}
	return "", fmt.Errorf("imports %s, which the tree does not carry: only apiutil and internal come along", imported)
}
