// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper"
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
		{kubebuilderIgnore, "a/b/main.go", 0},
		{kubebuilderIgnore, "a/b/main_test.go", 5},
		{kubebuilderIgnore, "a/go.mod", 2},
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

// The tool names each file that hides the tree, with the lines that bring it back, until they are added or undone.
func TestAdvice(t *testing.T) {
	dir := forked(t)
	forktest.Write(t, dir, ".gitignore", "bin/\nthird_party/\n*.mod\n")
	forktest.Write(t, dir, ".dockerignore", kubebuilderIgnore)
	forktest.Write(t, dir, "Dockerfile", "FROM golang\nCOPY go.mod go.sum ./\nRUN go mod download\nCOPY . .\n")
	out := into.says(t, dir, nil,
		"note: .gitignore line 2 (third_party/) hides", "!/third_party/\n",
		"note: .dockerignore line 2 hides files of the tree (1); add at its end:", "!third_party/controller-runtime/**\n",
		"note: Dockerfile copies go.mod by itself", "COPY third_party/ third_party/\n")
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
		t.Errorf("the advice was followed, and there is more:\n%s", out)
	}
	forktest.Run(t, dir, "git", "add", "-A")
	if tracked := forktest.Run(t, dir, "git", "ls-files", place+"/go.mod"); tracked == "" {
		t.Error("git still leaves go.mod of the tree out")
	}
	const still = " still has lines for the tree; remove what nothing else needs:\n              "
	undo.says(t, dir, nil, ".gitignore"+still+"!/third_party/\n              !/third_party/controller-runtime/\n",
		".dockerignore"+still+"!third_party/controller-runtime/**\n", "Dockerfile"+still+"COPY third_party/ third_party/\n")
}

// A repository like cert-manager's: commands with modules of their own.
func TestOtherModules(t *testing.T) {
	dir, commands := forked(t), []string{"cmd/one", "cmd/two words"}
	module := committed(t, dir, goMod)
	for _, name := range commands {
		forktest.Write(t, dir, name+"/go.mod", strings.Replace(module, "example.com/operator", "example.com/"+filepath.Base(strings.ReplaceAll(name, " ", "")), 1))
		forktest.Write(t, dir, name+"/go.sum", forktest.Text(t, dir, goSum))
		forktest.Write(t, dir, name+"/main.go", forktest.Text(t, dir, "main.go"))
	}
	forktest.Write(t, dir, "tools/go.mod", "module example.com/tools\n")
	forktest.Write(t, dir, "testdata/x/go.mod", module)

	follow(t, into.says(t, dir, nil, "note: 2 more in "+dir+" with a go.mod of their own"), 2)
	if out := into.must(t, dir, nil); strings.Contains(out, "note: ") {
		t.Errorf("the advice was followed, and there is more:\n%s", out)
	}
	for _, name := range commands {
		if from, want := builtFrom(t, filepath.Join(dir, name)), filepath.Join(dir, place, "pkg/client/apiutil"); from != want {
			t.Errorf("%s takes the mapper from %s, not from %s", name, from, want)
		}
		check.says(t, filepath.Join(dir, name), nil, "ok")
	}
	follow(t, undo.says(t, dir, nil, "note: 2 more in "+dir+" still replace controller-runtime"), 2)
	for _, name := range commands {
		if mod := forktest.Text(t, dir, name+"/go.mod"); strings.Contains(mod, "replace") {
			t.Errorf("what was advised leaves a replace in %s/go.mod:\n%s", name, mod)
		}
	}
}

// follow types the commands that were advised, as a user would.
func follow(t *testing.T, said string, want int) {
	t.Helper()
	for _, line := range strings.Split(said, "\n") {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "go -C ") {
			forktest.Run(t, t.TempDir(), "sh", "-c", line)
			want--
		}
	}
	if want != 0 {
		t.Errorf("%d commands too few in\n%s", want, said)
	}
}

// builtFrom returns the folder that a program takes the mapper from.
func builtFrom(t *testing.T, dir string, flags ...string) string {
	t.Helper()
	list := append([]string{"list", "-f", "{{.Dir}}"}, flags...)
	return strings.TrimSpace(forktest.Run(t, dir, "go", append(list, mapperPackage)...))
}

const mapperPackage = tree.Module + "/pkg/client/apiutil"

// In a workspace one fork serves all modules, and a run in another one says so.
func TestWorkspaceSibling(t *testing.T) {
	dir := forked(t)
	workspace("use (\n\t.\n\t./other\n)\n")(t, dir)
	forktest.Write(t, dir, "other/go.mod", strings.Replace(committed(t, dir, goMod), "example.com/operator", "example.com/other", 1))
	forktest.Write(t, dir, "other/go.sum", forktest.Text(t, dir, goSum))
	forktest.Write(t, dir, "other/main.go", forktest.Text(t, dir, "main.go"))

	other := filepath.Join(dir, "other")
	before := forktest.Snapshot(t, other)
	into.says(t, other, nil, "nothing to do: the fork in ../third_party/controller-runtime serves all modules of the workspace")
	forktest.Same(t, before, forktest.Snapshot(t, other))
	check.says(t, other, nil, "ok")
	if out := into.must(t, dir, nil); strings.Contains(out, "note: ") {
		t.Errorf("advice in the fork's own module:\n%s", out)
	}
}

// Kubebuilder's Makefile installs setup-envtest in the version of the replacement. The advised line gives the right one.
func TestMakefileThatAsksForTheReplacement(t *testing.T) {
	const asks = `ENVTEST_VERSION ?= $(shell go list -m -f '{{if .Replace}}{{.Replace.Version}}{{else}}{{.Version}}{{end}}' sigs.k8s.io/controller-runtime`
	const show = ")\nshow:\n\t@echo \"$(ENVTEST_VERSION)\"\n"
	newest, _ := tree.LineOf(tree.Newest())
	for makefile, want := range map[string]string{
		asks + show: tree.Newest(),
		asks + ` | sed -E 's/^v?([0-9]+)\.([0-9]+).*/release-\1.\2/'` + show: strings.Replace(newest.Minor, "v", "release-", 1),
	} {
		t.Run(want, func(t *testing.T) {
			dir := forked(t)
			forktest.Write(t, dir, "Makefile", makefile)
			if shown := forktest.Run(t, dir, "make", "show"); shown != "\n" {
				t.Fatalf("a folder has the version %q", shown)
			}
			_, line, _ := strings.Cut(into.says(t, dir, nil, "ENVTEST_VERSION ?="), "before ENVTEST_VERSION:\n")
			line, _, _ = strings.Cut(strings.TrimSpace(line), "\n")
			forktest.Write(t, dir, "Makefile", line+"\n"+makefile)
			if shown := forktest.Run(t, dir, "make", "show"); shown != want+"\n" {
				t.Errorf("with %s make installs setup-envtest %q, want %q", line, shown, want)
			}
			if out := into.must(t, dir, nil); strings.Contains(out, "ENVTEST_VERSION") {
				t.Errorf("the line is there, and it is advised again\n%s", out)
			}
			undo.says(t, dir, nil, "Makefile still has lines for the tree; remove what nothing else needs:\n              "+line+"\n")
		})
	}
}

// A vendor folder is made from the fork. An update, and the check of an old one, name what makes it anew.
func TestVendored(t *testing.T) {
	dir, newer := forked(t), with(forktest.Newer())
	advice := "run in " + dir + ":\n              go mod vendor\n"
	forktest.Write(t, dir, "vendor/modules.txt", "")
	check.fails(t, dir, nil, "vendor has no sigs.k8s.io/controller-runtime", "run go mod vendor in DIR")
	forktest.Run(t, dir, "go", "mod", "vendor")
	check.must(t, dir, nil)
	if from, want := builtFrom(t, dir, "-mod=vendor"), filepath.Join(dir, "vendor", mapperPackage); from != want {
		t.Errorf("the mapper is built from %s, not from %s", from, want)
	}
	into.says(t, dir, nil, "nothing to do")
	into.says(t, dir, newer, advice)
	forktest.Run(t, dir, "go", "mod", "vendor")
	check.must(t, dir, newer)
	file := filepath.Join("vendor", mapperPackage, "restmapper.go")
	forktest.Write(t, dir, file, forktest.Text(t, dir, file)+"\n// as it was\n")
	check.fails(t, dir, newer, "vendor/sigs.k8s.io/controller-runtime is not what is in", "pkg/client/apiutil/restmapper.go", "run go mod vendor in DIR")
	t.Setenv("GOFLAGS", "-mod=mod") // then it is not used
	if out := into.must(t, dir, nil); strings.Contains(out, "go mod vendor") {
		t.Errorf("a word about a vendor folder that is not used in\n%s", out)
	}
	remove(t, dir, "vendor")
	undo.must(t, dir, nil) // of two updates
	forktest.Clean(t, dir)
}

// The make targets of a kubebuilder project write the same files with the fork as without, and leave the tree alone,
// which controller-gen sees, too. What the advised lines let into an image builds there.
func TestKubebuilderProject(t *testing.T) {
	tools, real := t.TempDir(), func(r *Request) { r.Ours = freshmapper.Source }
	for _, version := range []string{"v0.19.0", "v0.23.0"} {
		t.Run("controller-gen "+version, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range tree.Archive(forktest.Text(t, "testdata", "kubebuilder.txt")) {
				forktest.Write(t, dir, name, text)
			}
			forktest.Write(t, dir, goMod, "module example.com/widgets\n\ngo 1.26.0\n\nrequire "+tree.Module+" "+tree.Newest()+"\n")
			forktest.Run(t, dir, "go", "mod", "tidy")
			make := func() map[string]string {
				forktest.Run(t, dir, "make", "manifests", "generate", "fmt", "vet", "CONTROLLER_TOOLS_VERSION="+version, "LOCALBIN="+tools)
				forktest.Run(t, dir, "go", "build", "-o", os.DevNull, "./cmd")
				files := forktest.Snapshot(t, dir)
				maps.DeleteFunc(files, func(name, _ string) bool {
					return strings.HasPrefix(name, "third_party") || name == goMod || name == goSum
				})
				return files
			}
			want := make()
			const deepcopy = "api/v1/zz_generated.deepcopy.go"
			for _, name := range []string{"config/crd/bases/shop.example.com_widgets.yaml", "config/rbac/role.yaml", "config/webhook/manifests.yaml", deepcopy} {
				if want[name] == "" {
					t.Errorf("make has not written %s", name)
				}
			}
			into.says(t, dir, real, "!third_party/controller-runtime/**\n")
			remove(t, dir, "config/crd/bases")
			remove(t, dir, deepcopy)
			forktest.Same(t, want, make())
			check.must(t, dir, real)

			rules, image := forktest.Text(t, dir, ".dockerignore")+"!third_party/controller-runtime/**\n", t.TempDir()
			for name, what := range forktest.Snapshot(t, dir) {
				if strings.HasPrefix(what, "-") && hiddenBy(rules, name) == 0 {
					forktest.Write(t, image, name, forktest.Text(t, dir, name))
				}
			}
			forktest.Run(t, image, "go", "build", "-o", os.DevNull, "./cmd")
		})
	}
}
