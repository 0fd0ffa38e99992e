// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/printer"
	"go/token"
	"go/types"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper"
)

// The tool takes every release of a line, not only the newest. Upstream changes
// files within a line: it changed the namespaced client between v0.22.0 and
// v0.22.4.
func TestEveryRelease(t *testing.T) {
	for _, line := range Lines {
		newest, err := strconv.Atoi(strings.TrimPrefix(line.Newest, line.Minor+"."))
		if err != nil {
			t.Fatal(err)
		}
		for patch := range newest + 1 {
			version := fmt.Sprintf("%s.%d", line.Minor, patch)
			t.Run(version, func(t *testing.T) {
				t.Parallel()
				upstream := upstreamOf(t, version)
				made, err := Generate(version, upstream, freshmapper.Source)
				if err != nil {
					t.Fatal(err)
				}
				isFormatted(t, upstream, made)
				keepsLines(t, upstream, made)
				fitsTogether(t, upstream, made)
				sameAPI(t, upstream, made)
				made.slim()
				slimIsWhole(t, made)
			})
		}
	}
}

// The checks find the faults that they are for.
func TestProblems(t *testing.T) {
	files := Files{"p/a.go": []byte(`package p

import (
	"example.com/unknown"
	"fmt"
)

func f() int {
	left := 1
	return absent + unknown.Value
}
`)}
	got := strings.Join(problems(t, files, "p"), "\n")
	for _, want := range []string{"undefined: absent", "declared and not used: left", `"fmt" imported and not used`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "unknown.Value") {
		t.Errorf("what is imported is not looked at, but:\n%s", got)
	}
	const form = "func (e *ErrResourceDiscoveryFailed) Unwrap() []error" // of a receiver the name stays
	if got := exported(t, upstreamOf(t, Newest()), apiutilDir)["*ErrResourceDiscoveryFailed.Unwrap()"]; got != form {
		t.Errorf("a method is %q, want %q", got, form)
	}
}

// isFormatted checks that what the tool adds is as gofmt has it.
func isFormatted(t *testing.T, upstream, made Files) {
	t.Helper()
	for name, file := range made {
		if _, stock := upstream[name]; stock || path.Ext(name) != ".go" {
			continue
		}
		if formatted, err := format.Source(file); err != nil || !bytes.Equal(formatted, file) {
			t.Errorf("%s is not as gofmt has it: %v", name, err)
		}
	}
}

// fitsTogether checks the packages of upstream's that a made tree has changed, or added to.
func fitsTogether(t *testing.T, upstream, made Files) {
	t.Helper()
	theirs, changed := packages(upstream), map[string]bool{}
	for name, file := range made {
		if dir := path.Dir(name); theirs[dir] && strings.HasSuffix(name, ".go") && string(upstream[name]) != string(file) {
			changed[dir] = true
		}
	}
	for dir := range changed {
		for _, problem := range problems(t, made, dir) {
			t.Error(problem)
		}
	}
}

// packages are the folders that hold packages.
func packages(files Files) map[string]bool {
	dirs := map[string]bool{}
	for name := range files {
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && !strings.Contains(name, "testdata/") {
			dirs[path.Dir(name)] = true
		}
	}
	return dirs
}

// parsed are the files of a package, tests left out.
func parsed(t *testing.T, fset *token.FileSet, files Files, dir string) (all []*ast.File) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Dir(name) != dir || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, files[name], parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, file)
	}
	return all
}

// seen matches the faults that a type check finds without the imported packages.
var seen = regexp.MustCompile(`undefined: [\w]+$|declared and not used|imported and not used|redeclared|already declared|missing return`)

// problems checks the types of the package in a folder.
func problems(t *testing.T, files Files, dir string) (found []string) {
	t.Helper()
	fset := token.NewFileSet()
	config := types.Config{
		Importer: empty{},
		Error: func(err error) {
			if seen.MatchString(err.Error()) {
				found = append(found, fmt.Sprint(err))
			}
		},
	}
	_, _ = config.Check(dir, fset, parsed(t, fset, files, dir), nil) // Error has them
	return found
}

// empty imports packages as empty ones: the check is not about what they hold.
type empty struct{}

func (empty) Import(name string) (*types.Package, error) {
	base := path.Base(name)
	if regexp.MustCompile(`^v[0-9]+$`).MatchString(base) {
		base = path.Base(path.Dir(name))
	}
	p := types.NewPackage(name, base)
	p.MarkComplete()
	return p, nil
}

// sameAPI checks that each package of a made tree exports what upstream's does, in the
// same form; pkg/client/apiutil exports ours besides, and nothing else.
func sameAPI(t *testing.T, upstream, made Files) {
	t.Helper()
	dirs := packages(upstream)
	maps.Copy(dirs, packages(made))
	for dir := range dirs {
		if strings.Contains(dir+"/", "/internal/") {
			continue // nobody else's to use
		}
		want, got := exported(t, upstream, dir), exported(t, made, dir)
		if dir == apiutilDir {
			ours, err := Read(freshmapper.Source)
			if err != nil {
				t.Fatal(err)
			}
			all := exported(t, ours, "apiutil")
			maps.Copy(all, want) // of a name that we have, too, upstream's form counts
			want = all
		}
		for name, form := range want {
			if got[name] != form {
				t.Errorf("%s: %s was %q, is %q", dir, name, form, got[name])
			}
			delete(got, name)
		}
		for name := range got {
			t.Errorf("%s: %s is new", dir, name)
		}
	}
}

// exported returns what a package exports, by name: declarations as they are written, without
// bodies and comments.
func exported(t *testing.T, files Files, dir string) map[string]string {
	t.Helper()
	fset, api := token.NewFileSet(), map[string]string{}
	add := func(name, what string, node any) {
		var text strings.Builder
		if err := printer.Fprint(&text, fset, node); err != nil {
			t.Fatal(err)
		}
		api[name] = what + strings.Join(strings.Fields(text.String()), " ")
	}
	for _, file := range parsed(t, fset, files, dir) {
		ast.FileExports(file)
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				decl.Body = nil
				unname(decl.Type.Params)
				unname(decl.Type.Results)
				name := decl.Name.Name
				if decl.Recv != nil {
					receiver := types.ExprString(decl.Recv.List[0].Type)
					if !ast.IsExported(strings.TrimLeft(receiver, "*")) {
						continue
					}
					name = receiver + "." + name + "()"
				}
				add(name, "", decl)
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						add(spec.Name.Name, "type ", spec)
					case *ast.ValueSpec:
						add(fmt.Sprint(spec.Names), decl.Tok.String()+" ", spec)
					}
				}
			}
		}
	}
	return api
}

// unname takes the names from parameters: they are no part of a signature.
func unname(list *ast.FieldList) {
	if list == nil {
		return
	}
	var fields []*ast.Field
	for _, field := range list.List {
		for range max(len(field.Names), 1) {
			fields = append(fields, &ast.Field{Type: field.Type})
		}
	}
	list.List = fields
}

// slimIsWhole checks that what slim knows of upstream is true.
func slimIsWhole(t *testing.T, files Files) {
	t.Helper()
	used, folders := map[string]bool{}, map[string]bool{}
	for name := range files {
		folders[path.Dir(name)] = true
	}
	for dir := range folders {
		for _, file := range parsed(t, token.NewFileSet(), files, dir) {
			if _, marked := files[path.Join(dir, "zz_skip.go")]; hasKind(file) && !marked {
				t.Errorf("%s has what controller-gen takes for a type of an API", dir)
			}
			for _, spec := range file.Imports {
				folder, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), Module+"/")
				if ours && !folders[folder] {
					t.Errorf("%s imports %s, which is not in the tree", dir, folder)
				}
				used[folder] = used[folder] || folder != dir
			}
		}
	}
	for folder := range folders {
		if slices.Contains(strings.Split(folder, "/"), "internal") && !used[folder] {
			t.Errorf("nothing in the tree imports %s", folder)
		}
	}
}

// hasKind reports whether a file declares a struct with the metadata of both a
// type and an object in it.
func hasKind(file *ast.File) (found bool) {
	ast.Inspect(file, func(n ast.Node) bool {
		embeds := map[string]bool{}
		if s, ok := n.(*ast.StructType); ok {
			for _, field := range s.Fields.List {
				if selector, ok := field.Type.(*ast.SelectorExpr); ok && len(field.Names) == 0 {
					embeds[selector.Sel.Name] = true
				}
			}
		}
		found = found || embeds["TypeMeta"] && embeds["ObjectMeta"]
		return !found
	})
	return found
}
