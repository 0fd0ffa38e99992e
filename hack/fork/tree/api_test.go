// SPDX-License-Identifier: Apache-2.0

package tree

import (
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
	"testing"

	"github.com/freshmapper/freshmapper"
)

// In every line, each package of the tree exports what upstream's does, in the
// same form; pkg/client/apiutil exports ours besides, and nothing else.
func TestExportedAPI(t *testing.T) {
	for _, line := range Lines {
		t.Run(line.Newest, func(t *testing.T) {
			upstream := upstreamOf(t, line.Newest)
			made, err := Generate(line.Newest, maps.Clone(upstream), freshmapper.Source)
			if err != nil {
				t.Fatal(err)
			}
			dirs := goDirs(upstream)
			maps.Copy(dirs, goDirs(made))
			for dir := range dirs {
				want := exportedBy(t, upstream, dir)
				switch {
				case dir == apiutilDir:
					ours := ourAPI(t)
					maps.Copy(ours, want) // of a name that we have, too, upstream's form counts
					want = ours
				case strings.Contains(dir+"/", "/internal/"):
					continue // nobody else's to use
				}
				sameAPI(t, dir, want, exportedBy(t, made, dir))
			}
		})
	}
}

// What others rely on most, so that the comparison is seen to compare.
func TestExportedAPIHas(t *testing.T) {
	api := exportedBy(t, upstreamOf(t, Newest()), apiutilDir)
	want := map[string]string{
		"NewDynamicRESTMapper": "func(*k8s.io/client-go/rest.Config, *net/http.Client) " +
			"(k8s.io/apimachinery/pkg/api/meta.RESTMapper, error)",
		"ErrResourceDiscoveryFailed":           "type map[k8s.io/apimachinery/pkg/runtime/schema.GroupVersion]error",
		"(*ErrResourceDiscoveryFailed).Unwrap": "func() []error",
		"(*ErrResourceDiscoveryFailed).Error":  "func() string",
	}
	for name, form := range want {
		if api[name] != form {
			t.Errorf("%s is %q, want %q", name, api[name], form)
		}
	}
	ours := ourAPI(t)
	for name, form := range map[string]string{
		"DynamicRESTMapperOptions.RefreshInterval": "time.Duration",
		"(*DynamicRESTMapper).Generation":          "func() uint64",
		"ResetOnNoMatch":                           "func(error, ...k8s.io/apimachinery/pkg/api/meta.RESTMapper) bool",
	} {
		if ours[name] != form {
			t.Errorf("%s is %q, want %q", name, ours[name], form)
		}
	}
}

func sameAPI(t *testing.T, dir string, want, got map[string]string) {
	t.Helper()
	for name, form := range want {
		if got[name] != form {
			t.Errorf("%s: %s was %q, is %q", dir, name, form, got[name])
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %s is new", dir, name)
		}
	}
}

// ourAPI is what our apiutil exports, as it is where it is developed.
func ourAPI(t *testing.T) map[string]string {
	t.Helper()
	files, err := Read(freshmapper.Source)
	if err != nil {
		t.Fatal(err)
	}
	return exportedBy(t, files, "apiutil")
}

// goDirs are the folders that hold packages.
func goDirs(files Files) map[string]bool {
	dirs := map[string]bool{}
	for name := range files {
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && !strings.Contains(name, "testdata/") {
			dirs[path.Dir(name)] = true
		}
	}
	return dirs
}

// exportedBy returns what a package exports: functions, methods, types, fields,
// variables and constants by name, each with its type as it is written, packages
// by their path and parameters without names.
func exportedBy(t *testing.T, files Files, dir string) map[string]string {
	t.Helper()
	api := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Dir(name) != dir || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, files[name].Data, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		qualify(t, file)
		for _, decl := range file.Decls {
			exportedDecl(api, decl)
		}
	}
	return api
}

// qualify replaces the names of imported packages by their paths.
func qualify(t *testing.T, file *ast.File) {
	t.Helper()
	paths := map[string]string{}
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		name := path.Base(imported)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		paths[name] = imported
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if selected, ok := n.(*ast.SelectorExpr); ok {
			if pkg, ok := selected.X.(*ast.Ident); ok && paths[pkg.Name] != "" {
				selected.X = ast.NewIdent(paths[pkg.Name])
			}
		}
		return true
	})
}

func exportedDecl(api map[string]string, decl ast.Decl) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		name, receiver := decl.Name.Name, ""
		if decl.Recv != nil {
			receiver = types.ExprString(decl.Recv.List[0].Type)
			name = "(" + receiver + ")." + name
		}
		if decl.Name.IsExported() && ast.IsExported(strings.TrimLeft(receiver+"X", "*")) {
			api[name] = form(decl.Type)
		}
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			exportedSpec(api, decl.Tok, spec)
		}
	}
}

func exportedSpec(api map[string]string, tok token.Token, spec ast.Spec) {
	switch spec := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			if name.IsExported() {
				api[name.Name] = fmt.Sprint(tok, " ", form(spec.Type))
			}
		}
	case *ast.TypeSpec:
		if !spec.Name.IsExported() {
			return
		}
		name := spec.Name.Name
		switch def := spec.Type.(type) {
		case *ast.StructType:
			api[name] = "type struct"
			exportedFields(api, name, def.Fields)
		case *ast.InterfaceType:
			api[name] = "type interface"
			exportedFields(api, name, def.Methods)
		default:
			alias := map[bool]string{true: "= "}[spec.Assign.IsValid()]
			api[name] = "type " + alias + form(spec.Type)
		}
	}
}

// exportedFields are the fields of a struct, or the methods of an interface: of
// that the unexported ones too, because they say who can implement it.
func exportedFields(api map[string]string, of string, fields *ast.FieldList) {
	for _, field := range fields.List {
		if len(field.Names) == 0 {
			api[of+"."+form(field.Type)] = "embedded"
		}
		for _, name := range field.Names {
			if _, method := field.Type.(*ast.FuncType); method || name.IsExported() {
				api[of+"."+name.Name] = form(field.Type)
			}
		}
	}
}

// form writes a type. Names of parameters are no part of it.
func form(expr ast.Expr) string {
	if expr == nil {
		return ""
	}
	if f, ok := expr.(*ast.FuncType); ok {
		return types.ExprString(&ast.FuncType{TypeParams: f.TypeParams, Params: nameless(f.Params), Results: nameless(f.Results)})
	}
	return types.ExprString(expr)
}

func nameless(fields *ast.FieldList) *ast.FieldList {
	if fields == nil {
		return nil
	}
	var list []*ast.Field
	for _, field := range fields.List {
		for range max(1, len(field.Names)) {
			list = append(list, &ast.Field{Type: field.Type})
		}
	}
	return &ast.FieldList{List: list}
}
