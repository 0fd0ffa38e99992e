// SPDX-License-Identifier: Apache-2.0

package full

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// A graph is made of Go files, of which each needs others.
type graph struct {
	fset  *token.FileSet
	files map[string]*ast.File
	needs map[string]map[string]bool
}

// dependencies returns which of the files each file needs: those that declare what
// it uses in its package, all code of the packages that it imports and, for a
// test, all code of its own package and what is in its testdata.
func dependencies(files tree.Files) (map[string][]string, error) {
	g, err := parse(files)
	if err != nil {
		return nil, err
	}
	for _, names := range g.packages() {
		g.uses(names)
	}
	for name := range g.files {
		if err := g.imports(name, files); err != nil {
			return nil, err
		}
	}
	needs := map[string][]string{}
	for name, needed := range g.needs {
		delete(needed, name)
		needs[name] = slices.Sorted(maps.Keys(needed))
	}
	return needs, nil
}

func parse(files tree.Files) (*graph, error) {
	g := &graph{fset: token.NewFileSet(), files: map[string]*ast.File{}, needs: map[string]map[string]bool{}}
	for name, file := range files {
		if path.Ext(name) != ".go" || strings.Contains(name, "/testdata/") {
			continue
		}
		parsed, err := parser.ParseFile(g.fset, name, file.Data, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", name, err)
		}
		g.files[name], g.needs[name] = parsed, map[string]bool{}
	}
	return g, nil
}

// packages returns the files of each package, tests in the package included.
func (g *graph) packages() map[string][]string {
	all := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(g.files)) {
		key := path.Dir(name) + " " + g.files[name].Name.Name
		all[key] = append(all[key], name)
	}
	return all
}

// imports adds what a file needs of other packages, and of its own if it is a test.
func (g *graph) imports(name string, files tree.Files) error {
	dirs := map[string]bool{}
	for _, spec := range g.files[name].Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return fmt.Errorf("parse %s: %w", name, err)
		}
		if dir, ok := strings.CutPrefix(imported, tree.Module+"/"); ok {
			dirs[dir] = true
		}
	}
	for other := range g.files {
		code := !isTest(other)
		if code && (dirs[path.Dir(other)] || isTest(name) && path.Dir(name) == path.Dir(other)) {
			g.needs[name][other] = true
		}
	}
	for other := range files {
		if isTest(name) && strings.HasPrefix(other, path.Dir(name)+"/testdata/") {
			g.needs[name][other] = true
		}
	}
	return nil
}

// check finds what the names in a package are. The types of other packages, whose
// source is not at hand, stay unknown, and with them what is got from them.
func (g *graph) check(names []string) (*types.Info, *types.Package) {
	parsed := make([]*ast.File, len(names))
	for i, name := range names {
		parsed[i] = g.files[name]
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: noImports{}, Error: func(error) {}}
	pkg, _ := config.Check(path.Dir(names[0]), g.fset, parsed, info) // its errors are about what is imported
	return info, pkg
}

// uses adds what the files of a package need of each other. What calls a method
// of something unknown needs each method of that name.
func (g *graph) uses(names []string) {
	info, pkg := g.check(names)
	for ident, object := range info.Uses {
		if object.Pkg() == pkg && object.Pos().IsValid() {
			g.needs[g.at(ident.Pos())][g.at(object.Pos())] = true
		}
	}
	methods := g.methodsElsewhere(info)
	for _, name := range names {
		ast.Inspect(g.files[name], func(n ast.Node) bool {
			for _, where := range methods[unresolvedCall(info, n)] {
				g.needs[name][where] = true
			}
			return true
		})
		g.assertions(name, methods)
	}
}

// unresolvedCall is the name of the method that a node calls on something whose
// type is not known.
func unresolvedCall(info *types.Info, n ast.Node) string {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return ""
	}
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || info.Uses[selector.Sel] != nil || ofPackage(info, selector) {
		return ""
	}
	return selector.Sel.Name
}

// ofPackage reports whether a selector is of what another package declares.
func ofPackage(info *types.Info, selector *ast.SelectorExpr) bool {
	ident, ok := selector.X.(*ast.Ident)
	if !ok {
		return false
	}
	_, ok = info.Uses[ident].(*types.PkgName)
	return ok
}

type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not at hand") }

func (g *graph) at(pos token.Pos) string { return g.fset.Position(pos).Filename }

// methodsElsewhere finds, by name, the files with methods whose type is in another
// file: a method that is where its type is comes with that.
func (g *graph) methodsElsewhere(info *types.Info) map[string][]string {
	found := map[string][]string{}
	for ident, object := range info.Defs {
		fn, ok := object.(*types.Func)
		if !ok || fn.Signature().Recv() == nil {
			continue
		}
		of := fn.Signature().Recv().Type()
		if pointer, ok := of.(*types.Pointer); ok {
			of = pointer.Elem()
		}
		if named, ok := of.(*types.Named); ok && g.at(named.Obj().Pos()) != g.at(ident.Pos()) {
			found[ident.Name] = append(found[ident.Name], g.at(ident.Pos()))
		}
	}
	return found
}

// mapperMethods are those of apimachinery's RESTMapper interfaces.
var mapperMethods = []string{"KindFor", "KindsFor", "ResourceFor", "ResourcesFor", "RESTMapping", "RESTMappings", "ResourceSingularizer", "Reset"}

// assertions adds what a file needs that has the compiler check that something
// is a RESTMapper.
func (g *graph) assertions(name string, methods map[string][]string) {
	for _, decl := range g.files[name].Decls {
		values, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range values.Specs {
			value, ok := spec.(*ast.ValueSpec)
			if !ok || value.Names[0].Name != "_" {
				continue
			}
			if wanted, ok := value.Type.(*ast.SelectorExpr); !ok || !strings.Contains(wanted.Sel.Name, "RESTMapper") {
				continue
			}
			for _, method := range mapperMethods {
				for _, where := range slices.Concat(methods[method], methods[method+"WithContext"]) {
					g.needs[name][where] = true
				}
			}
		}
	}
}
