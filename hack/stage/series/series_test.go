// SPDX-License-Identifier: Apache-2.0

package series

import (
	"bytes"
	"context"
	"maps"
	"net/mail"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/git"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

const author = "A U Thor <author@example.com>"

func text(s string) tree.File { return tree.File{Data: []byte(s)} }

// upstream is a small tree with what a series needs of it.
func upstream() tree.Files {
	return tree.Files{
		boilerplate:   text("/*\nCopyright Nobody.\n*/\n"),
		goMod:         text("module m\n\ngo 1.26\n\nrequire (\n\ta.example/a v1.0.0 // indirect\n)\n"),
		"a/old.go":    text("package a\n"),
		"a/crlf.txt":  text("one\r\ntwo\r\n"),
		"a/bare.txt":  text("no newline"),
		"a/run.sh":    {Data: []byte("true\n"), Exec: true},
		".gitignore":  text("*.log\n"),
		"a/noted.log": text("ignored by git, if it were asked\n"),
	}
}

// changes are two changes to it.
func changes() []Change {
	first := upstream()
	delete(first, "a/old.go")
	first["a/new.go"] = text(spdx + "\npackage a\n\nimport _ \"a.example/a/sub\"\n")
	first["a/new_test.go"] = text(spdx + "\npackage a\n\n// Two lines\n// more.\n")
	second := maps.Clone(first)
	second["a/bare.txt"] = text("no newline still")
	second["a/crlf.txt"] = text("one\r\n2\r\n")
	second["a/run.sh"] = tree.File{Data: []byte("true\n")}
	second["a/data.bin"] = text("\x00\x01\n")
	return []Change{{"✨ First: Do it\n\nWhy.\n", first}, {"🐛 Second: Do more\n\nFor \"reasons\", say — who?\n", second}}
}

func make2(t *testing.T) []Patch {
	t.Helper()
	patches, err := Make(context.Background(), author, upstream(), changes())
	if err != nil {
		t.Fatal(err)
	}
	return patches
}

func TestMailsApply(t *testing.T) {
	patches := make2(t)
	dir := t.TempDir()
	ctx, repo, stream := context.Background(), git.Repository{Dir: dir}, git.Stream{Author: &mail.Address{Name: "t", Address: "t@example.com"}}
	stream.Commit("main", now(), "upstream\n", upstream())
	if err := repo.Import(ctx, false, "main", &stream); err != nil {
		t.Fatal(err)
	}
	if _, err := repo.Run(ctx, nil, "reset", "-q", "--hard"); err != nil {
		t.Fatal(err)
	}
	for i, patch := range patches {
		name := filepath.Join(t.TempDir(), patch.File)
		if err := os.WriteFile(name, patch.Mail, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := repo.Run(ctx, nil, "-c", "user.name=t", "-c", "user.email=t@example.com", "am", "-q", "--keep-cr", name); err != nil {
			t.Fatal(err)
		}
		said := forktest.Run(t, dir, "git", "log", "-1", "--format=%an <%ae>%n%B")
		if want := author + "\n" + changes()[i].Message; strings.TrimSpace(said) != strings.TrimSpace(want) {
			t.Errorf("the commit says\n%s\nwant\n%s", said, want)
		}
		got, err := tree.Read(os.DirFS(dir))
		if err != nil {
			t.Fatal(err)
		}
		maps.DeleteFunc(got, func(name string, _ tree.File) bool { return strings.HasPrefix(name, ".git/") })
		if len(got) != len(patch.Files) {
			t.Errorf("%d files, want %d", len(got), len(patch.Files))
		}
		for name, want := range patch.Files {
			if !bytes.Equal(got[name].Data, want.Data) || got[name].Exec != want.Exec {
				t.Errorf("%s is\n%q\nwant\n%q", name, got[name].Data, want.Data)
			}
		}
	}
}

func TestFilesAreDressed(t *testing.T) {
	files := make2(t)[0].Files
	if got := string(files["a/new.go"].Data); !strings.HasPrefix(got, "/*\nCopyright Nobody.\n*/\n") || strings.Contains(got, "SPDX") {
		t.Errorf("a new file begins\n%s", got)
	}
	if got := string(files[goMod].Data); strings.Contains(got, "indirect") {
		t.Errorf("what is imported is required indirectly:\n%s", got)
	}
}

// The boilerplate of a release that has none is that of its files.
func TestHeaderOfNeighbour(t *testing.T) {
	files := upstream()
	delete(files, boilerplate)
	if _, err := headerOf(files); err == nil || !strings.Contains(err.Error(), boilerplate) {
		t.Errorf("error: %v", err)
	}
	files[neighbour] = text("/*\nCopyright Somebody.\n*/\n\npackage client\n")
	if header, err := headerOf(files); err != nil || string(header) != "/*\nCopyright Somebody.\n*/\n" {
		t.Errorf("%q, %v", header, err)
	}
}

func TestSize(t *testing.T) {
	patches := make2(t)
	if got, want := patches[0].Size, (Size{Code: 7 + 1, Tests: 8, Removed: 1 + 1}); got != want {
		t.Errorf("%+v, want %+v\n%s", got, want, patches[0].Mail)
	}
	if got, want := patches[1].Size, (Size{Code: 2, Removed: 2}); got != want {
		t.Errorf("%+v, want %+v\n%s", got, want, patches[1].Mail)
	}
}

func TestReproducible(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	first, second := make2(t), make2(t)
	for i, patch := range first {
		if !bytes.Equal(patch.Mail, second[i].Mail) || patch.File != second[i].File {
			t.Errorf("%s is different each time", patch.File)
		}
	}
}

// Whatever the user has told git, the mails are the same.
func TestUsersSettingsDoNotCount(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	want := make2(t)
	home := t.TempDir()
	forktest.Write(t, home, ".gitconfig", "[format]\n\tsubjectPrefix = MINE\n\tsignature = me\n[diff]\n\tnoprefix = true\n[user]\n\tname = me\n[commit]\n\tgpgSign = true\n")
	t.Setenv("HOME", home)
	for i, patch := range make2(t) {
		if !bytes.Equal(patch.Mail, want[i].Mail) {
			t.Errorf("%s follows the user's settings:\n%s", patch.File, patch.Mail)
		}
	}
}

func TestMakeRefuses(t *testing.T) {
	spoil := func(edit func(tree.Files)) tree.Files {
		files := upstream()
		edit(files)
		return files
	}
	for name, test := range map[string]struct {
		files   tree.Files
		changes []Change
		want    string
	}{
		"no header":     {spoil(func(f tree.Files) { delete(f, boilerplate) }), changes(), boilerplate},
		"header a year": {spoil(func(f tree.Files) { f[boilerplate] = text("// YEAR\n") }), changes(), "wants a year"},
		"no go.mod":     {spoil(func(f tree.Files) { delete(f, goMod) }), changes(), "no go.mod"},
		"no change":     {upstream(), []Change{{"Nothing\n", upstream()}}, `patch "Nothing": it changes nothing`},
		"not Go":        {upstream(), []Change{{"Broken\n", tree.Files{"x.go": text(spdx + "import \"x")}}}, "x.go"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Make(context.Background(), author, test.files, test.changes); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error: %v", err)
			}
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Make(ctx, author, upstream(), changes()); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestRequireDirectly(t *testing.T) {
	const mod = "module m\n\ngo 1.26\n\nrequire (\n\ta.example/a v1.0.0\n\tc.example/c v1.0.0 // why\n)\n\n" +
		"require (\n\tb.example/b v1.0.0 // indirect\n\td.example/d v1.0.0 // indirect\n\te.example/e v1.0.0 // indirect\n)\n"
	const want = "module m\n\ngo 1.26\n\nrequire (\n\ta.example/a v1.0.0\n\tb.example/b v1.0.0\n\tc.example/c v1.0.0 // why\n\td.example/d v1.0.0\n)\n\n" +
		"require (\n\te.example/e v1.0.0 // indirect\n)\n"
	imports := map[string]bool{"a.example/a": true, "b.example/b/sub": true, "d.example/d": true, "e.example/eve": true, "fmt": true}
	if got := requireDirectly([]byte(mod), imports); string(got) != want {
		t.Errorf("got\n%s", got)
	}
}
