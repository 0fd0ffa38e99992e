// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// With -nobuild the tool believes that it builds.
func TestNoBuild(t *testing.T) {
	dir := forktest.Consumer(t)
	out := into.must(t, dir, func(r *Request) {
		r.NoBuild, r.Ours = true, forktest.Edited("internal/answer/answer.go", "package answer\n")
	})
	if strings.Contains(out, "go build") || !strings.Contains(forktest.Text(t, dir, "go.mod"), place) {
		t.Errorf("said\n%s", out)
	}
	undo.must(t, dir, nil)
	forktest.Clean(t, dir)
}

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

// What the build says while it goes on.
func TestProgress(t *testing.T) {
	var said []string
	p := progress{say: func(_, format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }}
	p.began = time.Now()
	fmt.Fprint(&p, "go: downloading k8s.io/api v0.37.0\n")
	fmt.Fprint(&p, "k8s.io/api/core/v1\n")
	p.said = time.Time{}
	fmt.Fprint(&p, "# a heading\nk8s.io/api/apps/v1\n")
	if want := []string{"0s: downloading k8s.io/api v0.37.0 (0 packages so far)", "0s: compiling k8s.io/api/apps/v1 (2 packages so far)"}; !slices.Equal(said, want) {
		t.Errorf("said %q", said)
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
	out := into.must(t, dir, nil)
	if !strings.Contains(out, "moved      go.sum: ") || !strings.Contains(out, "moved      go.mod: ") {
		t.Errorf("said\n%s", out)
	}
	for _, line := range strings.Split(out, "\n") {
		if len(line) > 200 && !strings.Contains(line, dir) {
			t.Errorf("a line of %d bytes: %.80s…", len(line), line)
		}
	}
	check.must(t, dir, nil)
}

// What the go command prints because of GOFLAGS is not the reason why a build fails.
func TestBuildFailureChangesNothing(t *testing.T) {
	broken := with(forktest.Edited("internal/answer/answer.go", "package answer\n"))
	if out := into.fails(t, forktest.Consumer(t), broken, "does not build", "is as it was"); !strings.Contains(out, "undefined: answer.Mapper") {
		t.Errorf("no compiler output in\n%s", out)
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
		if name == goMod && (err == nil || !strings.Contains(err.Error(), "go.mod was changed by another program meanwhile")) || name == goSum && err != nil {
			t.Errorf("%s: error: %v", name, err)
		}
		if forktest.Text(t, dir, name) != edited || tree.Exists(filepath.Join(dir, "third_party")) != (name == goSum) {
			t.Errorf("the other program's %s is gone, or the tree is there", name)
		}
	}
}
