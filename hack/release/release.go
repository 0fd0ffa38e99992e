// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/mail"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freshmapper/freshmapper/hack/fork/cli"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// edition is the release of one line.
type edition struct {
	version  string // upstream's
	tag      string
	branch   string
	from     string     // the ref that the branch continues, "" if the branch is new
	time     time.Time  // of the upstream release
	upstream tree.Files // nil if the branch has it
	files    tree.Files // the README has the release notes
}

// release adds a commit and a tag to the repository for each line that has something new.
func release(ctx context.Context, o options) error {
	author, err := mail.ParseAddress(o.author)
	if err != nil || author.Name == "" {
		return fmt.Errorf("-author %q is not like %q", o.author, nobody)
	}
	repo, err := openRepository(ctx, o.repo)
	if err != nil {
		return err
	}
	editions, err := o.editions(ctx, repo)
	if err != nil {
		return err
	}
	if len(editions) == 0 {
		fmt.Fprintf(o.out, "\nnothing to do: %s is up to date\n", o.repo)
		return nil
	}
	newest := editions[len(editions)-1]
	if err := o.history(editions, author).Import(ctx, o.repo, newest.branch); err != nil {
		return err
	}
	for _, e := range editions {
		fmt.Fprintf(o.out, "%-10s %s on %s\n", "tag", e.tag, e.branch)
		if o.notes == "" {
			continue
		}
		bill, err := o.bill(ctx, &e)
		err = errors.Join(
			err,
			tree.Write(o.notes, e.tag+".md", e.files["README.md"]),
			tree.Write(o.notes, e.tag+".cdx.json", bill),
		)
		if err != nil {
			return fmt.Errorf("write the release notes of %s: %w", e.tag, err)
		}
	}
	fmt.Fprintf(
		o.out,
		"\ndone: %s is ready; git -C %s push --atomic --follow-tags URL 'refs/heads/fresh-*' pushes it\n",
		o.repo,
		o.repo,
	)
	fmt.Fprintf(
		o.out,
		"then, in your program: go get %[1]s@%[2]s && go mod edit -replace=%[1]s=%[3]s@%[4]s && go mod tidy\n",
		tree.Module,
		newest.version,
		o.module,
		newest.tag,
	)
	return nil
}

// editions makes the editions that are new.
func (o options) editions(ctx context.Context, repo refs) (editions []edition, err error) {
	for _, line := range o.lines {
		e := edition{version: line.Newest, branch: "fresh-" + strings.TrimPrefix(line.Minor, "v")}
		e.from = repo.base(e.branch)
		isNew, err := o.make(ctx, &e, repo.newest(e.version))
		if err == nil && isNew && e.from != "" {
			err = checkTip(ctx, o.repo, e.from)
		}
		switch {
		case err != nil:
			return nil, err
		case isNew:
			editions = append(editions, e)
		default:
			fmt.Fprintf(o.out, "%-10s %s on %s has all of this\n", "same", e.tag, e.branch)
		}
	}
	return editions, nil
}

// make makes an edition after the one of that number, and reports whether it is new: whether
// the tag of that number holds other files.
func (o options) make(ctx context.Context, e *edition, newest int) (isNew bool, err error) {
	fmt.Fprintf(o.out, "%-10s %s %s\n", "upstream", tree.Module, e.version)
	upstream, err := tree.Upstream(ctx, e.version, nil)
	if err == nil {
		e.time, err = released(ctx, e.version)
	}
	if err == nil {
		e.files, err = tree.Generate(e.version, upstream, o.ours)
	}
	// Upstream's automation would run in the fork's repository.
	maps.DeleteFunc(e.files, func(name string, _ []byte) bool { return strings.HasPrefix(name, ".github/") })
	if err == nil {
		err = o.name(e, max(newest, 1))
	}
	if err != nil || newest == 0 {
		e.upstream = upstream
		return true, err
	}
	held, err := cli.Git(ctx, o.repo, nil, nil, "ls-tree", "-r", "-z", "refs/tags/"+e.tag)
	if err != nil || held == listing(e.files) {
		return false, err
	}
	return true, o.name(e, newest+1)
}

// listing is what "git ls-tree -r -z" says of a commit of these files.
func listing(files tree.Files) string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		blob := fmt.Appendf(nil, "blob %d\x00%s", len(files[name]), files[name])
		fmt.Fprintf(&text, "100644 blob %x\t%s\x00", sha1.Sum(blob), name)
	}
	return text.String()
}

// released is when a version of controller-runtime was released.
func released(ctx context.Context, version string) (time.Time, error) {
	var info struct{ Time time.Time }
	err := cli.Elsewhere(
		ctx,
		[]byte("module freshmapper.invalid/list\n"),
		nil,
		&info,
		"list",
		"-m",
		"-json",
		tree.Module+"@"+version,
	)
	if err == nil && info.Time.IsZero() {
		err = fmt.Errorf("%s %s names no time of release", tree.Module, version)
	}
	return info.Time.UTC(), err
}

// history returns the commits and tags. For each edition it has the commit of
// upstream's release, unless the repository has that already, our commit on top,
// and the tag.
func (o options) history(editions []edition, author *mail.Address) *tree.History {
	h := &tree.History{Author: author}
	for _, e := range editions {
		if e.upstream != nil {
			h.Commit(
				e.branch,
				e.from,
				e.time,
				fmt.Sprintf("controller-runtime %s, as upstream released it\n", e.version),
				e.upstream,
			)
			e.from = ""
		}
		h.Commit(
			e.branch,
			e.from,
			e.time,
			fmt.Sprintf(
				"Put a RESTMapper into controller-runtime %s that stays fresh\n\nMade by hack/release of %s.\n",
				e.version,
				tree.Ours,
			),
			e.files,
		)
		h.Tag(
			e.tag,
			e.branch,
			e.time,
			fmt.Sprintf(
				"controller-runtime %s with a RESTMapper that stays fresh\n\nreplace %s => %s %s\n",
				e.version,
				tree.Module,
				o.module,
				e.tag,
			),
		)
	}
	return h
}

// notes is the template of the release notes.
//
//go:embed notes.md
var notes string

// name gives an edition its tag, and the release notes as its README. It returns an error if
// MATRIX.md has no results of upstream tests for the version.
func (o options) name(e *edition, number int) error {
	rows := matrixRows(o.matrix, e.version)
	if rows == "" {
		return fmt.Errorf("MATRIX.md has no rows for %s: run hack/test.sh -matrix first", e.version)
	}
	digest, err := tree.SourceDigest(o.ours)
	if err != nil {
		return fmt.Errorf("read our sources: %w", err)
	}
	e.tag = fmt.Sprintf("%s-fresh.%d", e.version, number)
	e.files["README.md"] = fmt.Appendf(nil, notes, e.version, tree.Module, o.module, e.tag, digest, rows)
	return nil
}

// matrixRows are those tables of MATRIX.md that have rows of a version, with
// those rows alone.
func matrixRows(matrix, version string) string {
	var tables strings.Builder
	for _, block := range strings.Split(matrix, "\n\n") {
		if !strings.HasPrefix(block, "|") || !strings.Contains(block, "\n| "+version+" |") {
			continue
		}
		for i, line := range strings.SplitAfter(strings.TrimSpace(block)+"\n", "\n") {
			if i < 2 || strings.HasPrefix(line, "| "+version+" |") { // the head, and the line below it
				tables.WriteString(line)
			}
		}
		tables.WriteString("\n")
	}
	return tables.String()
}

// refs are those of a repository of releases, sorted: refs/heads/fresh-0.25,
// refs/tags/v0.25.2-fresh.1, …
type refs []string

// ours matches a branch of releases, here or in a remote repository.
var ours = regexp.MustCompile(`^refs/(heads|remotes/.*)/fresh-0\.`)

// openRepository looks at what is in dir, and writes nothing. There need not be anything.
func openRepository(ctx context.Context, dir string) (refs, error) {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) || (err == nil && len(entries) == 0):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look at %s: %w", dir, err)
	case !tree.Exists(filepath.Join(dir, ".git")):
		return nil, fmt.Errorf("%s is not empty and no git repository: choose a new folder", dir)
	}
	listed, err := cli.Git(ctx, dir, nil, nil, "for-each-ref", "--format=%(refname)")
	if err != nil {
		return nil, err
	}
	all := strings.Fields(listed)
	if len(all) > 0 && !slices.ContainsFunc(all, ours.MatchString) {
		return nil, fmt.Errorf(
			"%s is a git repository of something else: it has no branch fresh-0.x; choose a new folder",
			dir,
		)
	}
	changes, err := cli.Git(ctx, dir, nil, nil, "status", "--porcelain")
	if first, _, _ := strings.Cut(changes, "\n"); err == nil && first != "" {
		err = fmt.Errorf(
			"%s has changes that are not committed (%s): commit them elsewhere, or choose a new folder",
			dir,
			strings.TrimSpace(first),
		)
	}
	return all, err
}

// newest is the number of the newest tag of a version, 0 if there is none.
func (r refs) newest(version string) (newest int) {
	for _, ref := range r {
		if number, of := strings.CutPrefix(ref, "refs/tags/"+version+"-fresh."); of {
			n, _ := strconv.Atoi(number) // it fails for somebody else's tag
			newest = max(newest, n)
		}
	}
	return newest
}

// base returns the ref from which a branch continues. Without a local branch, as in
// a fresh clone, it is the remote's. It is "" if the branch is new.
func (r refs) base(branch string) string {
	for _, ref := range r {
		if ours.MatchString(ref) && strings.HasSuffix(ref, "/"+branch) {
			return ref
		}
	}
	return ""
}

// checkTip returns an error unless a branch ends with a tag of the fork: an edition is a whole
// tree, so what somebody has committed would be lost behind it.
func checkTip(ctx context.Context, dir, ref string) error {
	_, err := cli.Git(ctx, dir, nil, nil, "describe", "--exact-match", "--match=v*-fresh.*", ref)
	if err != nil {
		err = fmt.Errorf(
			"%s does not end with a tag of the fork (%w): fetch the tags, or move that commit "+
				"to a branch of your own (git branch mine %[1]s; git checkout -B %[3]s TAG)",
			ref,
			err,
			path.Base(ref),
		)
	}
	return err
}

// component is a module, in the words of CycloneDX.
func component(name, version string) map[string]string {
	return map[string]string{
		"type":    "library",
		"name":    name,
		"version": version,
		"purl":    "pkg:golang/" + name + "@" + version,
	}
}

// bill is the SBOM of an edition, as CycloneDX: upstream's release, whose advisories are those
// of its fork, too, and the modules that its go.mod requires. The same sources give the same
// bytes.
func (o options) bill(ctx context.Context, e *edition) ([]byte, error) {
	var mod struct {
		Require []struct{ Path, Version string }
	}
	if err := cli.Elsewhere(ctx, e.files["go.mod"], nil, &mod, "mod", "edit", "-json"); err != nil {
		return nil, err
	}
	components := []map[string]string{component(tree.Module, e.version)}
	for _, r := range mod.Require {
		components = append(components, component(r.Path, r.Version))
	}
	return json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
		"metadata":   map[string]any{"timestamp": e.time, "component": component(o.module, e.tag)},
		"components": components,
	}, "", "  ")
}
