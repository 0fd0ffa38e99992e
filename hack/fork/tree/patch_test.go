// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/freshmapper/freshmapper"
)

// The tool takes every release of a line, not only the newest. Upstream changes files within a line: it changed the
// namespaced client between v0.22.0 and v0.22.4.
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
				keepsTheRest(t, upstream, made)
				fitsTogether(t, made)
				sameAPI(t, upstream, made)
				made.slim()
				slimIsWhole(t, made)
				delete(made, "pkg/client/following.go")
				if found := problems(t, made, "pkg/client"); len(found) == 0 {
					t.Error("the check of types does not notice that a file is missing")
				}
			})
		}
	}
}

// upstreamOf reads a release from the module cache.
func upstreamOf(t *testing.T, version string) Files {
	t.Helper()
	files, err := Upstream(context.Background(), version, nil)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// keepsTheRest checks that all upstream files are there byte for byte, except for the
// mapper's, and except for one line for each of the edits, below a notice that the file was changed.
func keepsTheRest(t *testing.T, upstream, made Files) {
	t.Helper()
	lines, noticed := 0, 0
	for name, file := range upstream {
		if dir, base := path.Split(name); dir == apiutilDir+"/" && slices.Contains(mapperFiles, base) {
			continue
		}
		rest, hasNotice := bytes.CutPrefix(made[name], []byte(changed))
		if edited := slices.ContainsFunc(edits, func(e edit) bool { return e.file == name }); hasNotice != edited {
			t.Errorf("%s is edited: %v, and says that it was changed: %v", name, edited, hasNotice)
		}
		if hasNotice {
			noticed++
		}
		was, is := bytes.Split(file, []byte("\n")), bytes.Split(rest, []byte("\n"))
		if len(was) != len(is) {
			t.Errorf("%s had %d lines and has %d: only those of the edits may change", name, len(was), len(is))
			continue
		}
		for i := range was {
			if !bytes.Equal(was[i], is[i]) {
				lines++
			}
		}
	}
	if lines != len(edits) || noticed == 0 {
		t.Errorf("%d upstream lines are changed, want %d, one for each of the edits", lines, len(edits))
	}
}

// fitsTogether checks the types of the upstream packages to which files are added.
func fitsTogether(t *testing.T, made Files) {
	t.Helper()
	for _, dir := range []string{
		apiutilDir, apiutilDir + "/discoverycache", apiutilDir + "/fleet", apiutilDir + "/served", "pkg/cache", "pkg/client", "pkg/handler", "pkg/metrics",
	} {
		for _, problem := range problems(t, made, dir) {
			t.Error(problem)
		}
	}
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

// sameAPI checks that a made tree exports the names that upstream's does; pkg/client/apiutil exports ours besides, and
// nothing else. Other forms of them are an error of the compiler: upstream's other files and tests are as they were.
func sameAPI(t *testing.T, upstream, made Files) {
	t.Helper()
	ours, err := Read(freshmapper.Source)
	if err != nil {
		t.Fatal(err)
	}
	moved := Files{}
	for name, file := range ours {
		if strings.HasPrefix(name, "apiutil/") {
			moved[path.Join(apiutilDir, strings.TrimPrefix(name, "apiutil/"))] = file
		}
	}
	want := exported(t, moved)
	maps.Copy(want, exported(t, upstream))
	if diff := cmp.Diff(want, exported(t, made)); diff != "" {
		t.Errorf("the tree exports something else than upstream and, in %s, we (-want +got):\n%s", apiutilDir, diff)
	}
}

// exported returns the names that the packages export which others may import.
func exported(t *testing.T, files Files) map[string]bool {
	t.Helper()
	api, dirs := map[string]bool{}, map[string]bool{}
	for name := range files {
		if dir := path.Dir(name); path.Ext(name) == ".go" && !strings.Contains("/"+dir+"/", "/internal/") && !strings.Contains(dir, "testdata") {
			dirs[dir] = true
		}
	}
	for dir := range dirs {
		for _, file := range parsed(t, token.NewFileSet(), files, dir) {
			ast.FileExports(file)
			for _, decl := range file.Decls {
				switch decl := decl.(type) {
				case *ast.FuncDecl:
					receiver := ""
					if decl.Recv != nil {
						receiver = strings.TrimLeft(types.ExprString(decl.Recv.List[0].Type), "*")
					}
					if receiver == "" || ast.IsExported(receiver) {
						api[dir+": "+receiver+"."+decl.Name.Name] = true
					}
				case *ast.GenDecl:
					for _, spec := range decl.Specs {
						switch spec := spec.(type) {
						case *ast.TypeSpec:
							api[dir+": "+spec.Name.Name] = true
						case *ast.ValueSpec:
							api[fmt.Sprint(dir, ": ", spec.Names)] = true
						}
					}
				}
			}
		}
	}
	return api
}

// slimIsWhole checks that what slim knows of upstream is true.
func slimIsWhole(t *testing.T, files Files) {
	t.Helper()
	used, folders := map[string]bool{}, map[string]bool{}
	for name := range files {
		folders[path.Dir(name)] = true
	}
	for name, file := range files {
		if _, marked := files[path.Join(path.Dir(name), "zz_skip.go")]; kind.Match(file) && !marked {
			t.Errorf("%s has what controller-gen takes for a type of an API", name)
		}
	}
	for dir := range folders {
		for _, file := range parsed(t, token.NewFileSet(), files, dir) {
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

// kind matches a struct with the metadata of both a type and an object in it.
var kind = regexp.MustCompile(`\n\s+(metav1\.)?TypeMeta\b[^\n]*\n\s+(metav1\.)?ObjectMeta\b`)

// What is not as the tool expects it, in upstream's files or in ours, is an error that names it.
func TestGenerateRefuses(t *testing.T) {
	addOurs := func(name, text string) func(Files, fstest.MapFS) {
		return func(_ Files, ours fstest.MapFS) { ours[name] = &fstest.MapFile{Data: []byte(text)} }
	}
	upstream, client := upstreamOf(t, Newest()), edits[0]
	tests := map[string]struct {
		version string // default: the newest
		spoil   func(upstream Files, ours fstest.MapFS)
		want    []string // all in the error
	}{
		"unknown line":     {version: "v0.19.0", want: []string{"v0.19.0 is not supported", "v0.20", "v0.25"}},
		"next line":        {version: "v0.250.1", want: []string{"not supported"}},
		"pre-release":      {version: "v0.25.0-beta.0", want: []string{"not supported"}},
		"no version":       {version: "0.25.2", want: []string{"not supported"}},
		"overwrite":        {spoil: addOurs("apiutil/apimachinery.go", "package apiutil\n"), want: []string{"overwrite", "pkg/client/apiutil/apimachinery.go"}},
		"overwrite data":   {spoil: addOurs("apiutil/testdata/crd.yaml", ""), want: []string{"overwrite", "testdata/crd.yaml"}},
		"metrics taken":    {spoil: func(f Files, _ fstest.MapFS) { f["pkg/metrics/restmapper.go"] = nil }, want: []string{"overwrite", "pkg/metrics/restmapper.go"}},
		"no upstream file": {spoil: func(f Files, _ fstest.MapFS) { delete(f, "pkg/client/apiutil/errors.go") }, want: []string{"upstream has no pkg/client/apiutil/errors.go"}},
		"no client":        {spoil: func(f Files, _ fstest.MapFS) { delete(f, client.file) }, want: []string{"upstream has no pkg/client/client.go"}},
		"other client": {spoil: func(f Files, _ fstest.MapFS) { f[client.file] = []byte("package client\n") },
			want: []string{"upstream's pkg/client/client.go", "func New(config", "0 times, and not once", "patch " + Module}},
		"client twice": {spoil: func(f Files, _ fstest.MapFS) { f[client.file] = append(bytes.Clone(f[client.file]), client.old...) },
			want: []string{"upstream's pkg/client/client.go", "func New(config", "2 times, and not once"}},
		"foreign import": {spoil: addOurs("internal/x/x.go", "package x\n\nimport _ \"github.com/freshmapper/freshmapper/hack/fork/tree\"\n"),
			want: []string{"internal/x/x.go", "only apiutil and internal"}},
		"root import": {spoil: addOurs("apiutil/x_test.go", "package apiutil\n\nimport _ \"github.com/freshmapper/freshmapper\"\n"),
			want: []string{"apiutil/x_test.go", "only apiutil and internal"}},
		"no place": {spoil: addOurs("fresh.txt", "-- clients.go --\npackage fresh\n"), want: []string{"fresh/clients.go", "client", "cache"}},
		"unknown to older lines": {version: "v0.20.4", spoil: addOurs("fresh.txt", "-- client_requests.go --\n\npackage fresh\n"),
			want: []string{"fresh/client_requests.go", "Apply(", "not once"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			files := maps.Clone(upstream)
			ours := fstest.MapFS{"apiutil/restmapper.go": {Data: []byte("package apiutil\n")}}
			if test.spoil != nil {
				test.spoil(files, ours)
			}
			if test.version == "" {
				test.version = Newest()
			}
			_, err := Generate(test.version, files, ours)
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("want an error that says %q, got %v", want, err)
				}
			}
		})
	}
}

// Imports lead into the tree, sorted as gofmt has them. A comment stays, and so does test data.
func TestLocalize(t *testing.T) {
	const head = "// Package x is in github.com/freshmapper/freshmapper/internal/x.\npackage x\n\nimport (\n"
	const src = head + "\tsnap \"github.com/freshmapper/freshmapper/internal/snapshot\"\n\t\"k8s.io/client-go/rest\" // stays\n)\n"
	const want = head + "\t\"k8s.io/client-go/rest\" // stays\n\tsnap \"sigs.k8s.io/controller-runtime/pkg/client/apiutil/internal/snapshot\"\n)\n"
	for name, want := range map[string]string{"internal/x/x.go": want, "apiutil/testdata/x.go": src, "apiutil/x.txt": src} {
		if got, err := localize(name, []byte(src)); err != nil || string(got) != want {
			t.Errorf("%s: error %v, and it is now\n%s\nwant\n%s", name, err, got, want)
		}
	}
}
