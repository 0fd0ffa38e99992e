// SPDX-License-Identifier: Apache-2.0

package tree_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
		_, err := tree.Lock(name)
		if err == nil || !strings.Contains(err.Error(), "another run is at work in "+name+" since "+time.Now().Format("2006-")) {
			t.Errorf("a second run in %s: %v", name, err)
		}
	}
	other, err := tree.Lock(t.TempDir())
	if err != nil {
		t.Errorf("a run in another folder: %v", err)
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

// A run that ends within a moment is waited for.
func TestLockOfARunThatEnds(t *testing.T) {
	dir := t.TempDir()
	unlock, err := tree.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(100*time.Millisecond, unlock)
	if unlock, err = tree.Lock(dir); err != nil {
		t.Fatal(err)
	}
	unlock()
}

// Many runs that begin and end at once: never two hold the lock.
func TestLockAmongMany(t *testing.T) {
	dir := t.TempDir()
	var holders, held atomic.Int32
	var runs sync.WaitGroup
	for range 8 {
		runs.Add(1)
		go func() {
			defer runs.Done()
			for range 200 {
				unlock, err := tree.Lock(dir)
				if err != nil {
					continue
				}
				if holders.Add(1) > 1 {
					t.Error("two runs hold the lock")
				}
				held.Add(1)
				holders.Add(-1)
				unlock()
			}
		}()
	}
	runs.Wait()
	if held.Load() == 0 {
		t.Error("no run got the lock")
	}
}

func TestCreateAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tree")
	unlock, err := tree.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	_, err = create(t, dir, func(r *tree.Request) { r.Out = io.Discard })
	if err == nil || !strings.Contains(err.Error(), "another run is at work in "+dir) {
		t.Errorf("error: %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("it wrote all the same")
	}
}

func TestSlim(t *testing.T) {
	dir := created(t)
	for _, name := range []string{"examples", "hack", "designs", "Makefile", "pkg/webhook/conversion/testdata", "pkg/manager/manager_test.go", "pkg/client/client_suite_test.go"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s is in the tree", name)
		}
	}
	for _, name := range []string{"go.mod", "go.sum", "LICENSE", "alias.go", "pkg/manager/manager.go", "pkg/client/fake/client_test.go", "pkg/client/client_follow_test.go",
		"pkg/client/apiutil/restmapper_test.go", "pkg/client/apiutil/testdata/crd.yaml"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	forktest.Run(t, dir, "go", "build", "./...")

	out, err := create(t, dir, func(r *tree.Request) { r.Full = true })
	if err != nil || !strings.Contains(out, "done: ") {
		t.Errorf("full: %v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "examples")); err != nil {
		t.Errorf("full: %v", err)
	}
}

// The tests that a slim tree keeps compile, too.
func TestSlimIsVetted(t *testing.T) {
	forktest.Run(t, created(t), "go", "vet", "./...")
}

// A run of another user that was killed has left a file that this user can't open.
func TestLockThatCannotBeOpened(t *testing.T) {
	temp, dir := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temp)
	unlock, err := tree.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(temp, "*"))
	unlock()
	if err != nil || len(names) != 1 {
		t.Fatalf("locks %v, %v", names, err)
	}
	if err := os.Mkdir(names[0], 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Lock(dir); err == nil || !strings.Contains(err.Error(), names[0]) || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("error: %v", err)
	}
}
