// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

func rename(t *testing.T, dir, from, to string) {
	t.Helper()
	if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
		t.Fatal(err)
	}
}

func TestEditedTree(t *testing.T) {
	dir := forked(t)
	const edited = place + "/pkg/client/client.go"
	forktest.Write(t, dir, edited, "package client\n")
	forktest.Write(t, dir, place+"/notes.txt", "mine\n")
	want := []string{"edited by hand", "added notes.txt", "changed pkg/client/client.go", "-force"}
	into.fails(t, dir, nil, want...)
	undo.fails(t, dir, nil, want...)

	into.must(t, dir, force)
	if forktest.Text(t, dir, edited) == "package client\n" {
		t.Error("-force kept the edit")
	}
	forktest.Write(t, dir, edited, "package client\n")
	undo.must(t, dir, force)
	forktest.Clean(t, dir)
}

// Whatever a killed run can leave: the next run ends it, and an undo takes it back.
func TestInterruptedRun(t *testing.T) {
	const scratch = "third_party/.controller-runtime.freshmapper-tmp"
	unreplaced := func(t *testing.T, dir string) { forktest.Write(t, dir, "go.mod", committed(t, dir, "go.mod")) }
	tests := map[string]func(t *testing.T, dir string){
		"while staging": func(t *testing.T, dir string) {
			unreplaced(t, dir)
			remove(t, dir, place)
			forktest.Write(t, dir, scratch+"/new/go.mod", "")
		},
		"before go.mod":           unreplaced,
		"while staging an update": func(t *testing.T, dir string) { forktest.Write(t, dir, scratch+"/new/go.mod", "") },
		"between two renames": func(t *testing.T, dir string) {
			forktest.Write(t, dir, scratch+"/new/go.mod", "")
			rename(t, dir, place, scratch+"/old")
		},
		"tree is missing": func(t *testing.T, dir string) { remove(t, dir, "third_party") },
	}
	whole := forktest.Snapshot(t, forked(t))
	for name, kill := range tests {
		t.Run(name, func(t *testing.T) {
			dir := forked(t)
			kill(t, dir)
			into.must(t, dir, nil)
			forktest.Same(t, whole, forktest.Snapshot(t, dir))
			kill(t, dir)
			undo.must(t, dir, nil)
			forktest.Clean(t, dir)
			for name := range forktest.Snapshot(t, dir) {
				if strings.HasPrefix(name, "third_party") {
					t.Errorf("%s is left", name)
				}
			}
		})
	}
}

func TestForceStartsOver(t *testing.T) {
	dir := forked(t)
	original := committed(t, dir, "go.mod")
	forktest.Write(t, dir, place+"/.freshmapper/manifest.json", "{")
	into.fails(t, dir, nil, "manifest.json", "-force")
	undo.fails(t, dir, nil, "manifest.json", "-force")
	check.fails(t, dir, nil, "manifest.json", "-into "+dir+" -force")
	into.must(t, dir, force)
	undo.must(t, dir, nil)
	if forktest.Text(t, dir, "go.mod") != original {
		t.Errorf("go.mod:\n%s", forktest.Text(t, dir, "go.mod"))
	}
}

func TestUndoKeepsTheUsersChanges(t *testing.T) {
	dir := forked(t)
	original := committed(t, dir, "go.mod")
	const mine = "\nretract v0.0.1 // mine\n"
	forktest.Write(t, dir, "go.mod", forktest.Text(t, dir, "go.mod")+mine)
	forktest.Write(t, dir, "go.sum", withoutLines(forktest.Text(t, dir, "go.sum"), "sigs.k8s.io/controller-runtime ")) // as go mod tidy does
	forktest.Write(t, dir, "third_party/other/x.txt", "")

	out := undo.must(t, dir, nil)
	if !strings.Contains(out, "your changes kept") {
		t.Errorf("said\n%s", out)
	}
	if got := forktest.Text(t, dir, "go.mod"); got != original+mine {
		t.Errorf("go.mod:\n%s", got)
	}
	if status := forktest.Run(t, dir, "git", "status", "--porcelain", "-uall"); status != " M go.mod\n?? third_party/other/x.txt\n" {
		t.Errorf("git status:\n%s", status)
	}
}

// go.mod is replaced in one step, and never written: so it is whole whenever a run is killed.
func TestGoModIsReplaced(t *testing.T) {
	dir := forktest.Consumer(t)
	was, linked, real := forktest.Text(t, dir, "go.mod"), filepath.Join(dir, "go.mod"), filepath.Join(t.TempDir(), "go.mod")
	for _, err := range []error{os.Rename(linked, real), os.Symlink(real, linked), os.Link(real, real+".other"), os.Chmod(real, 0o640)} {
		if err != nil {
			t.Skip(err)
		}
	}
	before := forktest.Snapshot(t, filepath.Dir(real))
	into.must(t, dir, nil)
	if other := forktest.Text(t, filepath.Dir(real), "go.mod.other"); other != was {
		t.Errorf("go.mod was written in place:\n%s", other)
	}
	undo.must(t, dir, nil)
	forktest.Same(t, before, forktest.Snapshot(t, filepath.Dir(real)))
	if to, err := os.Readlink(linked); to != real {
		t.Errorf("go.mod leads to %q, %v", to, err)
	}
}

func TestUndoKeepsModeAndUntidyText(t *testing.T) {
	dir := forktest.Consumer(t)
	forktest.Write(t, dir, "go.mod", strings.ReplaceAll("// mine\n\n\n"+forktest.Text(t, dir, "go.mod"), "\n", "\r\n"))
	if err := os.Chmod(filepath.Join(dir, "go.mod"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := forktest.Snapshot(t, dir)
	into.must(t, dir, nil)
	undo.must(t, dir, nil)
	forktest.Same(t, before, forktest.Snapshot(t, dir))
}

func withoutLines(text, prefix string) string {
	var kept strings.Builder
	for _, line := range strings.SplitAfter(text, "\n") {
		if !strings.HasPrefix(line, prefix) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

func TestMissingSumsAreAdded(t *testing.T) {
	dir := forktest.Consumer(t)
	forktest.Write(t, dir, "go.sum", withoutLines(forktest.Text(t, dir, "go.sum"), "k8s.io/client-go "))
	before := forktest.Snapshot(t, dir)
	if out := into.must(t, dir, nil); !strings.Contains(out, "moved      go.sum: 2 lines\n") {
		t.Errorf("said\n%s", out)
	}
	undo.must(t, dir, nil)
	forktest.Same(t, before, forktest.Snapshot(t, dir))
}

func TestWorkspace(t *testing.T) {
	t.Setenv("GOWORK", "") // hack/lib.sh turns workspaces off
	top := t.TempDir()
	dir := filepath.Join(top, "operator")
	if err := os.Rename(forktest.Consumer(t), dir); err != nil {
		t.Fatal(err)
	}
	forktest.Write(t, top, "other/go.mod", "module example.com/other\n\ngo 1.26.0\n")

	forktest.Write(t, top, "go.work", "go 1.26.0\n\nuse ./operator\n\nreplace sigs.k8s.io/controller-runtime => ./mine\n")
	into.fails(t, dir, nil, "go.work", "./mine")

	forktest.Write(t, top, "go.work", "go 1.26.0\n\nuse (\n\t./operator\n\t./other\n)\n")
	into.must(t, dir, nil)
	if out := into.must(t, dir, nil); !strings.Contains(out, "nothing to do") {
		t.Errorf("the second run said\n%s", out)
	}
	undo.must(t, dir, nil)
	forktest.Clean(t, dir)

	forktest.Write(t, top, "vendor/modules.txt", "")
	if out := into.must(t, dir, nil); !strings.Contains(out, "go work vendor") {
		t.Errorf("no word about vendor in\n%s", out)
	}
	undo.must(t, dir, nil)
	remove(t, top, "vendor")

	forktest.Write(t, top, "go.work", "go 1.26.0\n\nuse ./other\n")
	into.must(t, dir, nil)
	undo.must(t, dir, nil)
	forktest.Clean(t, dir)
}

// Git on Windows writes CRLF unless it is told not to. In such a clone the tree is whole, and
// go.mod and go.sum are still what the run left.
func TestCloneWithOtherLineEnds(t *testing.T) {
	for _, edited := range []bool{false, true} {
		dir := forked(t)
		forktest.Write(t, dir, ".gitattributes", "* text=auto eol=crlf\n")
		sums := forktest.Text(t, dir, "go.sum")
		forktest.Commit(t, dir)
		clone := filepath.Join(t.TempDir(), "clone")
		forktest.Run(t, dir, "git", "clone", "-q", dir, clone)
		if !strings.Contains(forktest.Text(t, clone, "main.go"), "\r\n") {
			t.Fatal("git left the line ends alone")
		}
		check.must(t, clone, nil)
		if edited {
			forktest.Write(t, clone, "go.sum", forktest.Text(t, clone, "go.sum")+editedSum)
			sums += editedSum
		}
		undo.must(t, clone, nil)
		if got := strings.ReplaceAll(forktest.Text(t, clone, "go.sum"), "\r\n", "\n"); got != sums {
			t.Errorf("edited %v: go.sum has %d bytes, want %d:\n%s", edited, len(got), len(sums), got)
		}
	}
}

// "go get" of another controller-runtime adds no sum of it while the fork is in. What -into
// saves after that is not what there was at first.
func TestUndoAfterUpgrade(t *testing.T) {
	dir := forked(t)
	forktest.Run(t, dir, "go", "mod", "edit", "-require="+tree.Module+"@v0.25.0")
	into.must(t, dir, func(r *Request) { r.NoBuild = true })
	into.must(t, dir, func(r *Request) { r.NoBuild, r.Ours = true, forktest.Edited("apiutil/more.go", "package apiutil\n") })
	out := undo.must(t, dir, nil)
	for _, want := range []string{
		"go.mod     your changes kept;", "go.sum     as it was\n",
		"no sum of " + tree.Module + " v0.25.0; run in " + dir + ":\n              go mod tidy\ndone       the fork is out of",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	forktest.Run(t, dir, "go", "mod", "edit", "-require="+tree.Module+"@"+tree.Newest())
	forktest.Clean(t, dir)
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

const editedSum = "zz.example/edited v1.0.0 h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"
