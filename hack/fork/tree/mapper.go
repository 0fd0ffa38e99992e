// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// roots are the folders of our sources that go into the tree.
var roots = []string{"apiutil", "internal"}

// defaults is our file with the defaults of options. The tree has another: there the
// default of Metrics is what controller-runtime registers.
const defaults = apiutilDir + "/defaults.go"

// putMapper puts our mapper in the place of upstream's.
func putMapper(d *draft) error {
	for _, name := range slices.Sorted(maps.Keys(mapperFiles)) {
		file, err := d.upstream(name)
		if err == nil {
			err = checkExport(name, file, mapperFiles[name])
		}
		if err != nil {
			return err
		}
		delete(d.files, name)
	}
	delete(d.files, mapperTest)
	files, err := Read(d.ours)
	if err != nil {
		return fmt.Errorf("read our sources: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		to, ok := destination(name)
		if !ok || to == defaults {
			continue
		}
		data, err := localize(name, files[name])
		if err == nil {
			err = d.put(to, data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkExport makes sure that dropping a file drops no name that others use and we don't
// know of.
func checkExport(name string, src []byte, want string) error {
	file, err := parser.ParseFile(token.NewFileSet(), name, src, 0)
	if err != nil {
		return fmt.Errorf("parse upstream's %s: %w", name, err)
	}
	got := slices.Sorted(maps.Keys(file.Scope.Objects)) // what is declared at top level, but for methods
	got = slices.DeleteFunc(got, func(name string) bool { return !ast.IsExported(name) })
	if !slices.Equal(got, []string{want}) {
		return fmt.Errorf("upstream's %s exports %q, not %q: look at it before you add it to the table of lines", name, got, want)
	}
	return nil
}

// destination returns where a file or package of ours is in the tree: apiutil/x
// becomes pkg/client/apiutil/x, internal/x becomes pkg/client/apiutil/internal/x.
// Not ok: the tree does not have it.
func destination(name string) (to string, ok bool) {
	root, rest, _ := strings.Cut(name, "/")
	if root == "apiutil" {
		name = rest
	}
	return path.Join(apiutilDir, name), slices.Contains(roots, root)
}

// localize adapts a file of ours to the tree: imports of our module become imports
// of the tree's. Whatever is not Go, and everything below a testdata folder, stays
// as it is.
func localize(name string, src []byte) ([]byte, error) {
	if path.Ext(name) != ".go" || slices.Contains(strings.Split(name, "/"), "testdata") {
		return src, nil
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.ImportsOnly)
	if err != nil {
		return nil, fmt.Errorf("parse our %s: %w", name, err)
	}
	edited := slices.Clone(src)
	for _, spec := range slices.Backward(file.Imports) { // so that the positions ahead stay true
		imported := strings.Trim(spec.Path.Value, "`\"")
		if imported != Ours && !strings.HasPrefix(imported, Ours+"/") {
			continue
		}
		to, ok := destination(strings.TrimPrefix(imported, Ours+"/"))
		if !ok {
			return nil, fmt.Errorf("our %s imports %s, which the tree does not have: only apiutil and internal come along", name, imported)
		}
		from, end := fset.Position(spec.Path.Pos()).Offset, fset.Position(spec.Path.End()).Offset
		edited = slices.Replace(edited, from, end, []byte(strconv.Quote(path.Join(Module, to)))...)
	}
	if string(edited) == string(src) {
		return src, nil
	}
	if edited, err = format.Source(edited); err != nil { // the new paths sort elsewhere
		return nil, fmt.Errorf("format our %s after its imports were rewritten: %w", name, err)
	}
	return edited, nil
}
