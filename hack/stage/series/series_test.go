// SPDX-License-Identifier: Apache-2.0

package series

import (
	"bytes"
	"context"
	"go/format"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/freshmapper/freshmapper"
	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

const author = "A U Thor <author@example.com>"

var upstream = sync.OnceValues(func() (tree.Files, error) {
	return tree.Upstream(context.Background(), tree.Newest(), nil)
})

// made is the series for the newest release, with upstream's files.
func made(t *testing.T) ([]Patch, tree.Files) {
	t.Helper()
	before, err := upstream()
	if err != nil {
		t.Fatal(err)
	}
	patches, err := Make(tree.Newest(), author, before, freshmapper.Source)
	if err != nil {
		t.Fatal(err)
	}
	return patches, before
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	return forktest.Run(t, dir, "git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...)
}

// repository makes a git repository of the tag's module.
func repository(t *testing.T, upstream tree.Files) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, upstream)
	forktest.Run(t, dir, "git", "init", "-q")
	git(t, dir, "add", "-A", "-f")
	git(t, dir, "commit", "-q", "-m", "upstream")
	return dir
}

func am(t *testing.T, dir string, patch Patch) {
	t.Helper()
	name := filepath.Join(t.TempDir(), patch.File)
	if err := os.WriteFile(name, patch.Mail, 0o644); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "am", "-q", name)
}

// Every patch applies, and makes of the tree what it was made from.
func TestSeriesApplies(t *testing.T) {
	patches, before := made(t)
	dir := repository(t, before)
	for _, patch := range patches {
		am(t, dir, patch)
		wantTree(t, dir, patch.Files)
		subject := strings.TrimSpace(git(t, dir, "log", "-1", "--format=%s"))
		if !strings.HasPrefix(subject, "✨ ") && !strings.HasPrefix(subject, "🐛 ") || strings.Contains(subject, "#") || len(subject) > 72 {
			t.Errorf("upstream would not take the title %q", subject)
		}
		if by := strings.TrimSpace(git(t, dir, "log", "-1", "--format=%an <%ae>")); by != author {
			t.Errorf("the author is %s", by)
		}
		if body := git(t, dir, "log", "-1", "--format=%b"); len(body) < 300 || strings.Contains(body, "diff --git") || strings.Contains(body, "#") {
			t.Errorf("the message is\n%s", body)
		}
		if log := git(t, dir, "log", "-1", "--check", "--format="); log != "" {
			t.Errorf("whitespace:\n%s", log)
		}
	}
	sameAsFork(t, patches[len(patches)-1].Files, before)
}

// sameAsFork compares the end of the series with the tree that hack/fork makes.
// They differ in the header of our Go files, and in go.mod.
func sameAsFork(t *testing.T, series, before tree.Files) {
	t.Helper()
	forked, err := tree.Generate(tree.Newest(), maps.Clone(before), freshmapper.Source)
	if err != nil {
		t.Fatal(err)
	}
	header := before[boilerplate].Data
	for name, file := range forked {
		staged, ok := series[name]
		body, ours := bytes.CutPrefix(file.Data, []byte(spdx))
		switch {
		case !ok:
			t.Errorf("the series lacks %s", name)
		case name == goMod || bytes.Equal(staged.Data, file.Data):
		case !ours || !bytes.Equal(withoutBlankLines(bytes.Replace(staged.Data, header, nil, 1)), withoutBlankLines(body)):
			t.Errorf("%s is different in the series", name)
		}
	}
	for name := range series {
		if _, ok := forked[name]; !ok {
			t.Errorf("the fork lacks %s", name)
		}
	}
}

func withoutBlankLines(text []byte) []byte {
	return bytes.Join(bytes.FieldsFunc(text, func(r rune) bool { return r == '\n' }), []byte("\n"))
}

// Each patch builds, is tidy and passes, by itself, the tests of what it changes.
// Without KUBEBUILDER_ASSETS those that need an API server are left out.
func TestSeriesBuilds(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles controller-runtime, and its tests, once for each patch")
	}
	patches, before := made(t)
	dir := repository(t, before)
	tests := []string{"test", "-trimpath", "-count=1"}
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Run("with an API server", func(t *testing.T) {
			t.Skip("KUBEBUILDER_ASSETS is not set: without TestApiMachinery, TestClient, TestClientFollowsScopeOnServer and TestLazyRestMapperProvider")
		})
		tests = append(tests, "-skip", "^(TestApiMachinery|TestClient|TestClientFollowsScopeOnServer|TestLazyRestMapperProvider)$")
	}
	changed := [][]string{
		{"./pkg/client/apiutil/..."},
		{"./pkg/client", "./pkg/internal/follow"},
		{"./pkg/cache/internal"},
		{"./pkg/metrics", "./pkg/client/apiutil"},
	}
	for i, patch := range patches {
		am(t, dir, patch)
		forktest.Run(t, dir, "go", "build", "-trimpath", "./...")
		forktest.Run(t, dir, "go", "vet", "-trimpath", "./pkg/client/...", "./pkg/cache/...", "./pkg/internal/...", "./pkg/metrics/...")
		forktest.Run(t, dir, "go", "mod", "tidy", "-diff")
		t.Logf("%s\n%s", patch.File, forktest.Run(t, dir, "go", append(slices.Clone(tests), changed[i]...)...))
	}
}

// Nothing of where our code comes from is left in upstream's.
func TestSeriesIsUpstreams(t *testing.T) {
	patches, before := made(t)
	header := before[boilerplate].Data
	for name, file := range patches[len(patches)-1].Files {
		if was, ok := before[name]; ok && bytes.Equal(was.Data, file.Data) || name == goMod {
			continue
		}
		if !strings.HasSuffix(name, ".go") {
			continue
		}
		if _, upstreams := before[name]; !upstreams && bytes.Count(file.Data, header) != 1 {
			t.Errorf("%s has no header of upstream's", name)
		}
		if formatted, err := format.Source(file.Data); err != nil || !bytes.Equal(formatted, file.Data) {
			t.Errorf("%s is not as gofmt has it: %v", name, err)
		}
		for _, word := range []string{"freshmapper", "SPDX-License-Identifier"} {
			if bytes.Contains(file.Data, []byte(word)) {
				t.Errorf("%s speaks of %s", name, word)
			}
		}
	}
}

func TestSeriesIsReproducible(t *testing.T) {
	first, _ := made(t)
	second, _ := made(t)
	for i, patch := range first {
		if !bytes.Equal(patch.Mail, second[i].Mail) || patch.File != second[i].File {
			t.Errorf("%s is different each time", patch.File)
		}
	}
}

func TestMakeRefuses(t *testing.T) {
	_, before := made(t)
	spoil := func(edit func(tree.Files)) tree.Files {
		files := maps.Clone(before)
		edit(files)
		return files
	}
	tests := map[string]struct {
		base  string
		files tree.Files
		ours  fstest.MapFS
		want  string
	}{
		"unsupported":   {base: "v0.19.0", files: before, want: "v0.19.0 is not supported"},
		"no header":     {files: spoil(func(f tree.Files) { delete(f, boilerplate) }), want: "choose a newer -base"},
		"header a year": {files: spoil(func(f tree.Files) { f[boilerplate] = text("// YEAR\n") }), want: "wants a year"},
		"no go.mod":     {files: spoil(func(f tree.Files) { delete(f, goMod) }), want: "no go.mod"},
		"not text":      {files: before, ours: forktest.Edited("apiutil/testdata/x.bin", "\x00"), want: "x.bin is not text"},
		"not Go":        {files: before, ours: forktest.Edited("apiutil/x.go", spdx+"import \"x"), want: "x.go"},
		"other client":  {files: spoil(func(f tree.Files) { f["pkg/client/client_rest_resources.go"] = text("package client\n") }), want: "clientRestResources"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.base == "" {
				test.base = tree.Newest()
			}
			if test.ours == nil {
				test.ours = forktest.Ours()
			}
			_, err := Make(test.base, author, test.files, test.ours)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error: %v", err)
			}
		})
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
