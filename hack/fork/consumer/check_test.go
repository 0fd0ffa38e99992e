// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

var check fork = Check

func TestCheckFails(t *testing.T) {
	const replaceWith = "-replace=" + tree.Module + "="
	newerMapper := with(forktest.Edited("apiutil/more.go", "package apiutil\n"))
	edit := func(flags ...string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			forktest.Run(t, dir, "go", append([]string{"mod", "edit"}, flags...)...)
		}
	}
	tests := map[string]struct {
		spoil func(t *testing.T, dir string)
		edit  func(*Request)
		want  []string
	}{
		"no folder":    {nil, func(r *Request) { r.Dir += "/absent" }, []string{"absent is no folder"}},
		"not required": {writeMod("module example.com/operator\n"), nil, []string{"does not require"}},
		"ours":         {writeMod("module github.com/freshmapper/freshmapper\n"), nil, []string{"is github.com/freshmapper/freshmapper itself: name the folder of your program"}},
		"no fork": {func(t *testing.T, dir string) {
			undo.must(t, dir, nil)
		}, nil, []string{"has no fork of", "run fork -into"}},
		"another version is required":        {edit("-require=" + tree.Module + "@v0.25.0"), nil, []string{"is sigs.k8s.io/controller-runtime v0.25.2, but", "requires v0.25.0", "run fork -into"}},
		"an unsupported version is required": {edit("-require=" + tree.Module + "@v0.19.0"), nil, []string{"v0.19.0 is not supported", "v0.25"}},
		"an unsupported version, no fork":    {requireVersion("v0.19.7"), nil, []string{"v0.19.7 is not supported", "v0.19 can use the provider"}},
		"another mapper":                     {nil, newerMapper, []string{"another mapper", "run fork -into"}},
		"edited":                             {func(t *testing.T, dir string) { forktest.Write(t, dir, place+"/alias.go", "") }, nil, []string{"changed alias.go", "-force"}},
		"incomplete": {func(t *testing.T, dir string) { remove(t, dir, place+"/pkg/client") }, nil,
			[]string{"removed pkg/client/", "gitignore", "run fork -into"}},
		"missing": {func(t *testing.T, dir string) { remove(t, dir, place) }, nil, []string{"is missing", "gitignore", "run fork -into"}},
		"another folder": {func(t *testing.T, dir string) {
			forktest.Write(t, dir, "mine/go.mod", "module "+tree.Module+"\n")
			edit(replaceWith+"./mine")(t, dir)
		}, nil, []string{"was not written by this tool", "restore .freshmapper/manifest.json"}},
		"a tag that is old":    {edit(replaceWith + "example.invalid/fork@v0.24.1-fresh.2"), nil, []string{"requires sigs.k8s.io/controller-runtime v0.25.2, but", "run go get sigs.k8s.io/controller-runtime@v0.24.1 in ", "with a tag of v0.25.2"}},
		"a tag of no fork":     {edit(replaceWith + "example.invalid/fork@v0.25.2"), nil, []string{"not one of a fork's"}},
		"an unreadable go.mod": {writeMod("nonsense\n"), nil, []string{"nonsense"}},
	}
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOFLAGS", "-mod=mod")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := forked(t)
			if test.spoil != nil {
				test.spoil(t, dir)
			}
			check.fails(t, dir, test.edit, test.want...)
		})
	}
}

// The checks must help: what they say to run makes them pass.
func TestCheckHelps(t *testing.T) {
	dir := forked(t)
	remove(t, dir, place+"/pkg/client")
	check.fails(t, dir, nil, "run fork -into "+dir+" -force")
	into.must(t, dir, force)
	check.must(t, dir, nil)
	remove(t, dir, place)
	check.fails(t, dir, nil, "or run fork -into "+dir)
	into.must(t, dir, nil)
	check.must(t, dir, nil)
}

func TestCheckOfTag(t *testing.T) {
	dir := forktest.Consumer(t)
	version := tree.Newest() + "-fresh.3"
	forktest.Run(t, dir, "go", "mod", "edit", "-replace="+tree.Module+"=example.invalid/fork@"+version)
	if out := check.must(t, dir, nil); !strings.Contains(out, "replaced with example.invalid/fork "+version+", as go.mod requires: only the versions were compared, not the module's content") {
		t.Errorf("said\n%s", out)
	}
	for sed, advised := range map[string]bool{"": true, ` | sed -E 's/^v?([0-9]+)\.([0-9]+).*/release-\1.\2/'`: false} {
		forktest.Write(t, dir, "Makefile", "ENVTEST_VERSION ?= $(shell go list -m -f '{{if .Replace}}{{.Replace.Version}}{{end}}' "+tree.Module+sed+")\n")
		if out := check.must(t, dir, nil); strings.Contains(out, "note: Makefile") != advised {
			t.Errorf("with %q: said\n%s", sed, out)
		}
	}
	into.fails(t, dir, nil, "which is a tagged fork: to have the tree", "(go mod edit -dropreplace="+tree.Module+")")
	if out := undo.must(t, dir, nil); !strings.Contains(out, "nothing to undo: ") || !strings.Contains(out, "-dropreplace="+tree.Module+")") {
		t.Errorf("undo said\n%s", out)
	}
}

// go.mod may name a tree that -o wrote, wherever it is.
func TestCheckOfTreeElsewhere(t *testing.T) {
	for flags, full := range map[string]bool{"": false, " -full": true} {
		t.Run("-o"+flags, func(t *testing.T) {
			dir, elsewhere := forktest.Consumer(t), filepath.Join(t.TempDir(), "tree")
			err := tree.Create(context.Background(), tree.Request{
				Dir: elsewhere, Version: tree.Newest(), Ours: forktest.Ours(), Full: full, Out: io.Discard,
			})
			if err != nil {
				t.Fatal(err)
			}
			forktest.Run(t, dir, "go", "mod", "edit", "-replace="+tree.Module+"="+elsewhere)
			check.must(t, dir, nil)
			newer := with(forktest.Edited("apiutil/more.go", "package apiutil\n"))
			check.fails(t, dir, newer, "another mapper", "run fork -o "+elsewhere+" -version "+tree.Newest()+flags)
		})
	}
}

// In a workspace the go command itself fails if a tree is missing, as where a
// .gitignore keeps it from others.
func TestCheckOfMissingTreeInWorkspace(t *testing.T) {
	dir := forked(t)
	forktest.Write(t, dir, "go.work", "go 1.26.0\n\nuse .\n")
	t.Setenv("GOWORK", filepath.Join(dir, "go.work"))
	if err := os.RemoveAll(filepath.Join(dir, "third_party")); err != nil {
		t.Fatal(err)
	}
	check.fails(t, dir, nil, "controller-runtime is missing: commit it", "run fork -into "+dir)
}
