// SPDX-License-Identifier: Apache-2.0

// Package forktest has what the tests of hack/fork and hack/stage share: a small
// stand-in for our sources, and a program that uses controller-runtime.
package forktest

import (
	"bytes"
	_ "embed"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/freshmapper/freshmapper"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// sources are a small mapper that compiles in place of upstream's mapper, in the
// layout of the real one.
//
//go:embed ours.txt
var sources string

// Ours is that mapper, with the real clients and caches.
func Ours() fstest.MapFS {
	ours := fstest.MapFS{"apiutil/testdata/small.json": {Data: []byte("{}\n")}}
	for name, text := range tree.Archive(sources) {
		ours[name] = &fstest.MapFile{Data: []byte(text)}
	}
	real, _ := tree.Read(freshmapper.Source) // it is embedded
	for name, data := range real {
		if name == "fresh.txt" || strings.HasPrefix(name, "internal/follow/") {
			ours[name] = &fstest.MapFile{Data: data}
		}
	}
	return ours
}

// Newer is another mapper.
func Newer() fstest.MapFS { return Edited("apiutil/more.go", "package apiutil\n") }

// Edited is Ours with one file replaced.
func Edited(name, text string) fstest.MapFS {
	ours := maps.Clone(Ours())
	ours[name] = &fstest.MapFile{Data: []byte(text)}
	return ours
}

// Consumer makes a program that uses nothing of controller-runtime but a mapper. It
// returns the folder.
func Consumer(t *testing.T) string {
	t.Helper()
	return Program(t, tree.Module+"/pkg/client/apiutil", "_, _ = apiutil.NewDynamicRESTMapper(nil, nil)")
}

// tidied are go.mod and go.sum of programs, by what they import.
var tidied sync.Map

// Program makes a program that imports one package and runs one statement, tidy and
// committed to a git repository of its own. It returns the folder.
func Program(t *testing.T, imported, statement string) string {
	t.Helper()
	dir := t.TempDir()
	Write(t, dir, "main.go", "package main\n\nimport \""+imported+"\"\n\nfunc main() { "+statement+" }\n")
	if known, ok := tidied.Load(imported); ok {
		Write(t, dir, "go.mod", known.([2]string)[0])
		Write(t, dir, "go.sum", known.([2]string)[1])
	} else {
		Write(t, dir, "go.mod", "module example.com/operator\n\ngo 1.26.0\n\n"+
			"require "+tree.Module+" "+tree.Newest()+"\n")
		Run(t, dir, "go", "mod", "tidy")
		tidied.Store(imported, [2]string{Text(t, dir, "go.mod"), Text(t, dir, "go.sum")})
	}
	Run(t, dir, "git", "init", "-q")
	Commit(t, dir)
	return dir
}

func Commit(t *testing.T, dir string) {
	t.Helper()
	Run(t, dir, "git", "add", "-A")
	Run(
		t,
		dir,
		"git",
		"-c",
		"user.name=t",
		"-c",
		"user.email=t@example.com",
		"commit",
		"-q",
		"-m",
		"all",
		"--allow-empty",
	)
}

func Write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := tree.Write(dir, name, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func Text(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Run runs a command in dir and returns what it wrote to stdout.
func Run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	var stderr strings.Builder
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stderr = dir, &stderr
	cmd.Env = append(cmd.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, &stderr)
	}
	return string(out)
}

// A Command is run with its arguments, and returns its exit code.
type Command func(args []string, stdout, stderr io.Writer) int

// Says runs a command, and wants these texts on its stdout.
func (run Command) Says(t *testing.T, args string, wants ...string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(strings.Fields(args), &stdout, &stderr); code != 0 {
		t.Fatalf("%q: exit code %d\n%s%s", args, code, &stdout, &stderr)
	}
	for _, want := range wants {
		if said := stdout.String(); !strings.Contains(said, want) || strings.Contains(said, "%!") {
			t.Errorf("%q does not say %q, but\n%s", args, want, said)
		}
	}
}

// Refuses runs a command with each of these arguments, and wants one line on stderr, with this
// text in it, and nothing on stdout.
func (run Command) Refuses(t *testing.T, tests map[string]string) {
	t.Helper()
	for args, want := range tests {
		var stdout, stderr bytes.Buffer
		code := run(strings.Fields(args), &stdout, &stderr)
		if said := stderr.String(); code != 1 || !strings.Contains(said, want) || strings.Count(said, "\n") != 1 ||
			stdout.Len() > 0 {
			t.Errorf(
				"%q: want exit code 1 and one line with %q on stderr; got code %d, stderr %q, stdout %q",
				args,
				want,
				code,
				said,
				&stdout,
			)
		}
	}
}

// Clean fails the test unless git finds dir as it was committed.
func Clean(t *testing.T, dir string) {
	t.Helper()
	if status := Run(t, dir, "git", "status", "--porcelain", "--ignored"); status != "" {
		t.Errorf("git status:\n%s", status)
	}
}

// Snapshot maps every file below dir, git's own aside, to its mode and digest, and what else
// is there to what it is, so that two moments can be compared.
func Snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	seen := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.Name() == ".git":
			return fs.SkipDir
		case !entry.Type().IsRegular():
			seen[name] = entry.Type().String()
			return nil
		}
		info, err := entry.Info()
		if err == nil {
			seen[name] = info.Mode().String() + " " + tree.Digest([]byte(Text(t, dir, name)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

// Same fails the test unless two snapshots are equal.
func Same(t *testing.T, before, after map[string]string) {
	t.Helper()
	all := maps.Clone(before)
	maps.Copy(all, after)
	for name := range all {
		if was, is := before[name], after[name]; was != is {
			t.Errorf("%s should be as it was, %q, and is %q", name, was, is)
		}
	}
}
