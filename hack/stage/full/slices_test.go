// SPDX-License-Identifier: Apache-2.0

package full

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
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

// No file uses a name that only a later slice declares. TestEachSlicePasses in
// hack/stage would find more, and takes minutes.
func TestNamesAreDeclaredBefore(t *testing.T) {
	upstream := stock(t)
	forked, err := tree.Generate(tree.Newest(), upstream, freshmapper.Source)
	if err != nil {
		t.Fatal(err)
	}
	number := map[string]int{} // of the slice that has a file
	all, _ := parse(table)
	for i, s := range all {
		for _, name := range s.files {
			if number[name] == 0 { // a later slice may change the file
				number[name] = i + 1
			}
		}
	}
	parsed, declared := map[string]*ast.File{}, map[string]string{}
	for name, file := range forked {
		if !strings.HasSuffix(name, ".go") {
			continue
		}
		if parsed[name], err = parser.ParseFile(token.NewFileSet(), name, file.Data, 0); err != nil {
			t.Fatal(err)
		}
		for declares := range parsed[name].Scope.Objects {
			declared[path.Dir(name)+" "+parsed[name].Name.Name+" "+declares] = name
		}
	}
	for name, file := range parsed {
		for _, used := range file.Unresolved {
			other := declared[path.Dir(name)+" "+file.Name.Name+" "+used.Name]
			if _, upstreams := upstream[other]; number[other] > number[name] && !upstreams {
				t.Errorf("%s, in slice %d, uses %s, which is in %s, in slice %d", name, number[name], used.Name, other, number[other])
			}
		}
	}
}
