// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

var into, undo, check fork = Into, Undo, Check

// fork is one of these. Its methods run it on a folder.
type fork func(context.Context, Request) error

// run returns what it printed.
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

// says checks that it prints all of want.
func (f fork) says(t *testing.T, dir string, edit func(*Request), want ...string) string {
	t.Helper()
	out := f.must(t, dir, edit)
	for _, part := range want {
		if !strings.Contains(out, part) {
			t.Errorf("it does not say %q, but\n%s", part, out)
		}
	}
	return out
}

// fails checks that its error says all of want, in one line, and that it changes nothing. In want, DIR is the folder.
func (f fork) fails(t *testing.T, dir string, edit func(*Request), want ...string) string {
	t.Helper()
	before := forktest.Snapshot(t, dir)
	out, err := f.run(t, dir, edit)
	if err == nil {
		t.Fatalf("want an error that says %q, got none, but\n%s", want, out)
	}
	for _, part := range append(want, "") {
		if part = strings.ReplaceAll(part, "DIR", dir); !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") {
			t.Errorf("want %q in an error of one line, got %q", part, err)
		}
	}
	forktest.Same(t, before, forktest.Snapshot(t, dir))
	return out
}

func force(r *Request) { r.Force = true }

func with(ours fstest.MapFS) func(*Request) { return func(r *Request) { r.Ours = ours } }

// template is a consumer with the fork in it, made once: a build takes seconds.
var template = fstest.MapFS{}

// forked is a copy of the template. Nothing in it knows where it is.
func forked(t *testing.T) string {
	t.Helper()
	if len(template) == 0 {
		made := forktest.Consumer(t)
		into.must(t, made, nil)
		err := fs.WalkDir(os.DirFS(made), ".", func(name string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				template[name] = &fstest.MapFile{Data: []byte(forktest.Text(t, made, name)), Mode: 0o644}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, template); err != nil {
		t.Fatal(err)
	}
	return dir
}

// committed is a file as it was before the fork.
func committed(t *testing.T, dir, name string) string {
	t.Helper()
	return forktest.Run(t, dir, "git", "show", "HEAD:"+name)
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// A spoiler does something to the program in a folder.
type spoiler func(t *testing.T, dir string)

func write(name, text string) spoiler {
	return func(t *testing.T, dir string) { forktest.Write(t, dir, name, text) }
}

func deleted(name string) spoiler {
	return func(t *testing.T, dir string) { remove(t, dir, name) }
}

func appendMod(text string) spoiler {
	return func(t *testing.T, dir string) { forktest.Write(t, dir, goMod, forktest.Text(t, dir, goMod)+text) }
}

// requires writes a go.mod that requires a release of controller-runtime.
func requires(version string) spoiler {
	return write(goMod, "module example.com/operator\n\ngo 1.26.0\n\nrequire "+tree.Module+" "+version+"\n")
}

// workspace writes a go.work, and lets it count: hack/lib.sh turns it off.
func workspace(text string) spoiler {
	return func(t *testing.T, dir string) {
		t.Setenv("GOWORK", "")
		forktest.Write(t, dir, "other/go.mod", "module example.com/other\n\ngo 1.26.0\n")
		forktest.Write(t, dir, "go.work", "go 1.26.0\n\n"+text)
	}
}

// -into and then -undo leave nothing behind, whatever the program is like. In between -check is
// content, and a second -into has nothing to do.
func TestRoundTrip(t *testing.T) {
	elsewhere := t.TempDir()
	tests := map[string]struct {
		before    spoiler
		edit      func(*Request)
		want      []string // what -into says
		unchecked bool     // -check fails, and other tests say why
	}{
		"plain": {want: []string{"example.com/operator", tree.Newest(), "build      ok", "undo: fork -into DIR -undo"}},
		"mode and untidy text": {before: func(t *testing.T, dir string) {
			forktest.Write(t, dir, goMod, strings.ReplaceAll("// mine\n\n\n"+forktest.Text(t, dir, goMod), "\n", "\r\n"))
			forktest.Run(t, dir, "chmod", "600", goMod)
		}},
		"missing sums": {before: func(t *testing.T, dir string) {
			forktest.Write(t, dir, goSum, withoutLines(forktest.Text(t, dir, goSum), "k8s.io/client-go "))
		}, want: []string{"moved      go.sum: 2 lines\n"}},
		"not built": {edit: func(r *Request) {
			r.NoBuild, r.Ours = true, forktest.Edited("internal/answer/answer.go", "package answer\n") // which would fail
		}},
		"third_party is a link": {before: func(t *testing.T, dir string) { forktest.Run(t, dir, "ln", "-s", elsewhere, "third_party") }},
		"workspace":             {before: workspace("use (\n\t.\n\t./other\n)\n")},
		"workspace of others":   {before: workspace("use ./other\n")},
		"vendor folder of a workspace": {before: func(t *testing.T, dir string) {
			t.Setenv("GOWORK", "")
			forktest.Write(t, dir, "../go.work", "go 1.26.0\n\nuse ./"+filepath.Base(dir)+"\n")
			forktest.Write(t, dir, "../vendor/modules.txt", "")
		}, want: []string{"go work vendor"}, unchecked: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := forktest.Consumer(t)
			if test.before != nil {
				test.before(t, dir)
			}
			before := forktest.Snapshot(t, dir)
			said := into.must(t, dir, test.edit)
			for _, want := range test.want {
				if want = strings.ReplaceAll(want, "DIR", dir); !strings.Contains(said, want) {
					t.Errorf("-into does not say %q, but\n%s", want, said)
				}
			}
			if built := strings.Contains(said, "go build"); built == (name == "not built") {
				t.Errorf("-into has built: %v\n%s", built, said)
			}
			const line = "replace sigs.k8s.io/controller-runtime => ./third_party/controller-runtime"
			if mod := forktest.Text(t, dir, goMod); !strings.Contains(mod, line) {
				t.Errorf("no %q in go.mod:\n%s", line, mod)
			}
			after := forktest.Snapshot(t, dir)
			for name := range after {
				if strings.Contains(name, "freshmapper-") {
					t.Errorf("-into leaves %s", name)
				}
			}
			if !test.unchecked {
				check.says(t, dir, test.edit, place+" is "+tree.Module+" "+tree.Newest()+" with this mapper inside")
			}
			into.says(t, dir, test.edit, "nothing to do")
			forktest.Same(t, after, forktest.Snapshot(t, dir))
			undo.says(t, dir, nil, "go.mod     as it was\ngo.sum     as it was\n")
			forktest.Same(t, before, forktest.Snapshot(t, dir))
			undo.says(t, dir, nil, "nothing to undo")
		})
	}
	if left, err := os.ReadDir(elsewhere); err != nil || len(left) > 0 {
		t.Errorf("where the link leads to is left: %v, %v", left, err)
	}
}

// Each command refuses what it can't do, in one line that says what to do, and has changed
// nothing then. None needs a network for that.
func TestRefuses(t *testing.T) {
	const replace = "\nreplace " + tree.Module + " => "
	stock := forktest.Consumer
	commands := map[string]fork{"into": into, "undo": undo, "check": check}
	newer := with(forktest.Newer())
	dir := func(name string) func(*Request) { return func(r *Request) { r.Dir = filepath.Join(r.Dir, name) } }
	require := func(version string) spoiler {
		return func(t *testing.T, dir string) {
			forktest.Run(t, dir, "go", "mod", "edit", "-require="+tree.Module+"@"+version)
		}
	}
	instead := func(with string) spoiler {
		return func(t *testing.T, dir string) {
			forktest.Write(t, dir, "mine/go.mod", "module "+tree.Module+"\n")
			forktest.Run(t, dir, "go", "mod", "edit", "-replace="+tree.Module+"="+with)
		}
	}
	const occupant = place + "/go.mod"
	tests := map[string]struct {
		of    func(*testing.T) string
		who   string // the commands
		spoil spoiler
		edit  func(*Request)
		want  []string
	}{
		"no folder":          {stock, "into undo check", nil, dir("absent"), []string{"absent is not a folder"}},
		"a file":             {stock, "into", nil, dir("main.go"), []string{"main.go is not a folder"}},
		"a package":          {stock, "into", write("pkg/a.go", "package a\n"), dir("pkg"), []string{"pkg: name the folder of your go.mod (the go command finds " + string(filepath.Separator)}},
		"no go.mod":          {stock, "into", deleted(goMod), nil, []string{"no go.mod in", "(the go command finds none)"}},
		"broken go.mod":      {stock, "into undo check", appendMod("nonsense\n"), nil, []string{"go mod edit", "nonsense"}},
		"not required":       {stock, "into check", write(goMod, "module example.com/operator\n"), nil, []string{"does not require", "go get"}},
		"itself":             {stock, "into check", write(goMod, "module "+tree.Module+"\n"), nil, []string{"itself"}},
		"ours":               {stock, "into check", write(goMod, "module "+tree.Ours+"\n"), nil, []string{"is github.com/freshmapper/freshmapper itself: name the folder of your program"}},
		"old version":        {stock, "into check", requires("v0.19.7"), nil, []string{"go.mod requires a release that has no fork", "v0.19.7 is not supported", "v0.25", "v0.19 can use the RESTMapper alone"}},
		"foreign folder":     {stock, "into", appendMod(replace + "../mine\n"), nil, []string{"replaces", "../mine", "-dropreplace"}},
		"foreign module":     {stock, "into", appendMod(replace + "example.com/fork v1.2.3\n"), nil, []string{"example.com/fork v1.2.3"}},
		"one version":        {stock, "into", appendMod("\nreplace " + tree.Module + " v0.25.2 => ./" + place + "\n"), nil, []string{"not this tool's", "(go mod edit -dropreplace=sigs.k8s.io/controller-runtime@v0.25.2)"}},
		"occupied":           {stock, "into", write(occupant, "module m\n"), nil, []string{place, "not written by this tool", "restore its .freshmapper/manifest.json"}},
		"occupied, -force":   {stock, "into", write(occupant, "module m\n"), force, []string{"not written by this tool"}},
		"a file in the way":  {stock, "into", write("third_party", ""), nil, []string{"third_party", "not a directory"}},
		"a name taken":       {stock, "into", nil, with(forktest.Edited("apiutil/apimachinery.go", "package apiutil\n")), []string{"overwrite", "apimachinery.go"}},
		"no fork":            {stock, "check", nil, nil, []string{"has no fork of", "run fork -into"}},
		"another version":    {forked, "check", require("v0.25.0"), nil, []string{"is sigs.k8s.io/controller-runtime v0.25.2, but", "requires v0.25.0", "run fork -into"}},
		"unsupported":        {forked, "into check", require("v0.19.0"), nil, []string{"v0.19.0 is not supported", "v0.25"}},
		"another mapper":     {forked, "check", nil, newer, []string{"another mapper", "run fork -into"}},
		"edited":             {forked, "into undo", write(place+"/notes.txt", "mine\n"), nil, []string{"edited by hand", "added notes.txt", "-force"}},
		"edited, and others": {forked, "check", write(place+"/alias.go", ""), nil, []string{"changed alias.go", "-force"}},
		"incomplete":         {forked, "check", deleted(place + "/pkg/client"), nil, []string{"removed pkg/client/", "gitignore", "run fork -into DIR -force"}},
		"missing":            {forked, "check", deleted(place), nil, []string{"is missing: commit it", "gitignore", "or run fork -into DIR"}},
		"broken manifest":    {forked, "into undo check", write(place+"/.freshmapper/manifest.json", "{"), nil, []string{"manifest.json", "-force"}},
		"another folder":     {forked, "check", instead("./mine"), nil, []string{"was not written by this tool", "restore .freshmapper/manifest.json"}},
		"an old tag":         {forked, "check", instead("example.invalid/fork@v0.24.1-fresh.2"), nil, []string{"requires sigs.k8s.io/controller-runtime v0.25.2, but", "run go get sigs.k8s.io/controller-runtime@v0.24.1 in ", "with a tag of v0.25.2"}},
		"a tag of no fork":   {forked, "check", instead("example.invalid/fork@v0.25.2"), nil, []string{"is not that of a fork"}},
		"another go.mod": {forked, "into undo check", func(t *testing.T, _ string) { t.Setenv("GOFLAGS", "-modfile=other.mod") }, nil,
			[]string{"-modfile=other.mod", "go.mod"}},
		"a workspace that uses the tree": {forked, "into undo check", workspace("use (\n\t.\n\t./" + place + "\n)\n"), nil, // as "go work use -r ." does
			[]string{"go.work", "go work edit -dropuse=./third_party/controller-runtime"}},
		"a workspace that replaces": {stock, "into", workspace("use .\n" + replace + "./mine\n"), nil, []string{"go.work", "./mine"}},
		"a broken workspace":        {forked, "into undo check", workspace("junk\n"), nil, []string{"go.work", "unknown directive: junk"}},
		"missing in a workspace": {forked, "check", func(t *testing.T, dir string) {
			workspace("use .\n")(t, dir)
			remove(t, dir, "third_party")
		}, nil, []string{"controller-runtime is missing: commit it", "run fork -into DIR"}},
	}
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOFLAGS", "-mod=mod") // with it the go command changes go.mod when it is asked something
	for name, test := range tests {
		for _, who := range strings.Fields(test.who) {
			t.Run(name+"/"+who, func(t *testing.T) {
				dir := test.of(t)
				if test.spoil != nil {
					test.spoil(t, dir)
				}
				commands[who].fails(t, dir, test.edit, test.want...)
			})
		}
	}
}

// Whatever a killed run can leave: the next run ends it, and an undo takes it back.
func TestInterruptedRun(t *testing.T) {
	const scratch = "third_party/.controller-runtime.freshmapper-tmp"
	unreplaced := func(t *testing.T, dir string) { forktest.Write(t, dir, goMod, committed(t, dir, goMod)) }
	staged := write(scratch+"/new/go.mod", "")
	tests := map[string]spoiler{
		"while staging": func(t *testing.T, dir string) {
			unreplaced(t, dir)
			remove(t, dir, place)
			staged(t, dir)
		},
		"before go.mod":           unreplaced,
		"while staging an update": staged,
		"between two renames": func(t *testing.T, dir string) {
			staged(t, dir)
			forktest.Run(t, dir, "mv", place, scratch+"/old")
		},
		"tree is missing": deleted("third_party"),
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
			if tree.Exists(filepath.Join(dir, "third_party")) {
				t.Error("third_party is left after the undo")
			}
		})
	}
}

// -force gives up what somebody did to the tree, and no more than that.
func TestForce(t *testing.T) {
	for name, spoil := range map[string]spoiler{
		"changed":         write(place+"/pkg/client/client.go", "package client\n"),
		"added":           write(place+"/notes.txt", "mine\n"),
		"incomplete":      deleted(place + "/pkg/client"),
		"broken manifest": write(place+"/.freshmapper/manifest.json", "{"),
	} {
		t.Run(name, func(t *testing.T) {
			dir := forked(t)
			spoil(t, dir)
			into.must(t, dir, force)
			check.must(t, dir, nil)
			spoil(t, dir)
			undo.must(t, dir, force)
			forktest.Clean(t, dir)
		})
	}
}

// What the user has changed since stays, except for what the tool put there, and what stock needs.
func TestUndoKeepsTheUsersChanges(t *testing.T) {
	dir := forked(t)
	const mine = "\nretract v0.0.1 // mine\n"
	appendMod(mine)(t, dir)
	forktest.Write(t, dir, goSum, withoutLines(forktest.Text(t, dir, goSum), "sigs.k8s.io/controller-runtime ")) // as go mod tidy does
	forktest.Write(t, dir, "third_party/other/x.txt", "")

	undo.says(t, dir, nil, "go.mod     your changes kept")
	if got, want := forktest.Text(t, dir, goMod), committed(t, dir, goMod)+mine; got != want {
		t.Errorf("want in go.mod\n%s\ngot\n%s", want, got)
	}
	if status := forktest.Run(t, dir, "git", "status", "--porcelain", "-uall"); status != " M go.mod\n?? third_party/other/x.txt\n" {
		t.Errorf("only go.mod and the user's file should differ from what was committed, but git status says\n%s", status)
	}
}

// go.mod is replaced in one step, and never written: so it is whole whenever a run is killed.
func TestGoModIsReplaced(t *testing.T) {
	dir, elsewhere := forktest.Consumer(t), t.TempDir()
	real := filepath.Join(elsewhere, goMod)
	forktest.Run(t, dir, "mv", goMod, real)
	forktest.Run(t, dir, "ln", "-s", real, goMod)
	forktest.Run(t, dir, "ln", real, real+".other")
	before := forktest.Snapshot(t, elsewhere)
	into.must(t, dir, nil)
	if was, other := committed(t, dir, goMod), forktest.Text(t, elsewhere, "go.mod.other"); other != was {
		t.Errorf("go.mod was written in place, as another name of the same file shows:\n%s", other)
	}
	undo.must(t, dir, nil)
	forktest.Same(t, before, forktest.Snapshot(t, elsewhere))
	if to, err := os.Readlink(filepath.Join(dir, goMod)); to != real {
		t.Errorf("go.mod led to %s and leads to %q, %v", real, to, err)
	}
}

func withoutLines(text, prefix string) string {
	return regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(prefix)+`.*\n`).ReplaceAllString(text, "")
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
			t.Errorf("go.sum, edited since: %v, should be\n%s\nand is\n%s", edited, sums, got)
		}
	}
}

// "go get" of another controller-runtime adds no sum of it while the fork is in. What -into
// saves after that is not what there was at first.
func TestUndoAfterUpgrade(t *testing.T) {
	dir := forked(t)
	forktest.Run(t, dir, "go", "mod", "edit", "-require="+tree.Module+"@v0.25.0")
	into.must(t, dir, func(r *Request) { r.NoBuild = true })
	into.must(t, dir, func(r *Request) { r.NoBuild, r.Ours = true, forktest.Newer() })
	undo.says(t, dir, nil, "go.mod     your changes kept;", "go.sum     as it was\n",
		"no sum of "+tree.Module+" v0.25.0; run in "+dir+":\n              go mod tidy\ndone       the fork is out of")
	forktest.Run(t, dir, "go", "mod", "edit", "-require="+tree.Module+"@"+tree.Newest())
	forktest.Clean(t, dir)
}

const editedSum = "zz.example/edited v1.0.0 h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"
