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

// A replace for one version is dropped by a flag that names the version.
func TestReplaceOfOneVersion(t *testing.T) {
	dir := forktest.Consumer(t)
	forktest.Run(t, dir, "go", "mod", "edit", "-replace="+tree.Module+"@"+tree.Newest()+"=../mine")
	_, err := into.run(t, dir, nil)
	if err == nil {
		t.Fatal("no error")
	}
	_, advice, _ := strings.Cut(err.Error(), "(go mod edit ")
	forktest.Run(t, dir, "go", "mod", "edit", strings.TrimSuffix(advice, ")"))
	forktest.Clean(t, dir)
}

// The line goes into go.mod, and GOFLAGS names another file.
func TestOtherModFile(t *testing.T) {
	dir := forked(t)
	t.Setenv("GOFLAGS", "-modfile=other.mod")
	for name, f := range map[string]fork{"into": into, "undo": undo, "check": check} {
		t.Run(name, func(t *testing.T) { f.fails(t, dir, nil, "-modfile=other.mod", "go.mod") })
	}
}

// A Docker file that the tool does not understand is no reason to fail: the fork is
// in place.
func TestUnreadableDockerfile(t *testing.T) {
	dir := forktest.Consumer(t)
	for _, name := range []string{"Dockerfile", ".dockerignore"} {
		if err := os.Symlink("nowhere", filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	into.must(t, dir, nil)
}

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

// What the go command prints because of GOFLAGS is not the reason why a build
// fails.
func TestBuildFailureWithVerboseFlags(t *testing.T) {
	dir := forktest.Consumer(t)
	forktest.Write(t, dir, "broken.go", "package main\n\nvar _ = absent\n")
	t.Setenv("GOFLAGS", "-v -x")
	into.fails(t, dir, nil, "does not build with the fork: ./broken.go:3:9: undefined: absent")
}

// "go work use -r ." takes the tree for a module of the user's.
func TestTreeInWorkspace(t *testing.T) {
	dir := forked(t)
	forktest.Write(t, dir, "go.work", "go 1.26.0\n\nuse (\n\t.\n\t./third_party/controller-runtime\n)\n")
	t.Setenv("GOWORK", filepath.Join(dir, "go.work"))
	for name, f := range map[string]fork{"into": into, "undo": undo, "check": check} {
		t.Run(name, func(t *testing.T) {
			f.fails(t, dir, nil, "go.work", "go work edit -dropuse=./third_party/controller-runtime")
		})
	}
	forktest.Run(t, dir, "go", "work", "edit", "-dropuse=./third_party/controller-runtime", "go.work")
	check.must(t, dir, nil)
}

// The build takes the mapper from vendor/, which nobody wrote anew.
func TestCheckOfStaleVendor(t *testing.T) {
	dir := forked(t)
	forktest.Run(t, dir, "go", "mod", "vendor")
	check.must(t, dir, nil)
	file := filepath.Join("vendor", mapperPackage, "restmapper.go")
	older := forktest.Text(t, dir, file) + "\n// as it was\n"
	forktest.Write(t, dir, file, older)
	forktest.Run(t, dir, "go", "list", "-mod=vendor", "./...") // the go command does not mind

	check.fails(t, dir, nil, "vendor/sigs.k8s.io/controller-runtime is not what is in", "pkg/client/apiutil/restmapper.go", "run go mod vendor in "+dir)
	forktest.Run(t, dir, "go", "mod", "vendor")
	check.must(t, dir, nil)
}

func TestCheckOfVendorWithoutTheFork(t *testing.T) {
	dir := forked(t)
	forktest.Write(t, dir, "vendor/modules.txt", "")
	check.fails(t, dir, nil, "vendor has no sigs.k8s.io/controller-runtime", "run go mod vendor in "+dir)
}

// Git on Windows writes CRLF unless it is told not to.
func TestCloneWithOtherLineEnds(t *testing.T) {
	dir := forked(t)
	forktest.Write(t, dir, ".gitattributes", "* text=auto eol=crlf\n")
	forktest.Commit(t, dir)
	clone := filepath.Join(t.TempDir(), "clone")
	forktest.Run(t, dir, "git", "clone", "-q", dir, clone)
	if !strings.Contains(forktest.Text(t, clone, "main.go"), "\r\n") {
		t.Fatal("git left the line ends alone")
	}
	check.must(t, clone, nil)
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

func TestBrokenWorkspace(t *testing.T) {
	dir := forktest.Consumer(t)
	forktest.Write(t, dir, "go.work", "go 1.26.0\n\njunk\n")
	t.Setenv("GOWORK", filepath.Join(dir, "go.work"))
	into.fails(t, dir, nil, "go.work", "unknown directive: junk")
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

// go.sum is not the tool's to write: what another program, an editor say, puts there
// while the tree is built stays.
func TestSumsEditedMeanwhile(t *testing.T) {
	dir := forktest.Consumer(t)
	edited := forktest.Text(t, dir, goSum) + editedSum
	into.must(t, dir, func(r *Request) { r.Out = &atBuild{do: func() { forktest.Write(t, dir, goSum, edited) }} })
	if forktest.Text(t, dir, goSum) != edited {
		t.Error("the other program's line is gone")
	}
}
