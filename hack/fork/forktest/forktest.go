// SPDX-License-Identifier: Apache-2.0

// Package forktest has what the tests of hack/fork and hack/stage share: a small
// stand-in for our sources, and a program that uses controller-runtime.
package forktest

import (
	"embed"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// sources are a small mapper that compiles in the place of upstream's, in the
// layout of the real one. They are no Go files here, because they would be a
// package of this module.
//
//go:embed ours
var sources embed.FS

// Ours is that mapper.
func Ours() fstest.MapFS {
	ours := fstest.MapFS{"apiutil/testdata/small.json": {Data: []byte("{}\n")}}
	err := fs.WalkDir(sources, "ours", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := sources.ReadFile(name)
		ours[strings.TrimSuffix(strings.TrimPrefix(name, "ours/"), ".txt")] = &fstest.MapFile{Data: data}
		return err
	})
	if err != nil {
		panic(err) // of files in the program
	}
	return ours
}

// Edited is Ours with one file replaced.
func Edited(name, text string) fstest.MapFS {
	ours := maps.Clone(Ours())
	ours[name] = &fstest.MapFile{Data: []byte(text)}
	return ours
}

// tidied are the go.mod and go.sum of programs, by what they import.
var tidied sync.Map

// Consumer makes a program that uses nothing of controller-runtime but a mapper. It
// returns the folder.
func Consumer(t *testing.T) string {
	t.Helper()
	return Program(t, tree.Module+"/pkg/client/apiutil", "_, _ = apiutil.NewDynamicRESTMapper(nil, nil)")
}

// Program makes a program that imports one package and runs one statement, tidy and
// committed to a git repository of its own. It returns the folder.
func Program(t *testing.T, imported, statement string) string {
	t.Helper()
	dir := t.TempDir()
	Write(t, dir, "go.mod", "module example.com/operator\n\ngo 1.26.0\n\nrequire "+tree.Module+" "+tree.Newest()+"\n")
	Write(t, dir, "main.go", "package main\n\nimport \""+imported+"\"\n\nfunc main() { "+statement+" }\n")
	if known, ok := tidied.Load(imported); ok {
		files := known.([2]string)
		Write(t, dir, "go.mod", files[0])
		Write(t, dir, "go.sum", files[1])
	} else {
		Run(t, dir, "go", "mod", "tidy")
		tidied.Store(imported, [2]string{Text(t, dir, "go.mod"), Text(t, dir, "go.sum")})
	}
	Run(t, dir, "git", "init", "-q")
	Commit(t, dir)
	return dir
}

// Commit commits all there is in dir.
func Commit(t *testing.T, dir string) {
	t.Helper()
	Run(t, dir, "git", "add", "-A")
	Run(t, dir, "git", "-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-q", "-m", "all", "--allow-empty")
}

// Write writes a file below dir.
func Write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := (tree.File{Data: []byte(text)}).Write(dir, name); err != nil {
		t.Fatal(err)
	}
}

// Text reads a file below dir.
func Text(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Run runs a command in dir and returns what it wrote.
func Run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	var out strings.Builder
	run(t, &out, &out, dir, name, args)
	return out.String()
}

// Stdout is Run without what the command wrote to stderr.
func Stdout(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	var out, stderr strings.Builder
	run(t, &out, &stderr, dir, name, args)
	return out.String()
}

func run(t *testing.T, stdout, stderr *strings.Builder, dir, name string, args []string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, stdout, stderr
	cmd.Env = append(cmd.Environ(), "GOWORK=off")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr)
	}
}

// Clean fails the test unless git finds dir as it was committed.
func Clean(t *testing.T, dir string) {
	t.Helper()
	if status := Run(t, dir, "git", "status", "--porcelain", "--ignored"); status != "" {
		t.Errorf("git status:\n%s", status)
	}
}

// Snapshot maps every file and folder below dir, git's own aside, to its mode
// and digest, so that two moments can be compared.
func Snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	seen := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name == ".git" {
			return fs.SkipDir
		}
		info, err := entry.Info()
		if err != nil || entry.IsDir() {
			seen[name] = "folder"
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		seen[name] = info.Mode().String() + " " + tree.Digest(data)
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
			t.Errorf("%s: was %q, is %q", name, was, is)
		}
	}
}

// Chdir is t.Chdir, which Go 1.23 does not have.
func Chdir(t *testing.T, dir string) {
	t.Helper()
	was, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chdir(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Chdir(was); err != nil {
			t.Error(err)
		}
	})
}
