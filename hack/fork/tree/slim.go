// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"fmt"
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
	if err := r.dropStranded(); err != nil {
		return err
	}
	r.count()
	return nil
}

// dropStranded drops upstream's tests of those packages whose tests import what
// is not in the tree, pkg/client's for one: all, because a suite is one thing.
func (r *Result) dropStranded() error {
	folders := map[string]bool{}
	for name := range r.Files {
		folders[path.Dir(name)] = true
	}
	stranded := map[string]bool{}
	for name, file := range r.Files {
		if !strings.HasSuffix(name, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, file.Data, parser.ImportsOnly)
		if err != nil {
			return fmt.Errorf("parse %s: %w", name, err)
		}
		for _, spec := range parsed.Imports {
			rest, below := cutRoot(strings.Trim(spec.Path.Value, "\""), Module)
			stranded[path.Dir(name)] = stranded[path.Dir(name)] || below && rest != "" && !folders[rest]
		}
	}
	maps.DeleteFunc(r.Files, func(name string, file File) bool {
		return strings.HasSuffix(name, "_test.go") && stranded[path.Dir(name)] && r.before[name] == Digest(file.Data)
	})
	return nil
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
