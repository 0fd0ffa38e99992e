// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper"
	"github.com/freshmapper/freshmapper/hack/fork/consumer"
	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

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

func published(t *testing.T, lines string) (string, options) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "deep", "fork")
	r := request(t, dir, lines)
	if err := release(context.Background(), r); err != nil {
		t.Fatal(err)
	}
	return dir, r
}

func listed(t *testing.T, dir string) string {
	t.Helper()
	return forktest.Run(t, dir, "git", "for-each-ref", "--format=%(refname) %(objectname)")
}

// The same sources give the same objects, whoever runs it, wherever and when.
func TestReproducible(t *testing.T) {
	first, _ := published(t, "v0.24..v0.25")
	t.Setenv("TZ", "Asia/Tokyo")
	t.Setenv("GIT_AUTHOR_NAME", "somebody else")
	t.Setenv("GIT_COMMITTER_DATE", "2001-02-03T04:05:06Z")
	second, _ := published(t, "v0.24..v0.25")
	if a, b := listed(t, first), listed(t, second); a != b || strings.Count(a, "\n") != 4 {
		t.Errorf("two runs made\n%s\nand\n%s", a, b)
	}
	forktest.Run(t, first, "git", "fsck", "--strict")
	forktest.Clean(t, first)
	if head := strings.TrimSpace(forktest.Run(t, first, "git", "symbolic-ref", "HEAD")); head != "refs/heads/fresh-0.25" {
		t.Errorf("checked out: %s", head)
	}
	for _, sign := range []string{"somebody", "2001"} {
		if log := forktest.Run(t, second, "git", "log", "--format=fuller", "--all"); strings.Contains(log, sign) {
			t.Errorf("%q got into a commit:\n%s", sign, log)
		}
	}
}

// The first commit is upstream's tree, byte for byte; ours is on top.
func TestCommits(t *testing.T) {
	dir, r := published(t, "v0.25")
	if said := r.out.(*bytes.Buffer).String(); !strings.Contains(said, "then, in your program: go get "+tree.Module+"@v0.25.2 && go mod edit -replace="+tree.Module+"="+home+"@v0.25.2-fresh.1 &&") {
		t.Errorf("said\n%s", said)
	}
	log := strings.Fields(forktest.Run(t, dir, "git", "log", "--format=%H", "v0.25.2-fresh.1"))
	if len(log) != 2 {
		t.Fatalf("commits: %q", log)
	}
	forktest.Run(t, dir, "git", "checkout", "-q", log[1])
	want, err := tree.Upstream(context.Background(), "v0.25.2", nil)
	if err != nil {
		t.Fatal(err)
	}
	forktest.Run(t, dir, "git", "clean", "-dfxq")
	if listed := strings.Count(forktest.Run(t, dir, "git", "ls-files"), "\n"); listed != len(want) {
		t.Errorf("%d files, upstream has %d", listed, len(want))
	}
	for name, file := range want {
		if forktest.Text(t, dir, name) != string(file) {
			t.Errorf("%s is not upstream's", name)
		}
	}
	forktest.Run(t, dir, "git", "checkout", "-q", "fresh-0.25")
	readme := forktest.Text(t, dir, "README.md")
	for _, part := range []string{
		"\ngo get sigs.k8s.io/controller-runtime@v0.25.2 ", "\ngo mod edit -replace=sigs.k8s.io/controller-runtime=github.com/freshmapper/controller-runtime@v0.25.2-fresh.1\n",
		"replace sigs.k8s.io/controller-runtime => github.com/freshmapper/controller-runtime v0.25.2-fresh.1\n",
		"\n| controller-runtime | package | stock |", "\n| v0.25.2 | build and vet |", "\n| v0.25.2 | pkg/client/apiutil |",
	} {
		if !strings.Contains(readme, part) {
			t.Errorf("no %q in\n%s", part, readme)
		}
	}
	if strings.Contains(readme, "| v0.24") || strings.Contains(readme, "%!") {
		t.Errorf("rows of other lines in\n%s", readme)
	}
	if _, err := os.Stat(filepath.Join(dir, ".github")); err == nil {
		t.Error("upstream's automation is in the fork")
	}
}

// newer is another mapper than that of request.
var newer = forktest.Edited("apiutil/fresh_test.go", "package apiutil_test\n")

// A further release of the same version is one more commit; notes are written.
func TestFurtherRelease(t *testing.T) {
	dir, r := published(t, "v0.25")
	before := strings.TrimSpace(forktest.Run(t, dir, "git", "rev-parse", "fresh-0.25"))
	r.ours = newer
	r.notes = filepath.Join(t.TempDir(), "notes")
	if err := release(context.Background(), r); err != nil {
		t.Fatal(err)
	}
	forktest.Clean(t, dir)
	if parent := strings.TrimSpace(forktest.Run(t, dir, "git", "rev-parse", "v0.25.2-fresh.2^{commit}~1")); parent != before {
		t.Errorf("the second release is on %s, not on %s", parent, before)
	}
	if changed := forktest.Run(t, dir, "git", "diff", "--name-only", before, "fresh-0.25"); changed != "README.md\npkg/client/apiutil/fresh_test.go\n" {
		t.Errorf("changed:\n%s", changed)
	}
	if forktest.Text(t, r.notes, "v0.25.2-fresh.2.md") != forktest.Text(t, dir, "README.md") {
		t.Error("the notes are not the tag's")
	}
	var bill struct {
		BOMFormat  string
		Metadata   struct{ Component component }
		Components []component
	}
	if err := json.Unmarshal([]byte(forktest.Text(t, r.notes, "v0.25.2-fresh.2.cdx.json")), &bill); err != nil {
		t.Fatal(err)
	}
	if bill.BOMFormat != "CycloneDX" || bill.Metadata.Component.PURL != "pkg:golang/"+home+"@v0.25.2-fresh.2" || !slices.Contains(bill.Components, module("k8s.io/client-go", "v0.37.0")) || !slices.Contains(bill.Components, module(tree.Module, "v0.25.2")) {
		t.Errorf("the SBOM is %+v", bill)
	}
}

// Only a line whose newest tag holds something else gets an edition. The tags' own names in
// the trees are no difference.
func TestOnlyWhatIsNew(t *testing.T) {
	dir, r := published(t, "v0.25")
	r.notes = filepath.Join(t.TempDir(), "notes")
	again := func(want, left string) {
		t.Helper()
		out := &bytes.Buffer{}
		r.out = out
		if err := release(context.Background(), r); err != nil {
			t.Fatal(err)
		}
		if tags := strings.Fields(forktest.Run(t, dir, "git", "tag")); strings.Join(tags, " ") != want || !strings.Contains(out.String(), left) {
			t.Errorf("tags %s, want %s and %q in\n%s", tags, want, left, out)
		}
	}
	before, head := listed(t, dir), forktest.Text(t, dir, ".git/HEAD")
	again("v0.25.2-fresh.1", "nothing to do: ")
	if after := listed(t, dir); after != before || forktest.Text(t, dir, ".git/HEAD") != head || tree.Exists(r.notes) {
		t.Errorf("it has changed\n%sto\n%s", before, after)
	}
	r.ours = newer
	again("v0.25.2-fresh.1 v0.25.2-fresh.2", "v0.25.2-fresh.2 on fresh-0.25\n")
	again("v0.25.2-fresh.1 v0.25.2-fresh.2", "nothing to do: ")
	r.lines = request(t, dir, "v0.24..v0.25").lines
	again("v0.24.1-fresh.1 v0.25.2-fresh.1 v0.25.2-fresh.2", "v0.25.2-fresh.2 on fresh-0.25 has all of this")
	if notes := forktest.Run(t, r.notes, "ls"); notes != "v0.24.1-fresh.1.cdx.json\nv0.24.1-fresh.1.md\nv0.25.2-fresh.2.cdx.json\nv0.25.2-fresh.2.md\n" {
		t.Errorf("notes:\n%s", notes)
	}
	forktest.Clean(t, dir)
}

// A clone of a repository that has nothing yet, as a git host makes it, is as good as a new folder.
func TestEmptyRepository(t *testing.T) {
	dir := t.TempDir()
	forktest.Run(t, dir, "git", "init", "-q")
	if err := release(context.Background(), request(t, dir, "v0.25")); err != nil {
		t.Fatal(err)
	}
	first, _ := published(t, "v0.25")
	if a, b := listed(t, first), listed(t, dir); a != b {
		t.Errorf("a new folder got\n%s, an empty repository\n%s", a, b)
	}
}

func TestNewestTag(t *testing.T) {
	repo := refs{"refs/tags/v0.25.2-fresh.10", "refs/tags/v0.25.2-fresh.9", "refs/tags/v0.25.2-fresh.x", "refs/tags/v0.25.20-fresh.11"}
	for version, want := range map[string]int{"v0.25.2": 10, "v0.25.20": 11, "v0.24.1": 0} {
		if got := repo.newest(version); got != want {
			t.Errorf("%s: %d, not %d", version, got, want)
		}
	}
}

func TestRefuses(t *testing.T) {
	dir, _ := published(t, "v0.25")
	tests := map[string]struct {
		spoil func(t *testing.T, dir string)
		edit  func(*options)
		want  string
	}{
		"dirty":        {func(t *testing.T, dir string) { forktest.Write(t, dir, "alias.go", "") }, nil, "has changes that are not committed (M alias.go)"},
		"new file":     {func(t *testing.T, dir string) { forktest.Write(t, dir, "new.go", "") }, nil, "has changes that are not committed (?? new.go)"},
		"no matrix":    {nil, func(r *options) { r.matrix = "" }, "hack/test.sh -matrix"},
		"another repo": {func(t *testing.T, dir string) { forktest.Run(t, dir, "git", "branch", "-m", "main") }, nil, "of something else"},
		"own commit": {func(t *testing.T, dir string) { forktest.Write(t, dir, "new.go", ""); forktest.Commit(t, dir) }, func(r *options) { r.ours = newer },
			"(git branch mine refs/heads/fresh-0.25; git checkout -B fresh-0.25 TAG)"},
		"no repo": {func(t *testing.T, dir string) { forktest.Run(t, dir, "rm", "-rf", ".git") }, nil, "is not empty and no git repository"},
		"broken mapper": {nil, func(r *options) {
			r.ours = forktest.Edited("apiutil/apimachinery.go", "package apiutil\n")
		}, "overwrite"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			mine := filepath.Join(t.TempDir(), "fork")
			if err := os.CopyFS(mine, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			before := listed(t, mine)
			r := request(t, mine, "v0.25")
			if test.spoil != nil {
				test.spoil(t, mine)
				if name != "no repo" {
					before = listed(t, mine)
				}
			}
			if test.edit != nil {
				test.edit(&r)
			}
			err := release(context.Background(), r)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error: %v", err)
			}
			if name != "no repo" && listed(t, mine) != before {
				t.Errorf("it has changed\n%sto\n%s", before, listed(t, mine))
			}
		})
	}
}

// A release can continue in a fresh clone, which has only one branch of its own;
// the others are the remote's.
func TestFurtherReleaseInClone(t *testing.T) {
	dir, r := published(t, "v0.24..v0.25")
	r.repo, r.ours = filepath.Join(t.TempDir(), "clone"), newer
	forktest.Run(t, dir, "git", "clone", "-q", dir, r.repo)
	if err := release(context.Background(), r); err != nil {
		t.Fatal(err)
	}
	for _, branch := range []string{"fresh-0.24", "fresh-0.25"} {
		forktest.Run(t, r.repo, "git", "merge-base", "--is-ancestor", "origin/"+branch, branch)
	}
	forktest.Run(t, r.repo, "git", "push", "-q", "--atomic", "--follow-tags", "--dry-run", "origin", "refs/heads/fresh-*")
	forktest.Clean(t, r.repo)
}

// The rule for Renovate in docs/ can read the tags.
func TestRenovateRule(t *testing.T) {
	var config struct {
		PackageRules []struct {
			MatchPackageNames []string
			Versioning        string
		}
	}
	if err := json.Unmarshal([]byte(forktest.Text(t, "../../docs", "renovate.json")), &config); err != nil {
		t.Fatal(err)
	}
	rule := config.PackageRules[0]
	if rule.MatchPackageNames[0] != home {
		t.Errorf("the rule is for %q", rule.MatchPackageNames)
	}
	versions := regexp.MustCompile(strings.TrimPrefix(rule.Versioning, "regex:"))
	dir, _ := published(t, "v0.25")
	for _, tag := range strings.Fields(forktest.Run(t, dir, "git", "tag")) {
		if !versions.MatchString(tag) {
			t.Errorf("%s is no version to %s", tag, versions)
		}
	}
	if versions.MatchString("v0.25.2") {
		t.Error("upstream's versions count as the fork's")
	}
}

func TestParseLines(t *testing.T) {
	for text, want := range map[string]string{
		"v0.25": "v0.25.2", "v0.24..v0.25": "v0.24.1 v0.25.2", "v0.19": "use a line",
		"v0.25..v0.24": "use a line", "v0.24..v0.99": "use a line", "": "use a line",
	} {
		lines, err := parseLines(text)
		var got []string
		for _, line := range lines {
			got = append(got, line.Newest)
		}
		if err != nil {
			got = []string{err.Error()}
		}
		if !strings.Contains(strings.Join(got, " "), want) {
			t.Errorf("%q: %q, not %q", text, got, want)
		}
	}
}

// A program gets the real sources through a module proxy. The test checks what "go
// get" gets from the tag, what is built, and what is verified.
func TestConsumed(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles client-go of two lines")
	}
	repository := filepath.Join(t.TempDir(), "fork")
	r := request(t, repository, "v0.24..v0.25")
	r.ours, r.module = freshmapper.Source, "git.example.invalid/freshmapper/controller-runtime.git"
	if err := release(context.Background(), r); err != nil {
		t.Fatal(err)
	}
	for _, line := range r.lines {
		t.Run(line.Minor, func(t *testing.T) { consume(t, repository, r.module, line.Newest) })
	}
}

func consume(t *testing.T, repository, module, version string) {
	t.Helper()
	const mapper = tree.Module + "/pkg/client/apiutil"
	tag := version + "-fresh.1"
	cache := forktest.Proxy(t, repository, module+"@"+tag)
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
