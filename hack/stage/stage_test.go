// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"net/mail"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

func TestUsage(t *testing.T) {
	taken := t.TempDir()
	forktest.Write(t, taken, "notes.txt", "mine\n")
	forktest.Command(run).Refuses(t, map[string]string{
		"":                                      "-o DIR is missing",
		"-o a b":                                `unexpected argument "b"`,
		"-o a -author me":                       `-author "me"`,
		"-o " + taken:                           "notes.txt",
		"-o " + t.TempDir() + " -base v0.23.3":  "is not that of " + newest,
		"-o " + t.TempDir() + " -base v0.999.0": "v0.999.0",
	})
}

// A second run writes the same bytes.
func TestReproducible(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	first, second := t.TempDir(), filepath.Join(t.TempDir(), "absent")
	for _, dir := range []string{first, second} {
		forktest.Command(run).Says(t, "-o "+dir, filepath.Join(dir, "0001-"), filepath.Join(dir, "0005-"))
	}
	forktest.Same(t, forktest.Snapshot(t, first), forktest.Snapshot(t, second))
}

// Upstream's robots refuse other titles, and messages that mention issues. The first patch is
// as small as promised, in one file.
func TestUpstreamCouldTakeThePatches(t *testing.T) {
	mails := patches(t)
	for _, m := range mails {
		title, body, _ := strings.Cut(m.message, "\n")
		if !strings.HasPrefix(title, "✨ ") && !strings.HasPrefix(title, "🐛 ") && !strings.HasPrefix(title, "⚠️ ") || len(title) > 75 {
			t.Errorf("title %q", title)
		}
		if len(body) < 200 || strings.ContainsAny(title+body, "#@*") {
			t.Errorf("%s: message\n%s", title, body)
		}
	}
	files := 0
	for _, file := range strings.Split(string(mails[0].text), "\n+++ b/")[1:] {
		if name, diff, _ := strings.Cut(file, "\n"); !strings.HasSuffix(name, "_test.go") {
			files++
			if lines := strings.Count(diff, "\n+"); files > 1 || lines > 50 {
				t.Errorf("the first patch adds %d lines to %s, file %d: upstream is asked to read 50 in one file", lines, name, files)
			}
		}
	}
}

// patches are the patches for the newest release.
func patches(t *testing.T) []patchMail {
	t.Helper()
	mails, err := makeMails(context.Background(), newest, &mail.Address{Name: "A U Thor", Address: "author@example.com"})
	if err != nil {
		t.Fatal(err)
	}
	return mails
}

// Each patch applies to the release by itself, builds, is tidy and passes upstream's tests and its own of the mapper
// and the client. So do all together. With KUBEBUILDER_ASSETS set they run on real servers, with aggregated discovery
// and, from setup-envtest's store, without.
func TestEachPatchPasses(t *testing.T) {
	packages := []string{"./pkg/client", "./pkg/client/apiutil"}
	test := []string{"go", "test", "-trimpath", "-race", "-count=1", "-timeout=15m"}
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Log("KUBEBUILDER_ASSETS is not set: without the tests on an API server")
		test = append(test, "-skip", "^(TestApiMachinery|TestClient|TestLazyRestMapperProvider)$")
	}
	t.Setenv("KUBEBUILDER_CONTROLPLANE_START_TIMEOUT", "3m") // envtest gives 20 s, which a busy machine may need
	commands := [][]string{
		{"go", "build", "-trimpath", "./..."}, {"go", "mod", "tidy", "-diff"},
		append([]string{"go", "vet", "-trimpath"}, packages...), append(test, packages...),
	}
	mails := patches(t)
	for i := range len(mails) + 1 {
		applied := mails // all of them, at last
		if i < len(mails) {
			applied = mails[i : i+1]
		}
		dir := patched(t, applied)
		for _, command := range commands {
			cmd := exec.Command(command[0], command[1:]...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=")
			said, err := cmd.CombinedOutput()
			if t.Logf("patch %d: %s\n%s", i+1, strings.Join(command, " "), said); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// patched is upstream's tree with patches.
func patched(t *testing.T, mails []patchMail) string {
	t.Helper()
	dir, box := t.TempDir(), t.TempDir()
	folder, err := tree.Folder(context.Background(), newest, nil)
	if err = cmp.Or(err, os.CopyFS(dir, os.DirFS(folder))); err != nil {
		t.Fatal(err)
	}
	forktest.Run(t, dir, "git", "init", "-q")
	forktest.Commit(t, dir)
	for _, m := range mails {
		forktest.Write(t, box, m.file, string(m.text))
		forktest.Run(t, dir, "git", "-c", "user.name=t", "-c", "user.email=t@example.com", "am", "-q", "-3", filepath.Join(box, m.file))
	}
	return dir
}

var figures = flag.Bool("figures", false, "measure what the texts say of the release and of each patch")

//go:embed figures.go.txt
var program string

// The figures of the texts: run it with -v -args -figures, and copy what it prints.
func TestFigures(t *testing.T) {
	if !*figures {
		t.Skip("-figures is not given")
	}
	mails := patches(t)
	trees := [][]patchMail{nil}
	for i := range mails {
		trees = append(trees, mails[i:i+1])
	}
	var rows [][]string
	for i, applied := range append(trees, mails) {
		dir := patched(t, applied)
		forktest.Write(t, dir, "figures/main.go", program)
		if err := os.CopyFS(filepath.Join(dir, "internal/fakeapi"), os.DirFS("../../internal/fakeapi")); err != nil {
			t.Fatal(err)
		}
		for j, line := range strings.Split(strings.TrimSpace(forktest.Run(t, dir, "go", "run", "-trimpath", "./figures")), "\n") {
			name, figure, _ := strings.Cut(strings.TrimSpace(line), "\t")
			if i == 0 {
				rows = append(rows, []string{name})
			} else if figure == rows[j][1] {
				figure = "="
			}
			rows[j] = append(rows[j], figure)
		}
	}
	fmt.Printf("\n%s, %s, %d cores, in one run\n\n| | %s | 1 | 2 | 3 | 4 | 5 | all |\n|---|---|---|---|---|---|---|---|\n",
		time.Now().Format(time.DateOnly), runtime.Version(), runtime.NumCPU(), newest)
	same := "| The same for all | |\n|---|---|\n"
	for _, row := range rows {
		if line := strings.Join(row, " | "); strings.HasSuffix(line, strings.Repeat(" | =", len(trees))) {
			same += "| " + row[0] + " | " + row[1] + " |\n"
		} else {
			fmt.Printf("| %s |\n", line)
		}
	}
	fmt.Printf("\n%s\n", same)
}
