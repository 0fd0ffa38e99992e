// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/freshmapper/freshmapper"
	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// asCommand makes the test binary be the command, with the stand-in sources: so tests can send it signals.
const asCommand = "FORK_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(run(os.Args[1:], forktest.Ours(), os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

var command forktest.Command = func(args []string, stdout, stderr io.Writer) int {
	return run(args, forktest.Ours(), stdout, stderr)
}

func TestUsage(t *testing.T) {
	command.Refuses(t, map[string]string{
		"":                       "give -into DIR, -check DIR or -o DIR",
		"-into a -o b":           "not both",
		"-undo -o b":             "-undo goes with -into",
		"-undo":                  "give -into DIR, -check DIR or -o DIR",
		"-check a -force":        "-check changes nothing",
		"-check a -into b":       "not both",
		"-check absent":          "absent is not a folder",
		"-check a -version v1":   "-version goes with -o",
		"-into a -full":          "-full goes with -o",
		"-into a -version v1":    "-version goes with -o",
		"-into a b":              `unexpected argument "b"`,
		"-frobnicate":            "frobnicate",
		"-o b -nobuild":          "-nobuild goes with -into",
		"-into":                  "needs an argument",
		"-o b -version v0.19.0":  "v0.19.0 is not supported",
		"-into a -undo -nobuild": "-nobuild goes with -into, and not with -undo",
		"-o b -version 0.25.2":   "a version begins with a v, as v0.25.2 does",
		"-version v0.19.0":       "v0.19.0 is not supported",
		// Whatever the newest release is, it is not this one.
		"-version v0.20.99": "v0.20.99 is not available: the newest release of v0.20 is v0.20.4",
	})
	command.Says(t, "-version v0.20.4", "v0.20.4 is available")
	command.Says(t, "-h", "-into DIR", "-undo", "-check DIR", "-o DIR", "-version", "-V", "-force", tree.Newest(), "Examples")
}

// A program that requires a release that is not there is told which one is the newest, as -version tells it.
func TestAbsentRelease(t *testing.T) {
	dir := t.TempDir()
	forktest.Write(t, dir, "main.go", "package main\n\nimport _ \""+tree.Module+"/pkg/client\"\n\nfunc main() {}\n")
	forktest.Write(t, dir, "go.mod", "module example.com/operator\n\ngo 1.26.0\n\nrequire "+tree.Module+" v0.20.99\n")
	var stdout, stderr bytes.Buffer
	code := command([]string{"-into", dir}, &stdout, &stderr)
	if want := "v0.20.99 is not available: the newest release of v0.20 is v0.20.4"; code != 1 || !strings.Contains(stderr.String(), want) {
		t.Errorf("exit code %d and %q, want 1 and %q", code, &stderr, want)
	}
}

// atBuild sends a signal to the command that writes to it when its build begins.
type atBuild struct {
	cmd *exec.Cmd
	sig os.Signal
}

func (a atBuild) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("go build")) {
		return len(p), a.cmd.Process.Signal(a.sig)
	}
	return len(p), nil
}

// An interrupted run says so, and leaves all as it was. What a killed one leaves, the next run clears away.
func TestSignals(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, os.Kill} {
		t.Run(sig.String(), func(t *testing.T) {
			dir := forktest.Consumer(t)
			before := forktest.Snapshot(t, dir)
			var stderr bytes.Buffer
			cmd := exec.Command(self, "-into", dir)
			cmd.Env = append(os.Environ(), asCommand+"=1")
			cmd.Stdout, cmd.Stderr = atBuild{cmd, sig}, &stderr
			if err := cmd.Run(); err == nil {
				t.Errorf("the run ended well in spite of %s", sig)
			}
			if sig == os.Kill {
				command.Says(t, "-into "+dir, "done: ")
				command.Says(t, "-check "+dir, "ok")
				command.Says(t, "-undo -into "+dir, "as it was")
			} else if said := stderr.String(); !strings.HasPrefix(said, "fork: interrupted; ") || strings.Count(said, "\n") != 1 {
				t.Errorf("want one line that says that it was interrupted, got %q", said)
			}
			forktest.Same(t, before, forktest.Snapshot(t, dir))
		})
	}
}

// -V tells mappers apart.
func TestVersion(t *testing.T) {
	var said, other bytes.Buffer
	run([]string{"-V"}, forktest.Ours(), &said, &said)
	run([]string{"-V"}, forktest.Newer(), &other, &other)
	if other.String() == said.String() {
		t.Errorf("with another mapper -V says the same: %s", &other)
	}
	for _, flag := range []string{"-V", "-version", "--version"} {
		command.Says(t, flag, said.String(), tree.Newest())
	}
}

// -o writes a tree, of what a program compiles or with -full of all, into a new or empty folder, or takes over changes.
func TestTree(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "tree")
	command.Says(t, "-o "+dir, "done: "+dir+" holds "+tree.Module+" "+tree.Newest())
	first := forktest.Snapshot(t, filepath.Dir(dir))
	command.Says(t, "-o "+dir, "nothing to do: ")
	forktest.Same(t, first, forktest.Snapshot(t, filepath.Dir(dir)))
	forktest.Write(t, dir, ".DS_Store", "what a desktop drops is no edit")
	command.Says(t, "-o "+dir, "nothing to do: ")
	forktest.Write(t, dir, "alias.go", "")
	forktest.Write(t, dir, "../.tree.freshmapper-tmp/x", "what a run leaves that was killed")
	command.Says(t, "-force -o "+dir, "done: ")
	forktest.Same(t, first, forktest.Snapshot(t, filepath.Dir(dir)))

	dir = t.TempDir()
	command.Says(t, "-o "+dir, "done: ")
	for name, want := range map[string]bool{
		"go.mod": true, "go.sum": true, "LICENSE": true, "README.md": true, "alias.go": true, "pkg/manager/manager.go": true, "pkg/client/fake/client.go": true, "pkg/client/following.go": true,
		"examples": false, "hack": false, "designs": false, "Makefile": false, "pkg/webhook/conversion/testdata": false, "pkg/manager/manager_test.go": false,
		"pkg/client/following_other_test.go": false, "pkg/client/apiutil/testdata": false, "pkg/client/apiutil/internal/fakeapi": false,
	} {
		if got := tree.Exists(filepath.Join(dir, name)); got != want {
			t.Errorf("the tree has %s: %v, want %v, because it has what a program compiles", name, got, want)
		}
	}
	var out bytes.Buffer
	if code := run([]string{"-o", dir, "-full"}, forktest.Newer(), &out, &out); code != 0 {
		t.Fatalf("-full over a tree of an older mapper: %s", &out)
	}
	for _, name := range []string{"examples", "pkg/manager/manager_test.go", "pkg/client/apiutil/more.go"} {
		if !tree.Exists(filepath.Join(dir, name)) {
			t.Errorf("after -full of a newer mapper there is no %s", name)
		}
	}
}

// -o leaves alone what it did not write, and says in one line what that is.
func TestTreeRefuses(t *testing.T) {
	template := filepath.Join(t.TempDir(), "tree")
	command.Says(t, "-o "+template, "done: ")
	manifest := filepath.Join(tree.Meta, "manifest.json")
	replace := func(old, new string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			forktest.Write(t, dir, manifest, strings.Replace(forktest.Text(t, dir, manifest), old, new, 1))
		}
	}
	remove := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { forktest.Run(t, dir, "rm", "-r", name) }
	}
	tests := map[string]struct {
		spoil func(t *testing.T, dir string)
		args  string
		want  string
	}{
		"not ours":     {remove(tree.Meta), "-o DIR -force", "is not empty and was not written by this tool"},
		"a consumer's": {replace(`"files": {`, `"saved": {"go.mod": {}}, "files": {`), "-o DIR -force", "use -into again"},
		"newer":        {replace(`"format": 1`, `"format": 99`), "-o DIR -force", "format 99"},
		"four edits": {func(t *testing.T, dir string) {
			forktest.Write(t, dir, "alias.go", "")
			forktest.Write(t, dir, "pkg/added.go", "")
			remove("pkg/client/client.go")(t, dir)
			forktest.Run(t, dir, "ln", "-s", "go.mod", "link")
		}, "-o DIR", "was edited by hand (files: 4, the first: changed alias.go)"},
		"below a file": {func(*testing.T, string) {}, "-o DIR/alias.go/x", "not a directory"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "tree")
			if err := os.CopyFS(dir, os.DirFS(template)); err != nil {
				t.Fatal(err)
			}
			test.spoil(t, dir)
			before := forktest.Snapshot(t, filepath.Dir(dir))
			command.Refuses(t, map[string]string{strings.Replace(test.args, "DIR", dir, 1): test.want})
			forktest.Same(t, before, forktest.Snapshot(t, filepath.Dir(dir)))
		})
	}
}

// The real sources in a program that uses little of controller-runtime: its go.sum must suffice for what we import.
func TestRealSources(t *testing.T) {
	dir := forktest.Program(t, "sigs.k8s.io/controller-runtime/pkg/client", "_, _ = client.New(nil, client.Options{})")
	var said bytes.Buffer
	if code := run([]string{"-into", dir}, freshmapper.Source, &said, &said); code != 0 || strings.Contains(said.String(), "-mod=mod") {
		t.Fatalf("want a build with the program's own go.sum, got exit code %d and\n%s", code, &said)
	}
	command.Says(t, "-undo -into "+dir, "as it was")
	forktest.Clean(t, dir)
}
