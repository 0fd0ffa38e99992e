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
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/freshmapper/freshmapper"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// sources are a small mapper that compiles in the place of upstream's, in the
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
	real, err := tree.Read(freshmapper.Source)
	if err != nil {
		return nil
	}
	for name, data := range real {
		if name == "fresh.txt" || strings.HasPrefix(name, "internal/follow/") {
			ours[name] = &fstest.MapFile{Data: data}
		}
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
	if err := tree.Write(dir, name, []byte(text)); err != nil {
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

// Usage runs a command with wrong arguments. It wants one line on stderr, with a text in it.
func (run Command) Usage(t *testing.T, tests map[string]string) {
	t.Helper()
	for args, want := range tests {
		var stdout, stderr bytes.Buffer
		code := run(strings.Fields(args), &stdout, &stderr)
		if said := stderr.String(); code != 1 || !strings.Contains(said, want) || strings.Count(said, "\n") != 1 || stdout.Len() > 0 {
			t.Errorf("%s: code %d, stdout %q, stderr %q", args, code, &stdout, said)
		}
	}
}

// Says runs a command that must succeed, and wants these texts on its stdout.
func (run Command) Says(t *testing.T, args string, wants ...string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(strings.Fields(args), &stdout, &stderr)
	for _, want := range wants {
		if code != 0 || !strings.Contains(stdout.String(), want) || strings.Contains(stdout.String(), "%!") {
			t.Errorf("%s: code %d, no %q in\n%s%s", args, code, want, &stdout, &stderr)
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

// Snapshot maps every file and folder below dir, git's own aside, to its mode
// and digest, so that two moments can be compared.
func Snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	seen := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.Name() == ".git":
			return fs.SkipDir
		}
		name, _ = filepath.Rel(dir, name)
		if seen[name] = "folder"; entry.IsDir() {
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
			t.Errorf("%s: was %q, is %q", name, was, is)
		}
	}
}

// Proxy makes the go command get a module with git, from a folder that stands in
// for its host. From then on the go command gets it from a proxy, as it gets all
// else. Proxy returns the module cache, which has nothing of the module before and
// after.
func Proxy(t *testing.T, repository, module string) (cache string) {
	t.Helper()
	// The go command keeps an index of each module version for good. In this test
	// the same version has other contents in each run.
	t.Setenv("GODEBUG", "goindex=0")
	name, _, _ := strings.Cut(module, "@")
	t.Setenv("GOFLAGS", os.Getenv("GOFLAGS")+" -modcacherw") // so that it can be removed
	got := t.TempDir()
	cmd := exec.Command("go", "mod", "download", module)
	cmd.Dir = t.TempDir()
	cmd.Env = append(cmd.Environ(), "GOWORK=off", "GOMODCACHE="+got, "GOPROXY=direct", "GONOSUMDB=*",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://"+filepath.ToSlash(repository)+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+strings.TrimSuffix(name, ".git"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	env := strings.Fields(Run(t, cmd.Dir, "go", "env", "GOMODCACHE", "GOPROXY"))
	owner := path.Dir(name)
	clean := func() {
		for _, has := range []string{owner, filepath.Join("cache", "download", owner)} {
			if err := os.RemoveAll(filepath.Join(env[0], has)); err != nil {
				t.Error(err)
			}
		}
	}
	clean()
	t.Cleanup(clean)
	t.Setenv("GOPROXY", "file://"+filepath.ToSlash(filepath.Join(got, "cache", "download"))+","+env[1])
	t.Setenv("GONOSUMDB", owner)
	return env[0]
}
