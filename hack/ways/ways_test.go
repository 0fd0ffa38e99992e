// SPDX-License-Identifier: Apache-2.0

// Package ways tests both ways in, MapperProvider and the fork, with every
// supported controller-runtime and the k8s.io that belongs to it. TestCompatibility
// does so with the oldest Go and the newest, and writes a page: hack/test.sh -compatibility.
package ways

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freshmapper/freshmapper"
	"github.com/freshmapper/freshmapper/hack/fork/consumer"
	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// spew is the one module that moves, with v0.21 to v0.23, from v1.1.1 to the
// commit after it: k8s.io v0.32 requires that, and v0.33 to v0.35 went back. Only
// an exclude would help, and with one "go run .../hack/fork@version" is refused.
const spew = "github.com/davecgh/go-spew"

// Through MapperProvider the module is taken as any other: go.mod gains one
// requirement, and nothing else moves.
func TestProvider(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles controller-runtime six times")
	}
	for _, line := range tree.Lines {
		t.Run(line.Newest, func(t *testing.T) { provider(t, line.Newest) })
	}
}

func provider(t *testing.T, version string) {
	dir := operator(t, version)
	before, versions := requirements(t, dir), modules(t, dir)
	stock := t.TempDir()
	if err := os.CopyFS(stock, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}

	adopt(t, dir)
	after := requirements(t, dir)
	if _, ok := after[tree.Ours]; !ok {
		t.Errorf("no requirement on %s in go.mod", tree.Ours)
	}
	delete(after, tree.Ours)
	delete(before, spew)
	delete(after, spew)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("what else changed in go.mod (-before +after):\n%s", diff)
	}
	for module, version := range modules(t, dir) {
		if was, ok := versions[module]; ok && was != version && module != spew {
			t.Errorf("%s moved from %s to %s", module, was, version)
		}
	}
	t.Run("runs", func(t *testing.T) {
		if said := converse(t, stock); !strings.Contains(said[1], "no matches") {
			t.Errorf("with stock the program is to miss the version that came, else this test shows nothing: %q", said)
		}
		findsAll(t, dir)
	})
}

// With the fork the very program that runs on stock finds what it missed.
func TestFork(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles controller-runtime six times")
	}
	for _, line := range tree.Lines {
		t.Run(line.Newest, func(t *testing.T) { fork(t, line.Newest) })
	}
}

func fork(t *testing.T, version string) {
	dir := operator(t, version)
	r := consumer.Request{Dir: dir, Ours: freshmapper.Source, Self: "fork", Out: io.Discard}
	if err := consumer.Into(context.Background(), r); err != nil {
		t.Fatal(err)
	}
	findsAll(t, dir)
}

func findsAll(t *testing.T, dir string) {
	t.Helper()
	want := []string{"found widgets.example.com/v1 widgets", "found widgets.example.com/v2 gadgets"}
	if diff := cmp.Diff(want, converse(t, dir)); diff != "" {
		t.Errorf("the program with this mapper said (-want +got):\n%s", diff)
	}
}

// operator writes a tidy program that uses controller-runtime's own mapper.
func operator(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	_, oldest := required(t, version)
	forktest.Write(t, dir, "go.mod", "module example.com/operator\n\ngo "+oldest+"\n")
	copyTo(t, dir, "main.go")
	copyTo(t, dir, "stock.go")
	forktest.Run(t, dir, "go", "mod", "edit", "-require="+tree.Module+"@"+version)
	forktest.Run(t, dir, "go", "mod", "tidy")
	return dir
}

// required are the k8s.io that a release of controller-runtime requires, and the
// oldest Go that it builds with.
func required(t *testing.T, version string) (kubernetes, oldest string) {
	t.Helper()
	var module struct{ GoMod string }
	decode(t, forktest.Stdout(t, t.TempDir(), "go", "mod", "download", "-json", tree.Module+"@"+version), &module)
	var mod struct {
		Go      string
		Require []struct{ Path, Version string }
	}
	decode(t, forktest.Stdout(t, t.TempDir(), "go", "mod", "edit", "-json", module.GoMod), &mod)
	for _, require := range mod.Require {
		if require.Path == "k8s.io/client-go" {
			kubernetes = require.Version
		}
	}
	return kubernetes, mod.Go
}

// adopt puts this mapper in the place of controller-runtime's.
func adopt(t *testing.T, dir string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, "stock.go")); err != nil {
		t.Fatal(err)
	}
	copyTo(t, dir, "fresh.go")
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	forktest.Run(t, dir, "go", "mod", "edit", "-require="+tree.Ours+"@v0.0.0", "-replace="+tree.Ours+"="+root)
	forktest.Run(t, dir, "go", "mod", "tidy")
	forktest.Run(t, dir, "go", "vet", ".")
}

func copyTo(t *testing.T, dir, name string) {
	t.Helper()
	forktest.Write(t, dir, name, forktest.Text(t, "testdata", name))
}

// requirements are those of go.mod, the go and toolchain directives with them.
func requirements(t *testing.T, dir string) map[string]string {
	t.Helper()
	var mod struct {
		Go, Toolchain string
		Require       []struct {
			Path, Version string
			Indirect      bool
		}
	}
	decode(t, forktest.Stdout(t, dir, "go", "mod", "edit", "-json"), &mod)
	all := map[string]string{"go": mod.Go, "toolchain": mod.Toolchain}
	for _, r := range mod.Require {
		all[r.Path] = fmt.Sprintf("%s indirect=%v", r.Version, r.Indirect)
	}
	return all
}

// modules are the versions that the build list has.
func modules(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, line := range strings.Split(forktest.Stdout(t, dir, "go", "list", "-m", "all"), "\n") {
		if words := strings.Fields(line); len(words) > 1 {
			all[words[0]] = words[1]
		}
	}
	return all
}

func decode(t *testing.T, text string, to any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), to); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
}

// converse runs the program while a version with a new kind comes to a group
// that it knows, and returns its answers.
func converse(t *testing.T, dir string) []string {
	t.Helper()
	api := fakeapi.New(group("v1", "Widget"))
	server := httptest.NewServer(api)
	defer server.Close()
	program := filepath.Join(t.TempDir(), "operator")
	forktest.Run(t, dir, "go", "run", "-exec", "cp", ".", program) // keeps what it has linked, which go build does not

	cmd := exec.Command(program, server.URL)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdin, stdout := pipes(t, cmd)
	answers := bufio.NewScanner(stdout)
	first := ask(stdin, answers, "Widget.widgets.example.com")
	api.PutVersion("widgets.example.com", group("v2", "Gadget").Versions[0])
	second := ask(stdin, answers, "Gadget.widgets.example.com")
	if err := errors.Join(stdin.Close(), cmd.Wait()); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	return []string{first, second}
}

func pipes(t *testing.T, cmd *exec.Cmd) (io.WriteCloser, io.Reader) {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return stdin, stdout
}

func ask(stdin io.Writer, answers *bufio.Scanner, kind string) string {
	fmt.Fprintln(stdin, kind)
	answers.Scan()
	return answers.Text()
}

func group(version, kind string) fakeapi.Group {
	return fakeapi.Group{Name: "widgets.example.com", Versions: []fakeapi.Version{{
		Name: version, Resources: []fakeapi.Resource{{Name: strings.ToLower(kind) + "s", Kind: kind, Namespaced: true}},
	}}}
}
