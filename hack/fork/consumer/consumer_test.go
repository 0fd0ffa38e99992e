// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// fork runs Into or Undo on dir and returns what it printed.
type fork func(context.Context, Request) error

func (f fork) run(t *testing.T, dir string, edit func(*Request)) (string, error) {
	t.Helper()
	var out bytes.Buffer
	r := Request{Dir: dir, Ours: forktest.Ours(), Self: "fork", Out: &out}
	if edit != nil {
		edit(&r)
	}
	err := f(context.Background(), r)
	return out.String(), err
}

func (f fork) must(t *testing.T, dir string, edit func(*Request)) string {
	t.Helper()
	out, err := f.run(t, dir, edit)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// fails checks that f says all of want, in one line, and changes nothing.
func (f fork) fails(t *testing.T, dir string, edit func(*Request), want ...string) string {
	t.Helper()
	before := forktest.Snapshot(t, dir)
	out, err := f.run(t, dir, edit)
	if err == nil {
		t.Fatalf("no error, but\n%s", out)
	}
	for _, part := range want {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than a line: %q", err)
	}
	forktest.Same(t, before, forktest.Snapshot(t, dir))
	return out
}

func force(r *Request) { r.Force = true }

func with(ours fstest.MapFS) func(*Request) { return func(r *Request) { r.Ours = ours } }

var into, undo fork = Into, Undo

// template is a consumer with the fork in it, made once: a build takes seconds.
var template struct {
	sync.Once
	dir string
}

func TestMain(m *testing.M) {
	code := m.Run()
	if err := os.RemoveAll(template.dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// forked is a copy of the template. Nothing in it knows where it is.
func forked(t *testing.T) string {
	t.Helper()
	template.Do(func() {
		made := forktest.Consumer(t)
		into.must(t, made, nil)
		temp, err := os.MkdirTemp("", "forked-")
		if err == nil {
			err = os.CopyFS(temp, os.DirFS(made))
		}
		if err != nil {
			t.Fatal(err)
		}
		template.dir = temp
	})
	if template.dir == "" {
		t.Fatal("no forked consumer, see the first test")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(template.dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// committed is a file as it was before the fork.
func committed(t *testing.T, dir, name string) string {
	t.Helper()
	return forktest.Run(t, dir, "git", "show", "HEAD:"+name)
}

func TestRoundTrip(t *testing.T) {
	dir := forktest.Consumer(t)
	before := forktest.Snapshot(t, dir)

	out := into.must(t, dir, nil)
	for _, want := range []string{"example.com/operator", tree.Newest(), "build      ok", "undo: fork -into " + dir + " -undo"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if mod := forktest.Text(t, dir, "go.mod"); !strings.Contains(mod, "replace sigs.k8s.io/controller-runtime => ./third_party/controller-runtime\n") {
		t.Errorf("go.mod:\n%s", mod)
	}
	after := forktest.Snapshot(t, dir)
	for name := range after {
		if strings.Contains(name, "freshmapper-") {
			t.Errorf("%s is left over", name)
		}
	}

	if out := check.must(t, dir, nil); !strings.Contains(out, place+" is "+tree.Module+" "+tree.Newest()+" with this mapper inside") {
		t.Errorf("the check said\n%s", out)
	}
	out = into.must(t, dir, nil)
	if !strings.Contains(out, "nothing to do") {
		t.Errorf("the second run said\n%s", out)
	}
	forktest.Same(t, after, forktest.Snapshot(t, dir))

	if out := undo.must(t, dir, nil); !strings.Contains(out, "go.mod     as it was\ngo.sum     as it was\n") {
		t.Errorf("undo said\n%s", out)
	}
	forktest.Same(t, before, forktest.Snapshot(t, dir))
	forktest.Clean(t, dir)
	if out := undo.must(t, dir, nil); !strings.Contains(out, "nothing to undo") {
		t.Errorf("the second undo said\n%s", out)
	}
}

func TestBadInput(t *testing.T) {
	const replaceLine = "\nreplace sigs.k8s.io/controller-runtime => "
	appendMod := func(text string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			forktest.Write(t, dir, "go.mod", forktest.Text(t, dir, "go.mod")+text)
		}
	}
	tests := map[string]struct {
		spoil func(t *testing.T, dir string)
		edit  func(*Request)
		want  []string
	}{
		"no go.mod": {func(t *testing.T, dir string) { remove(t, dir, "go.mod") }, nil, []string{"no go.mod in", "(the go command finds none)"}},
		"no folder": {nil, func(r *Request) { r.Dir = filepath.Join(r.Dir, "absent") }, []string{"absent is no folder"}},
		"a file":    {nil, func(r *Request) { r.Dir = filepath.Join(r.Dir, "main.go") }, []string{"main.go is no folder"}},
		"a package": {func(t *testing.T, dir string) { forktest.Write(t, dir, "pkg/a.go", "package a\n") },
			func(r *Request) { r.Dir = filepath.Join(r.Dir, "pkg") }, []string{"pkg: name the folder of your go.mod (the go command finds " + string(filepath.Separator)}},
		"broken go.mod":  {appendMod("nonsense\n"), nil, []string{"go mod edit", "nonsense"}},
		"not required":   {writeMod("module example.com/operator\n"), nil, []string{"does not require", "go get"}},
		"itself":         {writeMod("module sigs.k8s.io/controller-runtime\n"), nil, []string{"itself"}},
		"ours":           {writeMod("module github.com/freshmapper/freshmapper\n"), nil, []string{"is github.com/freshmapper/freshmapper itself: name the folder of your program"}},
		"old version":    {requireVersion("v0.19.0"), nil, []string{"v0.19.0 is not supported", "v0.25"}},
		"newer version":  {requireVersion("v0.99.0"), nil, []string{"go.mod requires a release that has no fork", "v0.99.0 is not supported"}},
		"pre-release":    {requireVersion("v0.25.0-alpha.1"), nil, []string{"v0.25.0-alpha.1"}},
		"foreign folder": {appendMod(replaceLine + "../mine\n"), nil, []string{"replaces", "../mine", "-dropreplace"}},
		"foreign module": {appendMod(replaceLine + "example.com/fork v1.2.3\n"), nil, []string{"example.com/fork v1.2.3"}},
		"one version": {appendMod("\nreplace sigs.k8s.io/controller-runtime v0.25.2 => ./third_party/controller-runtime\n"), nil,
			[]string{"not this tool's", "(go mod edit -dropreplace=sigs.k8s.io/controller-runtime@v0.25.2)"}},
		"occupied": {func(t *testing.T, dir string) { forktest.Write(t, dir, place+"/go.mod", "module m\n") }, nil, []string{place, "not written by this tool", "restore its .freshmapper/manifest.json"}},
		"occupied, force": {func(t *testing.T, dir string) { forktest.Write(t, dir, place+"/go.mod", "module m\n") }, force,
			[]string{"not written by this tool"}},
		"a file in the way": {func(t *testing.T, dir string) { forktest.Write(t, dir, "third_party", "") }, nil, []string{"third_party", "not a directory"}},
		"overwrite":         {nil, with(forktest.Edited("apiutil/apimachinery.go", "package apiutil\n")), []string{"overwrite", "apimachinery.go"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := forktest.Consumer(t)
			if test.spoil != nil {
				test.spoil(t, dir)
			}
			into.fails(t, dir, test.edit, test.want...)
		})
	}
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func writeMod(text string) func(*testing.T, string) {
	return func(t *testing.T, dir string) { forktest.Write(t, dir, "go.mod", text) }
}

func requireVersion(version string) func(*testing.T, string) {
	return writeMod("module example.com/operator\n\ngo 1.26.0\n\nrequire sigs.k8s.io/controller-runtime " + version + "\n")
}

// In GOFLAGS another file takes the place of go.mod, or go.work takes the tree for a module of
// the user's, as "go work use -r ." does.
func TestNothingIsDoneBehindOthersBack(t *testing.T) {
	dir := forked(t)
	forktest.Write(t, dir, "go.work", "go 1.26.0\n\nuse (\n\t.\n\t./third_party/controller-runtime\n)\n")
	for name, f := range map[string]fork{"into": into, "undo": undo, "check": check} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOFLAGS", "-modfile=other.mod")
			f.fails(t, dir, nil, "-modfile=other.mod", "go.mod")
			t.Setenv("GOFLAGS", "")
			t.Setenv("GOWORK", filepath.Join(dir, "go.work"))
			f.fails(t, dir, nil, "go.work", "go work edit -dropuse=./third_party/controller-runtime")
		})
	}
	t.Setenv("GOWORK", filepath.Join(dir, "go.work"))
	forktest.Run(t, dir, "go", "work", "edit", "-dropuse=./third_party/controller-runtime", "go.work")
	check.must(t, dir, nil)
	forktest.Write(t, dir, "go.work", "go 1.26.0\n\njunk\n")
	into.fails(t, dir, nil, "go.work", "unknown directive: junk")
}
