// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// putMapper puts our mapper in the place of upstream's.
func putMapper(d *Draft) error {
	if err := d.dropStock(); err != nil {
		return err
	}
	for _, root := range []string{"apiutil", "internal"} {
		if err := d.add(root); err != nil {
			return err
		}
	}
	return nil
}

// dropStock takes upstream's mapper out of the draft.
func (d *Draft) dropStock() error {
	for _, gone := range d.Line.Gone {
		name := path.Join(apiutilDir, gone.Name)
		file, ok := d.Files[name]
		if !ok && gone.Optional {
			continue
		}
		if !ok {
			return missing(name)
		}
		if err := checkExports(name, file.Data, gone.Exports); err != nil {
			return err
		}
		delete(d.Files, name)
	}
	return nil
}

func missing(name string) error {
	return fmt.Errorf("upstream has no %s: this release needs a row of its own in the table of lines", name)
}

// checkExports makes sure that dropping a file drops no name that others use
// and we don't know of. Test files export nothing that matters.
func checkExports(name string, src []byte, want []string) error {
	if strings.HasSuffix(name, "_test.go") {
		return nil
	}
	got, err := exports(name, src)
	if err != nil {
		return err
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("upstream's %s exports %q, not %q: look at it before adding it to the table of lines", name, got, want)
	}
	return nil
}

// exports returns the exported names that a file declares at top level, in its
// order. Methods belong to their type.
func exports(name string, src []byte) ([]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse upstream's %s: %w", name, err)
	}
	var names []string
	for _, decl := range file.Decls {
		for _, ident := range declared(decl) {
			if ident.IsExported() {
				names = append(names, ident.Name)
			}
		}
	}
	return names, nil
}

func declared(decl ast.Decl) []*ast.Ident {
	var names []*ast.Ident
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		if decl.Recv == nil {
			names = append(names, decl.Name)
		}
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				names = append(names, spec.Name)
			case *ast.ValueSpec:
				names = append(names, spec.Names...)
			}
		}
	}
	return names
}

// add brings one folder of our sources into the draft.
func (d *Draft) add(root string) error {
	if _, err := fs.Stat(d.Ours, root); err != nil {
		return fmt.Errorf("our sources have no %s: %w", root, err)
	}
	return fs.WalkDir(d.Ours, root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(d.Ours, name)
		if err != nil {
			return fmt.Errorf("read our %s: %w", name, err)
		}
		if data, err = localize(name, data); err != nil {
			return err
		}
		return d.put(destination(name), data)
	})
}

// put adds a file where nothing of upstream's is left.
func (d *Draft) put(name string, data []byte) error {
	if _, taken := d.Files[name]; taken {
		return fmt.Errorf("our file would overwrite upstream's %s: rename ours", name)
	}
	d.Files[name] = File{Data: data}
	return nil
}

// destination is where a file or package of ours lives in the tree:
// apiutil/x becomes pkg/client/apiutil/x, internal/x becomes
// pkg/client/apiutil/internal/x.
func destination(name string) string {
	if rest, ok := cutRoot(name, "apiutil"); ok {
		return path.Join(apiutilDir, rest)
	}
	return path.Join(apiutilDir, name)
}

// cutRoot is strings.CutPrefix for whole path elements.
func cutRoot(name, root string) (string, bool) {
	if name == root {
		return "", true
	}
	return strings.CutPrefix(name, root+"/")
}
