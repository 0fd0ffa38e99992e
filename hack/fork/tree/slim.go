// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
)

// Slim leaves out what no program compiles and what does not test the fork: all
// but Go packages, and the tests of those parts of pkg/ where nothing differs
// from upstream. What is left holds no types with markers, which controller-gen
// would find in a user's project: it walks every go.mod below it.
func (r *Result) Slim() error {
	parts := changedParts(r.Files, r.before)
	maps.DeleteFunc(r.Files, func(name string, _ File) bool {
		switch top, _, below := strings.Cut(name, "/"); {
		case isTest(name):
			return !parts[partOf(name)]
		case !below:
			return path.Ext(name) != ".go" && !slices.Contains([]string{"go.mod", "go.sum", "LICENSE"}, name)
		default:
			return top != "pkg"
		}
	})
	for dropped := -1; dropped != 0; {
		imports, err := r.imports()
		if err != nil {
			return err
		}
		dropped = r.dropStranded(imports) + r.dropUnused(imports)
	}
	if err := r.skipKinds(); err != nil {
		return err
	}
	r.Files[".gitattributes"] = File{Data: []byte(asWritten)}
	r.count()
	return nil
}

// asWritten keeps git from changing line ends, as it does on Windows: the tree
// would no longer be what the manifest says.
const asWritten = "* -text\n"

// skipFile keeps controller-gen from making a CustomResourceDefinition of a type.
// The marker stands by itself, so that it is not the package's documentation.
const skipFile = "// SPDX-License-Identifier: Apache-2.0\n\n// +kubebuilder:skip\n\npackage %s\n"

// skipKinds marks those packages that have types like those of an API, which
// controller-gen takes for the user's: controllertest, which others may import.
func (r *Result) skipKinds() error {
	packages := map[string]string{}
	for name, file := range r.Files {
		if path.Ext(name) != ".go" || isTest(name) {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, file.Data, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parse %s: %w", name, err)
		}
		if hasKind(parsed) {
			packages[path.Dir(name)] = parsed.Name.Name
		}
	}
	for folder, name := range packages {
		r.Files[path.Join(folder, "zz_skip.go")] = File{Data: []byte(fmt.Sprintf(skipFile, name))}
	}
	return nil
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

// imports are the folders of the tree that each Go file imports.
func (r *Result) imports() (map[string][]string, error) {
	imports := map[string][]string{}
	for name, file := range r.Files {
		if path.Ext(name) != ".go" {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, file.Data, parser.ImportsOnly)
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", name, err)
		}
		for _, spec := range parsed.Imports {
			if folder, ok := cutRoot(strings.Trim(spec.Path.Value, "\""), Module); ok && folder != "" {
				imports[name] = append(imports[name], folder)
			}
		}
	}
	return imports, nil
}

// dropStranded drops upstream's tests of those packages whose tests import what
// is not in the tree, pkg/client's for one: all, because a suite is one thing.
func (r *Result) dropStranded(imports map[string][]string) int {
	folders := r.folders()
	stranded := map[string]bool{}
	for name, imported := range imports {
		absent := slices.ContainsFunc(imported, func(folder string) bool { return !folders[folder] })
		if absent && isTest(name) {
			stranded[path.Dir(name)] = true
		}
	}
	return r.drop(func(name string) bool { return strings.HasSuffix(name, "_test.go") && stranded[path.Dir(name)] })
}

// dropUnused drops upstream's internal packages that nothing in the tree imports:
// what only tests need which are not in it, types with markers among them.
func (r *Result) dropUnused(imports map[string][]string) int {
	used := map[string]bool{}
	for name, imported := range imports {
		for _, folder := range imported {
			used[folder] = used[folder] || folder != path.Dir(name)
		}
	}
	return r.drop(func(name string) bool {
		return !used[path.Dir(name)] && slices.Contains(strings.Split(name, "/"), "internal")
	})
}

func (r *Result) folders() map[string]bool {
	folders := map[string]bool{}
	for name := range r.Files {
		folders[path.Dir(name)] = true
	}
	return folders
}

// drop drops the unwanted files that are as upstream has them, and returns how many
// they were.
func (r *Result) drop(unwanted func(name string) bool) int {
	before := len(r.Files)
	maps.DeleteFunc(r.Files, func(name string, file File) bool {
		return r.before[name] == Digest(file.Data) && unwanted(name)
	})
	return before - len(r.Files)
}

// changedParts are those folders of pkg/ that have a file which upstream has not.
func changedParts(files Files, before map[string]string) map[string]bool {
	parts := map[string]bool{}
	for name, file := range files {
		if before[name] != Digest(file.Data) {
			parts[partOf(name)] = true
		}
	}
	return parts
}

// partOf is "pkg/client" for all that is below it. What is shared by several,
// pkg/internal, is divided one level deeper.
func partOf(name string) string {
	words, depth := strings.Split(name, "/"), 2
	if len(words) > 1 && words[1] == "internal" {
		depth = 3
	}
	return strings.Join(words[:min(depth, len(words))], "/")
}

// isTest reports whether a file is compiled or read by tests only.
func isTest(name string) bool {
	return strings.HasSuffix(name, "_test.go") || slices.Contains(strings.Split(name, "/"), "testdata")
}
