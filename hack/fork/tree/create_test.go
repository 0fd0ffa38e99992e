// SPDX-License-Identifier: Apache-2.0

package tree_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// create asks for a tree in dir and returns what was printed.
func create(t *testing.T, dir string, edit func(*tree.Request)) (string, error) {
	t.Helper()
	var out bytes.Buffer
	r := tree.Request{Dir: dir, Version: tree.Newest(), Ours: forktest.Ours(), Out: &out}
	if edit != nil {
		edit(&r)
	}
	err := tree.Create(context.Background(), r)
	return out.String(), err
}

func created(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "deep", "tree")
	if out, err := create(t, dir, nil); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

func force(r *tree.Request) { r.Force = true }

func TestCreate(t *testing.T) {
	dir := created(t)
	first := forktest.Snapshot(t, dir)
	out, err := create(t, dir, nil)
	if err != nil || !strings.Contains(out, "nothing to do") {
		t.Errorf("again: %v\n%s", err, out)
	}
	forktest.Same(t, first, forktest.Snapshot(t, dir))
	if beside, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(beside) != 1 {
		t.Errorf("left beside the tree: %v, %v", beside, err)
	}
	empty := t.TempDir()
	if _, err := create(t, empty, nil); err != nil {
		t.Errorf("into an empty folder: %v", err)
	}
	forktest.Same(t, first, forktest.Snapshot(t, empty))
	_, err = create(t, dir, func(r *tree.Request) { r.Ours = forktest.Edited("apiutil/more.go", "package apiutil\n") })
	if err != nil || forktest.Text(t, dir, "pkg/client/apiutil/more.go") != "package apiutil\n" {
		t.Errorf("with newer sources: %v", err)
	}
}

func TestCreateRefuses(t *testing.T) {
	tests := map[string]struct {
		spoil func(t *testing.T, dir string)
		edit  func(*tree.Request)
		want  string
	}{
		"unsupported":  {nil, func(r *tree.Request) { r.Version = "v0.19.0" }, "v0.19.0 is not supported"},
		"not released": {nil, func(r *tree.Request) { r.Version = "v0.25.9999" }, "v0.25.9999"},
		"not ours":     {unsign, force, "not empty"},
		"a consumer's": {func(t *testing.T, dir string) { edit(t, dir, `"files": {`, `"saved": {"go.mod": {}}, "files": {`) }, force, "-into"},
		"newer":        {func(t *testing.T, dir string) { edit(t, dir, `"format": 1`, `"format": 99`) }, force, "format 99"},
		"edited":       {func(t *testing.T, dir string) { forktest.Write(t, dir, "alias.go", "") }, nil, "changed alias.go"},
		"below a file": {nil, func(r *tree.Request) { r.Dir += "/alias.go/x" }, "/alias.go/x: not a directory"},
	}
	dir := created(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			mine := filepath.Join(t.TempDir(), "deep", "tree")
			if err := os.CopyFS(mine, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			if test.spoil != nil {
				test.spoil(t, mine)
			}
			before := forktest.Snapshot(t, filepath.Dir(mine))
			_, err := create(t, mine, test.edit)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error: %v", err)
			}
			forktest.Same(t, before, forktest.Snapshot(t, filepath.Dir(mine)))
		})
	}
}

// unsign removes the manifest: what is left is anybody's.
func unsign(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, tree.Meta)); err != nil {
		t.Fatal(err)
	}
}

func edit(t *testing.T, dir, old, new string) {
	t.Helper()
	name := tree.Meta + "/manifest.json"
	forktest.Write(t, dir, name, strings.Replace(forktest.Text(t, dir, name), old, new, 1))
}

func TestCreateForce(t *testing.T) {
	dir := created(t)
	first := forktest.Snapshot(t, filepath.Dir(dir))
	forktest.Write(t, dir, "alias.go", "")
	forktest.Write(t, dir, "../.tree.freshmapper-tmp/x", "")
	if _, err := create(t, dir, force); err != nil {
		t.Fatal(err)
	}
	forktest.Same(t, first, forktest.Snapshot(t, filepath.Dir(dir)))
}

func TestSlimTree(t *testing.T) {
	dir := created(t)
	for _, name := range []string{"examples", "hack", "designs", "Makefile", "pkg/webhook/conversion/testdata", "pkg/manager/manager_test.go", "pkg/client/client_suite_test.go",
		"pkg/client/following_other_test.go", "pkg/client/apiutil/testdata", "pkg/client/apiutil/internal/fakeapi"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s is in the tree", name)
		}
	}
	for _, name := range []string{"go.mod", "go.sum", "LICENSE", "alias.go", "pkg/manager/manager.go", "pkg/client/fake/client.go", "pkg/client/following.go"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	forktest.Run(t, dir, "go", "vet", "./...")

	out, err := create(t, dir, func(r *tree.Request) { r.Full = true })
	if err != nil || !strings.Contains(out, "done: ") {
		t.Errorf("full: %v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "examples")); err != nil {
		t.Errorf("full: %v", err)
	}
}
