// SPDX-License-Identifier: Apache-2.0

// Package ways tests both installations, MapperProvider and the fork, with a
// controller-runtime, the k8s.io that belongs to it, and the Go that is installed:
//
//	GOTOOLCHAIN=go1.24.13 go test ./hack/ways -v -timeout 1h -args -lines v0.21.0,v0.22.5
//
// With -k8s it is another k8s.io. The rows of docs/compatibility.md are those of the matrix in
// .github/workflows/nightly.yml.
package ways

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freshmapper/freshmapper"
	"github.com/freshmapper/freshmapper/hack/fork/consumer"
	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// operator is a program, with stock's mapper and with ours.
//
//go:embed operator.txt
var operator string

var (
	lines = flag.String("lines", tree.Lines[0].Newest+","+tree.Newest(), "releases of controller-runtime")
	newer = flag.String("k8s", "", "release of k8s.io, v0.38.0-alpha.2 say; default: what controller-runtime requires")
)

// A version with a new kind comes to a group that a program knows. Stock misses it: else the others would show nothing.
func TestWays(t *testing.T) {
	for _, version := range strings.Split(*lines, ",") {
		t.Run(version, func(t *testing.T) {
			stock := program(t, version)
			t.Run("stock", func(t *testing.T) {
				if said := converse(t, stock); !strings.Contains(said[1], "no matches") {
					t.Errorf("stock finds the version that came: %q", said)
				}
			})
			forked := slices.ContainsFunc(tree.Lines, func(line tree.Line) bool { return line.Newest == version })
			t.Run("provider", func(t *testing.T) { provider(t, clone(t, stock), forked) })
			if forked {
				t.Run("fork", func(t *testing.T) { // the very program that runs on stock finds what it missed
					dir := clone(t, stock)
					err := consumer.Into(context.Background(), consumer.Request{Dir: dir, Ours: freshmapper.Source, Self: "fork", Out: io.Discard})
					if err != nil {
						t.Fatal(err)
					}
					findsAll(t, dir)
				})
			}
		})
	}
}

// provider takes this module as any other: go.mod gains one requirement, and nothing else moves but spew. k8s.io v0.32
// requires a commit of it that is newer than what v0.33 to v0.35 require; only an exclude would help, and "go run
// .../hack/fork@version" refuses a module that has one. A controller-runtime older than the fork's also gets the k8s.io
// of this module.
func provider(t *testing.T, dir string, forked bool) {
	others := func() (lines []string) {
		for _, line := range strings.Split(forktest.Text(t, dir, "go.mod"), "\n") {
			if line != "" && !strings.Contains(line, tree.Ours) && !strings.Contains(line, "github.com/davecgh/go-spew") {
				lines = append(lines, line)
			}
		}
		return lines
	}
	before := others()
	if err := os.Remove(filepath.Join(dir, "stock.go")); err != nil {
		t.Fatal(err)
	}
	forktest.Write(t, dir, "fresh.go", tree.Archive(operator)["fresh.go"])
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	forktest.Run(t, dir, "go", "mod", "edit", "-require="+tree.Ours+"@v0.0.0", "-replace="+tree.Ours+"="+root)
	forktest.Run(t, dir, "go", "mod", "tidy")
	if diff := cmp.Diff(before, others()); forked && diff != "" {
		t.Errorf("what else changed in go.mod (-before +after):\n%s", diff)
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

// program writes a tidy program that uses controller-runtime's own mapper.
func program(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	oldest := strings.TrimSpace(forktest.Run(t, dir, "go", "list", "-m", "-f", "{{.GoVersion}}", tree.Module+"@"+version))
	forktest.Write(t, dir, "go.mod", fmt.Sprintf("module example.com/operator\n\ngo %s\n\nrequire %s %s\n", oldest, tree.Module, version))
	for _, name := range []string{"main.go", "stock.go"} {
		forktest.Write(t, dir, name, tree.Archive(operator)[name])
	}
	if *newer != "" {
		forktest.Run(t, dir, "go", "get", "k8s.io/api@"+*newer, "k8s.io/apiextensions-apiserver@"+*newer, "k8s.io/client-go@"+*newer)
	}
	forktest.Run(t, dir, "go", "mod", "tidy")
	return dir
}

func clone(t *testing.T, dir string) string {
	t.Helper()
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return copied
}

// converse runs a program, asks it for a kind before and for another after the version
// has come, and returns its answers.
func converse(t *testing.T, dir string) []string {
	t.Helper()
	api := fakeapi.New(group("v1", "Widget"))
	server := httptest.NewServer(api)
	defer server.Close()
	command := filepath.Join(t.TempDir(), "operator")
	forktest.Run(t, dir, "go", "run", "-exec", "cp", ".", command) // keeps what it has linked, which go build does not

	var stderr strings.Builder
	cmd := exec.Command(command, server.URL)
	cmd.Stderr = &stderr
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewScanner(stdout)
	ask := func(kind string) string {
		fmt.Fprintln(stdin, kind)
		answers.Scan()
		return answers.Text()
	}
	first := ask("Widget.widgets.example.com")
	api.PutVersion("widgets.example.com", group("v2", "Gadget").Versions[0])
	second := ask("Gadget.widgets.example.com")
	if err := errors.Join(stdin.Close(), cmd.Wait()); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	return []string{first, second}
}

func group(version, kind string) fakeapi.Group {
	return fakeapi.Group{Name: "widgets.example.com", Versions: []fakeapi.Version{{
		Name: version, Resources: []fakeapi.Resource{{Name: strings.ToLower(kind) + "s", Kind: kind, Namespaced: true}},
	}}}
}
