// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// kubebuilderIgnore is the .dockerignore that kubebuilder makes.
const kubebuilderIgnore = "# a comment\n**\n\n!**/*.go\n**/*_test.go\n\n!go.mod\n!go.sum\n"

func TestDockerignore(t *testing.T) {
	tests := []struct {
		rules, name string
		want        int
	}{
		{kubebuilderIgnore, "go.mod", 0},
		{kubebuilderIgnore, "main.go", 0},
		{kubebuilderIgnore, "a/b/main.go", 0},
		{kubebuilderIgnore, "a/b/main_test.go", 5},
		{kubebuilderIgnore, "a/go.mod", 2},
		{kubebuilderIgnore + "!a/go.mod\n", "a/go.mod", 0},
		{"*.mod\n", "a/go.mod", 0},
		{"**/*.mod\n", "a/b/go.mod", 1},
		{"/a/\n", "a/b/go.mod", 1},
		{"a\n", "ab/go.mod", 0},
		{"a/*/go.mod\n", "a/b/go.mod", 1},
		{"[ab]/go.mod\n", "b/go.mod", 1},
		{"a/**\n!a/**/*.go\n", "a/b/c.go", 0},
		{"third_party\n!third_party/x/**\n", "third_party/x/go.mod", 0},
		{"a+b\n", "aab", 0},
		{"[\n", "a", 0},
	}
	for _, test := range tests {
		if got := hiddenBy(test.rules, test.name); got != test.want {
			t.Errorf("%q hides %s by line %d, not %d", test.rules, test.name, got, test.want)
		}
	}
}

// The tool names each file that hides the tree, with the lines that bring the tree
// back. After they are added, it names nothing.
func TestAdvice(t *testing.T) {
	dir := forked(t)
	forktest.Write(t, dir, ".gitignore", "bin/\nthird_party/\n*.mod\n")
	forktest.Write(t, dir, ".dockerignore", kubebuilderIgnore)
	forktest.Write(t, dir, "Dockerfile", "FROM golang\nCOPY go.mod go.sum ./\nRUN go mod download\nCOPY . .\n")
	out := into.must(t, dir, nil)
	for _, want := range []string{
		"note: .gitignore line 2 (third_party/) hides", "!/third_party/\n",
		"note: .dockerignore line 2 hides files of the tree (1); add at its end:", "!third_party/controller-runtime/**\n",
		"note: Dockerfile copies go.mod by itself", "COPY third_party/ third_party/\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for name, begins := range map[string]string{".gitignore": "!/", ".dockerignore": "!third", "Dockerfile": "COPY"} {
		text := forktest.Text(t, dir, name)
		for _, line := range strings.Split(out, "\n") {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, begins) {
				text += line + "\n"
			}
		}
		forktest.Write(t, dir, name, text)
	}
	if out := into.must(t, dir, nil); strings.Contains(out, "note: ") {
		t.Errorf("after the advice was followed:\n%s", out)
	}
	forktest.Run(t, dir, "git", "add", "-A")
	if tracked := forktest.Run(t, dir, "git", "ls-files", place+"/go.mod"); tracked == "" {
		t.Error("git still leaves go.mod of the tree out")
	}
	out = undo.must(t, dir, nil) // which leaves the lines to the user
	for _, want := range []string{
		"note: .gitignore still has lines for the tree; remove what nothing else needs:\n              !/third_party/\n              !/third_party/controller-runtime/\n",
		"note: .dockerignore still has lines for the tree; remove what nothing else needs:\n              !third_party/controller-runtime/**\n",
		"note: Dockerfile still has lines for the tree; remove what nothing else needs:\n              COPY third_party/ third_party/\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestAdviceWithoutGit(t *testing.T) {
	dir := forked(t)
	if err := os.RemoveAll(filepath.Join(dir, ".git")); err != nil {
		t.Fatal(err)
	}
	forktest.Write(t, dir, ".gitignore", "third_party/\n")
	for _, name := range []string{"Dockerfile", ".dockerignore"} { // one that can't be read is no reason to fail
		if err := os.Symlink("nowhere", filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if out := into.must(t, dir, nil); strings.Contains(out, "note: ") {
		t.Errorf("outside of a checkout:\n%s", out)
	}
}

// A repository like cert-manager's: commands with modules of their own.
func TestOtherModules(t *testing.T) {
	dir := forked(t)
	program := forktest.Text(t, dir, "main.go")
	sum := forktest.Text(t, dir, "go.sum")
	for _, name := range []string{"cmd/one", "cmd/two words"} {
		mod := strings.Replace(committed(t, dir, "go.mod"), "module example.com/operator", "module example.com/"+filepath.Base(strings.ReplaceAll(name, " ", "")), 1)
		forktest.Write(t, dir, name+"/go.mod", mod)
		forktest.Write(t, dir, name+"/go.sum", sum)
		forktest.Write(t, dir, name+"/main.go", program)
	}
	forktest.Write(t, dir, "tools/go.mod", "module example.com/tools\n")
	forktest.Write(t, dir, "testdata/x/go.mod", forktest.Text(t, dir, "cmd/one/go.mod"))
	forktest.Commit(t, dir)

	out := into.must(t, dir, nil)
	if !strings.Contains(out, "note: 2 more in "+dir+" with a go.mod of their own") || strings.Contains(out, "tools") || strings.Contains(out, "testdata") {
		t.Errorf("said\n%s", out)
	}
	follow(t, out)
	if out := into.must(t, dir, nil); strings.Contains(out, "note: ") {
		t.Errorf("after the advice was followed:\n%s", out)
	}
	for _, name := range []string{"cmd/one", "cmd/two words"} {
		if from, want := builtFrom(t, filepath.Join(dir, name)), filepath.Join(dir, place, "pkg/client/apiutil"); from != want {
			t.Errorf("%s takes the mapper from %s, not from %s", name, from, want)
		}
		if out := check.must(t, filepath.Join(dir, name), nil); !strings.Contains(out, "ok") {
			t.Errorf("the check of %s said\n%s", name, out)
		}
	}
	out = undo.must(t, dir, nil)
	if !strings.Contains(out, "note: 2 more in "+dir+" still replace controller-runtime") {
		t.Errorf("undo said\n%s", out)
	}
	follow(t, out)
	for _, name := range []string{"cmd/one", "cmd/two words"} {
		if mod := forktest.Text(t, dir, name+"/go.mod"); strings.Contains(mod, "replace") {
			t.Errorf("%s/go.mod:\n%s", name, mod)
		}
	}
}

// follow types the commands that were advised, as a user would.
func follow(t *testing.T, said string) {
	t.Helper()
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("no shell to type into")
	}
	for _, line := range strings.Split(said, "\n") {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "go -C ") {
			forktest.Run(t, t.TempDir(), "sh", "-c", line)
		}
	}
}

// In a workspace one fork serves all modules, and a run in another one says so.
func TestWorkspaceSibling(t *testing.T) {
	dir := forked(t)
	forktest.Write(t, dir, "other/go.mod", strings.Replace(committed(t, dir, "go.mod"), "example.com/operator", "example.com/other", 1))
	forktest.Write(t, dir, "other/go.sum", forktest.Text(t, dir, "go.sum"))
	forktest.Write(t, dir, "other/main.go", forktest.Text(t, dir, "main.go"))
	forktest.Write(t, dir, "go.work", "go 1.26.0\n\nuse (\n\t.\n\t./other\n)\n")
	t.Setenv("GOWORK", filepath.Join(dir, "go.work"))

	other := filepath.Join(dir, "other")
	before := forktest.Snapshot(t, other)
	out := into.must(t, other, nil)
	if !strings.Contains(out, "nothing to do: the fork in ../third_party/controller-runtime serves all modules of the workspace") {
		t.Errorf("said\n%s", out)
	}
	forktest.Same(t, before, forktest.Snapshot(t, other))
	if out := check.must(t, other, nil); !strings.Contains(out, "ok") {
		t.Errorf("the check said\n%s", out)
	}
	if out := into.must(t, dir, nil); strings.Contains(out, "note: ") {
		t.Errorf("the run in the fork's own module said\n%s", out)
	}
}

// The last line names the module that could not be downloaded, not the fork.
func TestUnavailableDependency(t *testing.T) {
	dir := forktest.Consumer(t)
	forktest.Write(t, dir, "more.go", "package main\n\nimport _ \"example.invalid/missing\"\n")
	forktest.Run(t, dir, "go", "mod", "edit", "-require=example.invalid/missing@v1.0.0")
	t.Setenv("GOPROXY", "file://"+filepath.ToSlash(t.TempDir()))
	into.fails(t, dir, nil, "because a dependency can't be had: ", "example.invalid/missing", "is as it was")
	t.Setenv("GOPROXY", "off")
	into.fails(t, dir, nil, "because a dependency can't be had: ", "GOPROXY=off", "is as it was")
}

// A Makefile may install setup-envtest in the version of what replaces
// controller-runtime, as kubebuilder's does.
func TestMakefileThatAsksForTheReplacement(t *testing.T) {
	const asks = `ENVTEST_VERSION ?= $(shell go list -m -f '{{if .Replace}}{{.Replace.Version}}{{else}}{{.Version}}{{end}}' sigs.k8s.io/controller-runtime`
	const show = ")\nshow:\n\t@echo \"$(ENVTEST_VERSION)\"\n"
	line, _ := tree.LineOf(tree.Newest())
	for name, test := range map[string]struct{ makefile, want string }{
		"exact":  {asks + show, tree.Newest()},
		"branch": {asks + ` | sed -E 's/^v?([0-9]+)\.([0-9]+).*/release-\1.\2/'` + show, strings.Replace(line.Minor, "v", "release-", 1)},
	} {
		t.Run(name, func(t *testing.T) { makefileOf(t, test.makefile, test.want) })
	}
}

func makefileOf(t *testing.T, makefile, want string) {
	t.Helper()
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("no make")
	}
	dir := forked(t)
	forktest.Write(t, dir, "Makefile", makefile)
	if shown := forktest.Run(t, dir, "make", "show"); shown != "\n" {
		t.Fatalf("a folder has the version %q", shown)
	}
	out := into.must(t, dir, nil)
	at := strings.Index(out, "ENVTEST_VERSION ?=")
	if at < 0 {
		t.Fatalf("no word about the Makefile in\n%s", out)
	}
	line, _, _ := strings.Cut(out[at:], "\n")
	forktest.Write(t, dir, "Makefile", line+"\n"+makefile)
	if shown := forktest.Run(t, dir, "make", "show"); shown != want+"\n" {
		t.Errorf("setup-envtest of %q, want %q", shown, want)
	}
	if out := into.must(t, dir, nil); strings.Contains(out, "ENVTEST_VERSION") {
		t.Errorf("said again\n%s", out)
	}
	if out := undo.must(t, dir, nil); !strings.Contains(out, "Makefile still has lines for the tree; remove what nothing else needs:\n              "+line+"\n") {
		t.Errorf("undo said\n%s", out)
	}
}
