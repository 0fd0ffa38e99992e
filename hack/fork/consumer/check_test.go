// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// atBuild does something when the build begins.
type atBuild struct {
	bytes.Buffer
	do func()
}

func (a *atBuild) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("go build")) {
		a.do()
	}
	return a.Buffer.Write(p)
}

// A build that goes on says so now and then.
func TestProgress(t *testing.T) {
	var said []string
	p := progress{say: func(_, format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }, began: time.Now(), said: time.Now()}
	fmt.Fprint(&p, "k8s.io/api/core/v1\n")
	p.said = time.Time{}
	fmt.Fprint(&p, "go: downloading k8s.io/api v0.37.0\nk8s.io/api/apps/v1\n")
	fmt.Fprint(&p, "k8s.io/api/batch/v1\n")
	if want := []string{"0s: downloading k8s.io/api v0.37.0"}; !slices.Equal(said, want) {
		t.Errorf("after the first %s it said %q, want %q", beat, said, want)
	}
}

// After "go get" of a newer controller-runtime the old tree still says which k8s.io is
// used. The next run moves it, and says so in a line.
func TestUpgradeMovesRequirements(t *testing.T) {
	dir := t.TempDir()
	forktest.Write(t, dir, "go.mod", "module example.com/operator\n\ngo 1.26.0\n\nrequire "+tree.Module+" v0.24.1\n")
	forktest.Write(t, dir, "main.go", "package main\n\nimport _ \""+mapperPackage+"\"\n\nfunc main() {}\n")
	forktest.Run(t, dir, "go", "mod", "tidy")
	into.must(t, dir, func(r *Request) { r.NoBuild = true }) // client-go of that release would be compiled
	forktest.Run(t, dir, "go", "get", tree.Module+"@v0.25.2")
	if mod := forktest.Text(t, dir, goMod); !strings.Contains(mod, "k8s.io/apimachinery v0.36") {
		t.Fatalf("go get has moved k8s.io:\n%s", mod)
	}
	check.fails(t, dir, nil, "is sigs.k8s.io/controller-runtime v0.24.1, but", "requires v0.25.2: run fork -into "+dir)
	into.says(t, dir, nil, "moved      go.sum: ", "moved      go.mod: ")
	check.must(t, dir, nil)
}

// What the go command prints because of GOFLAGS is not the reason why a build fails.
func TestBuildFailureChangesNothing(t *testing.T) {
	broken := with(forktest.Edited("internal/answer/answer.go", "package answer\n"))
	if out := into.fails(t, forktest.Consumer(t), broken, "does not build", "is as it was"); !strings.Contains(out, "undefined: answer.Mapper") {
		t.Errorf("it does not say what the compiler said, but\n%s", out)
	}
	into.fails(t, forked(t), broken, "does not build", "is as it was")
	dir := forktest.Consumer(t)
	forktest.Write(t, dir, "broken.go", "package main\n\nvar _ = absent\n")
	t.Setenv("GOFLAGS", "-v -x")
	into.fails(t, dir, nil, "does not build with the fork: ./broken.go:3:9: undefined: absent")
}

// What another program, an editor say, puts into go.mod or go.sum while the tree is built
// stays. go.mod is the tool's to write only if it is still what the tool has read.
func TestFilesEditedMeanwhile(t *testing.T) {
	for name, mine := range map[string]string{goMod: "// mine\n", goSum: editedSum} {
		dir := forktest.Consumer(t)
		edited := forktest.Text(t, dir, name) + mine
		_, err := into.run(t, dir, func(r *Request) { r.Out = &atBuild{do: func() { forktest.Write(t, dir, name, edited) }} })
		want := map[string]string{goMod: "go.mod was changed by another program meanwhile", goSum: "<nil>"}[name]
		if got := fmt.Sprint(err); !strings.Contains(got, want) {
			t.Errorf("%s was changed during the build: want the error %q, got %q", name, want, got)
		}
		if forktest.Text(t, dir, name) != edited || tree.Exists(filepath.Join(dir, "third_party")) != (name == goSum) {
			t.Errorf("the other program's %s is gone, or the tree is there", name)
		}
	}
}

// The last line names the module that could not be downloaded, not the fork.
func TestUnavailableDependency(t *testing.T) {
	dir := forktest.Consumer(t)
	forktest.Write(t, dir, "more.go", "package main\n\nimport _ \"example.invalid/missing\"\n")
	forktest.Run(t, dir, "go", "mod", "edit", "-require=example.invalid/missing@v1.0.0")
	for proxy, want := range map[string]string{"file://" + filepath.ToSlash(t.TempDir()): "example.invalid/missing", "off": "GOPROXY=off"} {
		t.Setenv("GOPROXY", proxy)
		into.fails(t, dir, nil, "because a dependency is not available: ", want, "is as it was")
	}
}

func TestCheckOfTag(t *testing.T) {
	dir := forktest.Consumer(t)
	version := tree.Newest() + "-fresh.3"
	forktest.Run(t, dir, "go", "mod", "edit", "-replace="+tree.Module+"=example.invalid/fork@"+version)
	check.says(t, dir, nil, "replaced with example.invalid/fork "+version+", as go.mod requires: only the versions were compared, not the module's content")
	for sed, advised := range map[string]bool{"": true, ` | sed -E 's/^v?([0-9]+)\.([0-9]+).*/release-\1.\2/'`: false} {
		forktest.Write(t, dir, "Makefile", "ENVTEST_VERSION ?= $(shell go list -m -f '{{if .Replace}}{{.Replace.Version}}{{end}}' "+tree.Module+sed+")\n")
		if out := check.must(t, dir, nil); strings.Contains(out, "note: Makefile") != advised {
			t.Errorf("want advice for a Makefile with %q: %v, got\n%s", sed, advised, out)
		}
	}
	into.fails(t, dir, nil, "which is a tagged fork: to have the tree", "(go mod edit -dropreplace="+tree.Module+")")
	undo.says(t, dir, nil, "nothing to undo: ", "-dropreplace="+tree.Module+")")
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
			check.fails(t, dir, with(forktest.Newer()), "another mapper", "run fork -o "+elsewhere+" -version "+tree.Newest()+flags)
		})
	}
}
