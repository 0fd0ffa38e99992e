// SPDX-License-Identifier: Apache-2.0

package full

import (
	"bytes"
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// The table names only files that exist.
func TestTable(t *testing.T) {
	upstream := stock(t)
	steps, err := tree.Steps(tree.Newest(), upstream, freshmapper.Source)
	if err != nil {
		t.Fatal(err)
	}
	forked := steps[len(steps)-1].Files
	all, parts := parse(table)
	for _, s := range all {
		for _, name := range s.files {
			_, ours := forked[name]
			_, theirs := upstream[name]
			if !ours && !theirs {
				t.Errorf("slice %d of %s has %s, which is neither upstream's nor ours", s.part, s.purpose, name)
			}
		}
	}
	for _, step := range steps[1:] {
		if parts[step.Patch] == 0 {
			t.Errorf("no slice is called %s, like a patch of hack/fork", step.Patch)
		}
	}
}

// A file that no slice has is an error that names it.
func TestFileInNoSlice(t *testing.T) {
	const name = "pkg/client/apiutil/internal/snapshot/doc.go"
	whole := table
	t.Cleanup(func() { table = whole })
	table = strings.Replace(table, name+"\n", "", 1)
	_, err := Changes(tree.Newest(), stock(t), freshmapper.Source)
	if err == nil || !strings.Contains(err.Error(), "makes of "+name+": write") {
		t.Errorf("error: %v", err)
	}
}

func stock(t *testing.T) tree.Files {
	t.Helper()
	files, err := tree.Upstream(context.Background(), tree.Newest(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// use is the use of a name that files of the same package declare.
type use struct {
	name, by string
	declared []string // files
}

// uses lists them for a tree.
func uses(t *testing.T, files tree.Files) []use {
	t.Helper()
	parsed, declared := map[string]*ast.File{}, map[string][]string{}
	key := func(file, name string) string { return path.Dir(file) + " " + parsed[file].Name.Name + " " + name }
	for name, file := range files {
		if !strings.HasSuffix(name, ".go") {
			continue
		}
		var err error
		if parsed[name], err = parser.ParseFile(token.NewFileSet(), name, file.Data, 0); err != nil {
			t.Fatal(err)
		}
		for declares := range parsed[name].Scope.Objects {
			declared[key(name, declares)] = append(declared[key(name, declares)], name)
		}
	}
	var all []use
	for name, file := range parsed {
		for _, used := range file.Unresolved {
			if in := declared[key(name, used.Name)]; len(in) > 0 {
				all = append(all, use{used.Name, name, in})
			}
		}
	}
	return all
}

// No file uses a name that only a later slice declares. TestEachSlicePasses in
// hack/stage would find more, and takes minutes.
func TestNamesAreDeclaredBefore(t *testing.T) {
	upstream := stock(t)
	number := map[string]int{} // of the slice that has a file
	all, _ := parse(table)
	for i, s := range all {
		for _, name := range s.files {
			if number[name] == 0 { // a later slice may change the file
				number[name] = i + 1
			}
		}
	}
	for _, u := range uses(t, forked(t, upstream)) {
		before := func(file string) bool {
			_, upstreams := upstream[file]
			return upstreams || number[file] <= number[u.by]
		}
		if !slices.ContainsFunc(u.declared, before) {
			t.Errorf("%s, in slice %d, uses %s of %s, in slice %d", u.by, number[u.by], u.name, u.declared, number[u.declared[0]])
		}
	}
}

// No file that the oldest Go compiles uses a name that only a newer Go sees declared.
// TestOldestGo in hack/ways would find more, and takes minutes.
func TestNamesAreDeclaredForOldGo(t *testing.T) {
	files := forked(t, stock(t))
	newer := func(file string) bool { return bytes.Contains(files[file].Data, []byte("\n//go:build go1.")) }
	for _, u := range uses(t, files) {
		if !newer(u.by) && !slices.ContainsFunc(u.declared, func(file string) bool { return !newer(file) }) {
			t.Errorf("%s uses %s of %s, which have a //go:build that it has not", u.by, u.name, u.declared)
		}
	}
}

func forked(t *testing.T, upstream tree.Files) tree.Files {
	t.Helper()
	files, err := tree.Generate(tree.Newest(), upstream, freshmapper.Source)
	if err != nil {
		t.Fatal(err)
	}
	return files
}
