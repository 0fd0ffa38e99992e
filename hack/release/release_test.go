// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper"
	"github.com/freshmapper/freshmapper/hack/fork/consumer"
	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

func TestUsage(t *testing.T) {
	var command forktest.Command = run
	command.Says(t, "-h", "-repo DIR", "v0.20..v0.25", "[-module M] [-notes DIR]", "or from the same earlier tags", "-author")
	command.Refuses(t, map[string]string{
		"":                           "give -repo DIR",
		"-repo a b":                  `unexpected argument "b"`,
		"-repo a -lines v0.19":       `-lines "v0.19": use a line`,
		"-repo a -lines v0.25..v0.2": "use a line",
		"-repo a -lines v0.24..v0.9": "use a line",
		"-repo a -fresh 2":           "-fresh",
		"-repo a -author nobody":     "-author",
		"-frobnicate":                "frobnicate",
	})
}

func request(t *testing.T, dir, lines string) options {
	t.Helper()
	parsed, err := parseLines(lines)
	if err != nil {
		t.Fatal(err)
	}
	return options{
		repo: dir, lines: parsed, module: home, author: nobody,
		ours: forktest.Ours(), matrix: freshmapper.Matrix, out: &bytes.Buffer{},
	}
}

// made makes a release, and returns what was said.
func made(t *testing.T, o options) string {
	t.Helper()
	var out bytes.Buffer
	o.out = &out
	if err := release(context.Background(), o); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	return out.String()
}

func published(t *testing.T, lines string) (string, options) {
	t.Helper()
	o := request(t, filepath.Join(t.TempDir(), "deep", "fork"), lines)
	made(t, o)
	return o.repo, o
}

// git runs git with words of a line, and returns what it said without the last newline.
func git(t *testing.T, dir, line string) string {
	t.Helper()
	return strings.TrimSpace(forktest.Run(t, dir, "git", strings.Fields(line)...))
}

const allRefs = "for-each-ref --format=%(refname)=%(objectname)"

// The same sources give the same objects, whoever runs it, in a new folder or in the clone of an empty repository.
func TestReproducible(t *testing.T) {
	first, _ := published(t, "v0.24..v0.25")
	for name, value := range map[string]string{"TZ": "Asia/Tokyo", "GIT_AUTHOR_NAME": "somebody else", "GIT_COMMITTER_DATE": "2001-02-03T04:05:06Z"} {
		t.Setenv(name, value)
	}
	second := t.TempDir()
	git(t, second, "init -q")
	made(t, request(t, second, "v0.24..v0.25"))
	if a, b := git(t, first, allRefs), git(t, second, allRefs); a != b || strings.Count(a, "\n") != 3 {
		t.Errorf("want the same two branches and two tags of two runs, got\n%s\nand\n%s", a, b)
	}
	git(t, first, "fsck --strict")
	forktest.Clean(t, first)
	if head := git(t, first, "symbolic-ref HEAD"); head != "refs/heads/fresh-0.25" {
		t.Errorf("%s is checked out, and not the newest line", head)
	}
	for _, sign := range []string{"somebody", "2001"} {
		if log := git(t, second, "log --format=fuller --all"); strings.Contains(log, sign) {
			t.Errorf("%q of the environment got into a commit:\n%s", sign, log)
		}
	}
}

// The first commit is upstream's tree, byte for byte; ours is on top: the notes as README, no upstream automation.
func TestCommits(t *testing.T) {
	o := request(t, filepath.Join(t.TempDir(), "fork"), "v0.25")
	if said, want := made(t, o), "then, in your program: go get "+tree.Module+"@v0.25.2 && go mod edit -replace="+tree.Module+"="+home+"@v0.25.2-fresh.1 &&"; !strings.Contains(said, want) {
		t.Errorf("it does not say %q, but\n%s", want, said)
	}
	log := strings.Fields(git(t, o.repo, "log --format=%H v0.25.2-fresh.1"))
	if len(log) != 2 {
		t.Fatalf("want two commits, upstream's and ours, got %q", log)
	}
	want, err := tree.Upstream(context.Background(), "v0.25.2", nil)
	if err != nil {
		t.Fatal(err)
	}
	if held := forktest.Run(t, o.repo, "git", "ls-tree", "-r", "-z", log[1]); held != listing(want) {
		t.Errorf("the first commit is not upstream's release: it has\n%s", strings.ReplaceAll(held, "\x00", "\n"))
	}
	readme := forktest.Text(t, o.repo, "README.md")
	for _, part := range []string{
		"\ngo get sigs.k8s.io/controller-runtime@v0.25.2 ",
		"\ngo mod edit -replace=sigs.k8s.io/controller-runtime=github.com/freshmapper/controller-runtime@v0.25.2-fresh.1\n",
		"replace sigs.k8s.io/controller-runtime => github.com/freshmapper/controller-runtime v0.25.2-fresh.1\n",
		"\n| controller-runtime | package | upstream |", "\n| v0.25.2 | build and vet |", "\n| v0.25.2 | pkg/client/apiutil |",
	} {
		if !strings.Contains(readme, part) {
			t.Errorf("no %q in\n%s", part, readme)
		}
	}
	if strings.Contains(readme, "| v0.24") || strings.Contains(readme, "%!") {
		t.Errorf("rows of other lines in\n%s", readme)
	}
	if tree.Exists(filepath.Join(o.repo, ".github")) {
		t.Error("upstream's automation is in the fork")
	}
	rule := regexp.MustCompile(`regex:([^"]*)`).FindStringSubmatch(forktest.Text(t, "../../docs", "renovate.json"))
	if versions := regexp.MustCompile(strings.ReplaceAll(rule[1], `\\`, `\`)); !versions.MatchString("v0.25.2-fresh.1") || versions.MatchString("v0.25.2") {
		t.Errorf("by docs/renovate.json, %s, the tag is no version, or upstream's is one", versions)
	}
}

// newer is another mapper than that of request.
var newer = forktest.Edited("apiutil/fresh_test.go", "package apiutil_test\n")

// Only a line whose newest tag holds something else, except for the tag's name, gets one more commit, the next tag and notes.
func TestOnlyWhatIsNew(t *testing.T) {
	dir, o := published(t, "v0.25")
	o.notes = filepath.Join(t.TempDir(), "notes")
	first := git(t, dir, "rev-parse fresh-0.25")
	again := func(want, say string) {
		t.Helper()
		said := made(t, o)
		if tags := strings.Fields(git(t, dir, "tag")); strings.Join(tags, " ") != want || !strings.Contains(said, say) {
			t.Errorf("tags %s, want %s and %q in\n%s", tags, want, say, said)
		}
		forktest.Clean(t, dir)
	}
	before := git(t, dir, allRefs)
	again("v0.25.2-fresh.1", "nothing to do: ")
	if after := git(t, dir, allRefs); after != before || tree.Exists(o.notes) {
		t.Errorf("a run that has nothing to do has changed\n%s\nto\n%s", before, after)
	}
	o.ours = newer
	again("v0.25.2-fresh.1 v0.25.2-fresh.2", "v0.25.2-fresh.2 on fresh-0.25\n")
	if parent := git(t, dir, "rev-parse v0.25.2-fresh.2^{commit}~1"); parent != first {
		t.Errorf("the second release is on %s, not on the first, %s", parent, first)
	}
	if changed := git(t, dir, "diff --name-only "+first+" fresh-0.25"); changed != "README.md\npkg/client/apiutil/fresh_test.go" {
		t.Errorf("the second release changes\n%s", changed)
	}
	if forktest.Text(t, o.notes, "v0.25.2-fresh.2.md") != forktest.Text(t, dir, "README.md") {
		t.Error("the notes are not the tag's README")
	}
	again("v0.25.2-fresh.1 v0.25.2-fresh.2", "nothing to do: ")
	// It can continue in a fresh clone, which has only one branch of its own; the others are the remote's.
	clone := filepath.Join(t.TempDir(), "clone")
	git(t, dir, "clone -q . "+clone)
	dir, o.repo, o.lines = clone, clone, request(t, dir, "v0.24..v0.25").lines
	again("v0.24.1-fresh.1 v0.25.2-fresh.1 v0.25.2-fresh.2", "v0.25.2-fresh.2 on fresh-0.25 has all of this")
	if notes := forktest.Run(t, o.notes, "ls"); notes != "v0.24.1-fresh.1.cdx.json\nv0.24.1-fresh.1.md\nv0.25.2-fresh.2.cdx.json\nv0.25.2-fresh.2.md\n" {
		t.Errorf("want notes and an SBOM of each new tag, got\n%s", notes)
	}
	o.ours = forktest.Newer()
	again("v0.24.1-fresh.1 v0.24.1-fresh.2 v0.25.2-fresh.1 v0.25.2-fresh.2 v0.25.2-fresh.3", "done: ")
	git(t, dir, "merge-base --is-ancestor origin/fresh-0.25 fresh-0.25")
	git(t, dir, "push -q --atomic --follow-tags --dry-run origin refs/heads/fresh-*")
	bill := forktest.Text(t, o.notes, "v0.25.2-fresh.2.cdx.json")
	for _, want := range []string{`"bomFormat": "CycloneDX"`, `"pkg:golang/` + home + `@v0.25.2-fresh.2"`, `"pkg:golang/` + tree.Module + `@v0.25.2"`, `"pkg:golang/k8s.io/client-go@v0.37.0"`} {
		if !strings.Contains(bill, want) || !json.Valid([]byte(bill)) {
			t.Errorf("no %s in the SBOM\n%s", want, bill)
		}
	}
}

// What would lose work, or publish what was not tested, is refused in one line, and the repository stays as it is.
func TestRefuses(t *testing.T) {
	dir, _ := published(t, "v0.25")
	write := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { forktest.Write(t, dir, name, "") }
	}
	tests := map[string]struct {
		spoil func(t *testing.T, dir string)
		edit  func(*options)
		want  string
	}{
		"dirty":        {write("alias.go"), nil, "has changes that are not committed (M alias.go)"},
		"new file":     {write("new.go"), nil, "has changes that are not committed (?? new.go)"},
		"no matrix":    {nil, func(o *options) { o.matrix = "" }, "hack/test.sh -matrix"},
		"another repo": {func(t *testing.T, dir string) { git(t, dir, "branch -m main") }, nil, "of something else"},
		"own commit": {func(t *testing.T, dir string) { write("new.go")(t, dir); forktest.Commit(t, dir) }, func(o *options) { o.ours = newer },
			"(git branch mine refs/heads/fresh-0.25; git checkout -B fresh-0.25 TAG)"},
		"no repo": {func(t *testing.T, dir string) { forktest.Run(t, dir, "mv", ".git", "git") }, nil, "is not empty and no git repository"},
		"broken mapper": {nil, func(o *options) {
			o.ours = forktest.Edited("apiutil/apimachinery.go", "package apiutil\n")
		}, "overwrite"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := request(t, filepath.Join(t.TempDir(), "fork"), "v0.25")
			if err := os.CopyFS(o.repo, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			if test.spoil != nil {
				test.spoil(t, o.repo)
			}
			if test.edit != nil {
				test.edit(&o)
			}
			refs := func() string {
				if !tree.Exists(filepath.Join(o.repo, ".git")) {
					return ""
				}
				return git(t, o.repo, allRefs)
			}
			before := refs()
			err := release(context.Background(), o)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("want %q in an error of one line, got %v", test.want, err)
			}
			if after := refs(); after != before {
				t.Errorf("it refuses, and has changed\n%s\nto\n%s", before, after)
			}
		})
	}
}

// "go run .../hack/fork@version" works without a checkout: no replace in go.mod forbids it, and the tool has the sources.
func TestRunAtVersion(t *testing.T) {
	const version = "v0.99.0"
	repository, root := filepath.Join(t.TempDir(), "freshmapper"), filepath.Join("..", "..")
	for _, name := range strings.Fields(forktest.Run(t, root, "git", "ls-files", "--cached", "--others", "--exclude-standard")) {
		if tree.Exists(filepath.Join(root, name)) { // else it was removed, and that is not yet committed
			forktest.Write(t, repository, name, forktest.Text(t, root, name))
		}
	}
	forktest.Run(t, repository, "git", "init", "-q")
	forktest.Commit(t, repository)
	forktest.Run(t, repository, "git", "tag", version)

	hosted(t, repository, tree.Ours)
	for flag, want := range map[string]string{
		"fork@" + version + " -V":    "fork " + version + ", mapper ",
		"fork@" + version + " -h":    "go run " + tree.Ours + "/hack/fork@" + version + " -into", // how to run it again
		"release@" + version + " -h": "-repo DIR",
	} {
		args := append([]string{"run"}, strings.Fields(tree.Ours+"/hack/"+flag)...)
		if said := forktest.Run(t, t.TempDir(), "go", args...); !strings.Contains(said, want) {
			t.Errorf("go %q does not say %q, but\n%s", args, want, said)
		}
	}
}

// A program gets the real sources from the tag through a module proxy: what "go get" gets, builds and verifies.
func TestConsumed(t *testing.T) {
	repository := filepath.Join(t.TempDir(), "fork")
	r := request(t, repository, "v0.24..v0.25")
	r.ours, r.module = freshmapper.Source, "git.example.invalid/freshmapper/controller-runtime.git"
	made(t, r)
	for _, line := range r.lines {
		t.Run(line.Minor, func(t *testing.T) { consume(t, repository, r.module, line.Newest) })
	}
}

func consume(t *testing.T, repository, module, version string) {
	t.Helper()
	const mapper = tree.Module + "/pkg/client/apiutil"
	tag := version + "-fresh.1"
	cache := hosted(t, repository, module)
	dir := t.TempDir()
	forktest.Write(t, dir, "go.mod", "module example.com/operator\n\ngo 1.26.0\n\nrequire "+tree.Module+" "+version+"\n")
	forktest.Write(t, dir, "main.go", "package main\n\nimport \""+mapper+"\"\n\n"+
		"func main() { _ = apiutil.DynamicRESTMapperOptions{WatchAPIs: true} }\n")

	forktest.Run(t, dir, "go", "mod", "edit", "-replace="+tree.Module+"="+module+"@"+tag)
	forktest.Run(t, dir, "go", "mod", "tidy")
	forktest.Run(t, dir, "go", "build", "-o", os.DevNull, ".")
	if said := forktest.Run(t, dir, "go", "mod", "verify"); !strings.Contains(said, "all modules verified") {
		t.Errorf("go mod verify: %s", said)
	}
	from := strings.TrimSpace(forktest.Run(t, dir, "go", "list", "-f", "{{.Dir}}", mapper))
	if want := filepath.Join(cache, module+"@"+tag, "pkg/client/apiutil"); from != want {
		t.Errorf("the mapper is built from %s, not from %s", from, want)
	}
	if err := consumer.Check(context.Background(), consumer.Request{Dir: dir, Ours: freshmapper.Source, Self: "fork", Out: &bytes.Buffer{}}); err != nil {
		t.Errorf("fork -check: %v", err)
	}
}

// hosted makes the go command get a module from a git repository in a folder, and all else from the machine's module
// cache or as before. It returns the module cache of this test.
func hosted(t *testing.T, repository, module string) (cache string) {
	t.Helper()
	env := strings.Fields(forktest.Run(t, repository, "go", "env", "GOMODCACHE", "GOPROXY"))
	cache = t.TempDir()
	for name, value := range map[string]string{
		"GOMODCACHE": cache, "GOPRIVATE": path.Dir(module), "GOSUMDB": "off",
		"GOPROXY": "file://" + filepath.ToSlash(filepath.Join(env[0], "cache", "download")) + "," + env[1],
		"GOFLAGS": os.Getenv("GOFLAGS") + " -modcacherw", // so that it can be removed
		// git takes the folder for the host.
		"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "url.file://" + filepath.ToSlash(repository) + ".insteadOf",
		"GIT_CONFIG_VALUE_0": "https://" + strings.TrimSuffix(module, ".git"),
	} {
		t.Setenv(name, value)
	}
	return cache
}
