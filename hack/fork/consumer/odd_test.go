// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"context"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// The search for other modules goes on behind another user's data. Root reads
// everything, so this is about the decision alone.
func TestUnreadableFolder(t *testing.T) {
	dir := t.TempDir()
	forktest.Write(t, dir, "folder/file", "")
	for name, want := range map[string]error{"folder": fs.SkipDir, "folder/file": nil} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := skipUnreadable(fs.FileInfoToDirEntry(info)); got != want { //nolint:errorlint // WalkDir compares, too
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if err := skipUnreadable(nil); err != nil {
		t.Errorf("where there is no entry: %v", err)
	}
}

// "go get" of a newer controller-runtime adds no sum of it while the fork is in.
func TestUndoAfterUpgrade(t *testing.T) {
	dir := forktest.Consumer(t)
	sums := forktest.Text(t, dir, "go.sum")
	forktest.Write(t, dir, "go.sum", strings.ReplaceAll(sums, tree.Module+" "+tree.Newest()+" ", tree.Module+" v0.25.0 "))
	forktest.Run(t, dir, "go", "mod", "edit", "-replace="+tree.Module+"=./"+place)
	if out := undo.must(t, dir, nil); !strings.Contains(out, "no sum of "+tree.Module+" "+tree.Newest()+", go mod tidy adds it") {
		t.Errorf("said\n%s", out)
	}
	forktest.Write(t, dir, "go.sum", sums)
	forktest.Clean(t, dir)
}

// go.mod may name a tree that -o wrote, wherever it is.
func TestCheckOfTreeElsewhere(t *testing.T) {
	for flags, full := range map[string]bool{"": false, " -full": true} {
		t.Run("-o"+flags, func(t *testing.T) {
			dir, elsewhere := forktest.Consumer(t), filepath.Join(t.TempDir(), "tree")
			err := tree.Create(context.Background(), tree.Request{
				Dir: elsewhere, Version: tree.Newest(), Ours: forktest.Ours(), Full: full, Out: io.Discard,
			})
			if err != nil {
				t.Fatal(err)
			}
			forktest.Run(t, dir, "go", "mod", "edit", "-replace="+tree.Module+"="+elsewhere)
			check.must(t, dir, nil)
			newer := with(forktest.Edited("apiutil/more.go", "package apiutil\n"))
			check.fails(t, dir, newer, "another mapper", "run fork -o "+elsewhere+" -version "+tree.Newest()+flags)
		})
	}
}

// A Makefile may install setup-envtest in the version of what replaces
// controller-runtime, as kubebuilder's does.
func TestMakefileThatAsksForTheReplacement(t *testing.T) {
	const makefile = `ENVTEST_VERSION ?= $(shell go list -m -f '{{if .Replace}}{{.Replace.Version}}{{else}}{{.Version}}{{end}}' sigs.k8s.io/controller-runtime)
show:
	@echo "$(ENVTEST_VERSION)"
`
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("no make")
	}
	dir := forked(t)
	forktest.Write(t, dir, "Makefile", makefile)
	if shown := forktest.Stdout(t, dir, "make", "show"); shown != "\n" {
		t.Fatalf("a folder has the version %q", shown)
	}
	out := into.must(t, dir, nil)
	at := strings.Index(out, "ENVTEST_VERSION ?=")
	if at < 0 {
		t.Fatalf("no word about the Makefile in\n%s", out)
	}
	line, _, _ := strings.Cut(out[at:], "\n")
	forktest.Write(t, dir, "Makefile", line+"\n"+makefile)
	supported, _ := tree.LineOf(tree.Newest())
	if shown, want := forktest.Stdout(t, dir, "make", "show"), strings.Replace(supported.Minor, "v", "release-", 1)+"\n"; shown != want {
		t.Errorf("setup-envtest of %q, want %q", shown, want)
	}
	if out := into.must(t, dir, nil); strings.Contains(out, "ENVTEST_VERSION") {
		t.Errorf("said again\n%s", out)
	}
}

// In a workspace the go command itself fails if a tree is missing, as where a
// .gitignore keeps it from others.
func TestCheckOfMissingTreeInWorkspace(t *testing.T) {
	dir := forked(t)
	forktest.Write(t, dir, "go.work", "go 1.26.0\n\nuse .\n")
	t.Setenv("GOWORK", filepath.Join(dir, "go.work"))
	if err := os.RemoveAll(filepath.Join(dir, "third_party")); err != nil {
		t.Fatal(err)
	}
	check.fails(t, dir, nil, "controller-runtime is missing: commit it", "run fork -into "+dir)
}

func TestLinkedThirdParty(t *testing.T) {
	dir, elsewhere := forktest.Consumer(t), t.TempDir()
	if err := os.Symlink(elsewhere, filepath.Join(dir, "third_party")); err != nil {
		t.Fatal(err)
	}
	into.must(t, dir, nil)
	check.must(t, dir, nil)
	undo.must(t, dir, nil)
	if left, err := os.ReadDir(filepath.Join(dir, "third_party")); err != nil || len(left) > 0 {
		t.Errorf("the link leads to %v, %v", left, err)
	}
}

// A link to nowhere is the user's, and stays.
func TestLinkedSums(t *testing.T) {
	dir := forktest.Consumer(t)
	name := filepath.Join(dir, goSum)
	err := os.Remove(name)
	if err == nil {
		err = os.Symlink("elsewhere.sum", name)
	}
	if err != nil {
		t.Fatal(err)
	}
	stays := func(after string) {
		t.Helper()
		if to, err := os.Readlink(name); err != nil || to != "elsewhere.sum" || tree.Exists(filepath.Join(dir, to)) {
			t.Errorf("after %s go.sum is a link to %q, %v", after, to, err)
		}
	}
	_, err = into.run(t, dir, with(forktest.Edited("internal/answer/answer.go", "package answer\n")))
	if err == nil || !strings.Contains(err.Error(), "is as it was") {
		t.Errorf("error: %v", err)
	}
	stays("a build that failed")
	into.must(t, dir, nil)
	undo.must(t, dir, nil)
	stays("an undo")
}

const editedSum = "zz.example/edited v1.0.0 h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"

// In GOFLAGS another file takes the place of go.mod, or go.work takes the tree for a module of
// the user's, as "go work use -r ." does.
func TestNothingIsDoneBehindOthersBack(t *testing.T) {
	dir := forked(t)
	forktest.Write(t, dir, "go.work", "go 1.26.0\n\nuse (\n\t.\n\t./third_party/controller-runtime\n)\n")
	for name, f := range map[string]fork{"into": into, "undo": undo, "check": check} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOFLAGS", "-modfile=other.mod")
			f.fails(t, dir, nil, "-modfile=other.mod", "go.mod")
			t.Setenv("GOFLAGS", "")
			t.Setenv("GOWORK", filepath.Join(dir, "go.work"))
			f.fails(t, dir, nil, "go.work", "go work edit -dropuse=./third_party/controller-runtime")
		})
	}
	t.Setenv("GOWORK", filepath.Join(dir, "go.work"))
	forktest.Run(t, dir, "go", "work", "edit", "-dropuse=./third_party/controller-runtime", "go.work")
	check.must(t, dir, nil)
	forktest.Write(t, dir, "go.work", "go 1.26.0\n\njunk\n")
	into.fails(t, dir, nil, "go.work", "unknown directive: junk")
}
