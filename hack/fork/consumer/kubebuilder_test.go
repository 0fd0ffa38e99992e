// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper"
	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// A project as kubebuilder scaffolds it: its make targets write the same files
// with the fork as without, and leave the tree alone. controller-gen walks every
// go.mod below the project, so it sees the tree, too.
func TestKubebuilderProject(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles controller-gen and controller-runtime")
	}
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("no make in PATH")
	}
	dir, tools := scaffolded(t), t.TempDir()
	for _, version := range []string{"v0.19.0", "v0.23.0"} {
		t.Run("controller-gen "+version, func(t *testing.T) {
			stock, forked := t.TempDir(), t.TempDir()
			copyFolder(t, stock, dir)
			generate(t, stock, tools, version)
			want := generated(t, stock)
			for _, name := range []string{"config/crd/bases/shop.example.com_widgets.yaml", "config/rbac/role.yaml", "config/webhook/manifests.yaml", "api/v1/zz_generated.deepcopy.go"} {
				if want[name] == "" {
					t.Errorf("make has not written %s", name)
				}
			}

			copyFolder(t, forked, dir)
			remove(t, forked, "api")
			copyFolder(t, filepath.Join(forked, "api"), filepath.Join(stock, "api")) // else there is nothing to build
			real := func(r *Request) { r.Ours = freshmapper.Source }
			said := into.must(t, forked, real)
			if !strings.Contains(said, "!third_party/controller-runtime/**\n") || strings.Contains(said, "gitignore") {
				t.Errorf("said\n%s", said)
			}
			remove(t, forked, "api/v1/zz_generated.deepcopy.go")
			generate(t, forked, tools, version)
			forktest.Same(t, want, generated(t, forked))
			check.must(t, forked, real)
			if version == "v0.19.0" {
				inImage(t, forked)
			}
		})
	}
}

// scaffolded is the project, tidy, in a repository of its own.
func scaffolded(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range tree.Archive(forktest.Text(t, "testdata", "kubebuilder.txt")) {
		forktest.Write(t, dir, name, text)
	}
	forktest.Write(t, dir, "go.mod", "module example.com/widgets\n\ngo 1.26.0\n\nrequire "+tree.Module+" "+tree.Newest()+"\n")
	forktest.Run(t, dir, "go", "mod", "tidy")
	forktest.Run(t, dir, "git", "init", "-q")
	forktest.Commit(t, dir)
	return dir
}

func copyFolder(t *testing.T, to, from string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// generate runs the targets with the tools that every run shares.
func generate(t *testing.T, dir, tools, version string) {
	t.Helper()
	forktest.Run(t, dir, "make", "manifests", "generate", "fmt", "vet", "CONTROLLER_TOOLS_VERSION="+version, "LOCALBIN="+tools)
	forktest.Run(t, dir, "go", "build", "-o", os.DevNull, "./cmd")
}

// generated is what is in the project, without what a fork adds.
func generated(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := forktest.Snapshot(t, dir)
	maps.DeleteFunc(files, func(name, _ string) bool {
		return name == "third_party" || strings.HasPrefix(name, "third_party/") || name == goMod || name == goSum
	})
	return files
}

// inImage builds what the project's .dockerignore lets into an image, after the
// lines that were advised were added.
func inImage(t *testing.T, dir string) {
	t.Helper()
	rules := forktest.Text(t, dir, ".dockerignore") + "!third_party/controller-runtime/**\n"
	image := t.TempDir()
	for name, sum := range forktest.Snapshot(t, dir) {
		if strings.HasPrefix(sum, "-") && hiddenBy(rules, name) == 0 {
			forktest.Write(t, image, name, forktest.Text(t, dir, name))
		}
	}
	forktest.Run(t, image, "go", "build", "-o", os.DevNull, "./cmd")
}
