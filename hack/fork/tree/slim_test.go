// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper"
)

// What slim knows of upstream is true of every release.
func TestSlimOfEveryRelease(t *testing.T) {
	for _, version := range everyRelease(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			upstream := upstreamOf(t, version)
			made, err := Generate(version, upstream, freshmapper.Source)
			if err != nil {
				t.Fatal(err)
			}
			r := &Result{Version: version, Files: made, before: upstream.Digests()}
			r.slim()
			checkSlim(t, r.Files)
		})
	}
}

func checkSlim(t *testing.T, files Files) {
	t.Helper()
	used, folders := map[string]bool{}, map[string]bool{}
	for name := range files {
		folders[path.Dir(name)] = true
	}
	for name, file := range files {
		if path.Ext(name) != ".go" {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, file.Data, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if _, marked := files[path.Join(path.Dir(name), "zz_skip.go")]; hasKind(parsed) && !marked {
			t.Errorf("%s has what controller-gen takes for a type of an API", name)
		}
		for _, spec := range parsed.Imports {
			folder, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), Module+"/")
			if ours && !folders[folder] {
				t.Errorf("%s imports %s, which is not in the tree", name, folder)
			}
			used[folder] = used[folder] || folder != path.Dir(name)
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		if slices.Contains(strings.Split(folder, "/"), "internal") && !used[folder] {
			t.Errorf("nothing in the tree imports %s", folder)
		}
	}
}

// hasKind reports whether a file declares a struct with the metadata of both a
// type and an object in it.
func hasKind(file *ast.File) bool {
	found := false
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.StructType); ok {
			found = found || embeds(s, "TypeMeta") && embeds(s, "ObjectMeta")
		}
		return !found
	})
	return found
}

func embeds(s *ast.StructType, name string) bool {
	return slices.ContainsFunc(s.Fields.List, func(f *ast.Field) bool {
		selector, ok := f.Type.(*ast.SelectorExpr)
		return ok && len(f.Names) == 0 && selector.Sel.Name == name
	})
}
