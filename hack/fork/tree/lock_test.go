// SPDX-License-Identifier: Apache-2.0

package tree_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

func TestLock(t *testing.T) {
	dir := t.TempDir()
	unlock, err := tree.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{dir, link} {
		if _, err := tree.Lock(name); err == nil || !strings.Contains(err.Error(), "another run is at work in "+name) {
			t.Errorf("a second run in %s: %v", name, err)
		}
	}
	other, err := tree.Lock(t.TempDir())
	if err != nil {
		t.Fatalf("a run in another folder: %v", err)
	}
	other()
	unlock()
	if unlock, err = tree.Lock(dir); err != nil {
		t.Fatalf("after the first run: %v", err)
	}
	unlock()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left in the folder: %v, %v", entries, err)
	}
}

func TestSlimTree(t *testing.T) {
	dir := created(t)
	for _, name := range []string{"examples", "hack", "designs", "Makefile", "pkg/webhook/conversion/testdata", "pkg/manager/manager_test.go", "pkg/client/client_suite_test.go",
		"pkg/client/client_follow_test.go", "pkg/client/apiutil/testdata", "pkg/client/apiutil/internal/fakeapi"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s is in the tree", name)
		}
	}
	for _, name := range []string{"go.mod", "go.sum", "LICENSE", "alias.go", "pkg/manager/manager.go", "pkg/client/fake/client.go", "pkg/client/client_follow.go"} {
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
