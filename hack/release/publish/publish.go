// SPDX-License-Identifier: Apache-2.0

// Package publish makes a git repository of the forks of several lines of
// controller-runtime.
//
// All trees are made in memory before anything is written, and git gets all of
// them in one stream: so a run that fails, or is interrupted, leaves the
// repository as it was.
package publish

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/mail"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/freshmapper/freshmapper/hack/fork/git"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

const (
	// Module is where the repository is expected to be pushed to.
	Module = "github.com/freshmapper/controller-runtime"
	// Author is who the commits are by.
	Author = "freshmapper <noreply@freshmapper.invalid>"
)

// Request is what to publish.
type Request struct {
	Dir    string      // of the repository
	Lines  []tree.Line // at their newest tested releases
	Fresh  int         // the number in the tags
	Notes  string      // a folder for the release notes; "" for none
	Module string
	Author string
	Date   time.Time // of our commits; zero for that of upstream's release
	Ours   fs.FS     // apiutil and internal
	Matrix string    // hack/fork/MATRIX.md
	Out    io.Writer // progress
}

// edition is what is released of one line.
type edition struct {
	version  string // upstream's
	tag      string
	branch   string
	time     time.Time  // of upstream's release
	upstream tree.Files // nil if the branch has it
	files    tree.Files
	notes    string
}

// Publish adds a commit and a tag for each line to the repository in r.Dir.
func Publish(ctx context.Context, r Request) error {
	author, err := r.valid()
	if err != nil {
		return err
	}
	unlock, err := tree.Lock(r.Dir)
	if err != nil {
		return err
	}
	defer unlock()
	repo, err := openRepository(ctx, r.Dir)
	if err != nil {
		return err
	}
	editions, err := r.editions(ctx, repo)
	if err != nil {
		return err
	}
	if err := repo.add(ctx, r.stream(repo, editions, author), editions[len(editions)-1].branch); err != nil {
		return err
	}
	for _, e := range editions {
		fmt.Fprintf(r.Out, "%-10s %s on %s\n", "tag", e.tag, e.branch)
	}
	if err := r.writeNotes(editions); err != nil {
		return err
	}
	fmt.Fprintf(r.Out, "\ndone: %s is ready; git -C %s push --atomic --follow-tags URL 'refs/heads/fresh-*' pushes it\n", r.Dir, r.Dir)
	return nil
}

func (r Request) valid() (*mail.Address, error) {
	if r.Fresh < 1 {
		return nil, fmt.Errorf("-fresh %d: the number begins at 1", r.Fresh)
	}
	author, err := mail.ParseAddress(r.Author)
	if err != nil || author.Name == "" {
		return nil, fmt.Errorf("-author %q is not like %q", r.Author, Author)
	}
	return author, nil
}

// editions makes all of them, after a look at those tags that may be in the way.
func (r Request) editions(ctx context.Context, repo *repository) ([]edition, error) {
	var editions []edition
	for _, line := range r.Lines {
		e := edition{version: line.Newest, tag: fmt.Sprintf("%s-fresh.%d", line.Newest, r.Fresh), branch: "fresh-" + strings.TrimPrefix(line.Minor, "v")}
		if repo.has("refs/tags/" + e.tag) {
			return nil, fmt.Errorf("the tag %s exists in %s: give the next number with -fresh", e.tag, r.Dir)
		}
		editions = append(editions, e)
	}
	for i := range editions {
		if err := r.make(ctx, &editions[i], repo); err != nil {
			return nil, err
		}
	}
	return editions, nil
}

func (r Request) make(ctx context.Context, e *edition, repo *repository) error {
	fmt.Fprintf(r.Out, "%-10s %s %s\n", "upstream", tree.Module, e.version)
	upstream, err := tree.Upstream(ctx, e.version, nil)
	if err != nil {
		return err
	}
	if e.time, err = tree.Released(ctx, e.version); err != nil {
		return err
	}
	if e.files, err = tree.Generate(e.version, maps.Clone(upstream), r.Ours); err != nil {
		return err
	}
	if !repo.released(e.version) {
		e.upstream = upstream
	}
	if e.notes, err = r.describe(e); err != nil {
		return err
	}
	e.relabel()
	return nil
}

// relabel makes the tree's README say what it is, and takes out upstream's
// automation, which would run in the fork's repository.
func (e *edition) relabel() {
	maps.DeleteFunc(e.files, func(name string, _ tree.File) bool { return strings.HasPrefix(name, ".github/") })
	e.files["README.md"] = tree.File{Data: []byte(e.notes)}
}

// stream has for each edition the commit of upstream's release, unless an earlier
// edition has brought it, that of ours, and the tag.
func (r Request) stream(repo *repository, editions []edition, author *mail.Address) *git.Stream {
	s := &git.Stream{Author: author}
	for _, e := range editions {
		if base := repo.base(e.branch); base != "" {
			s.From = base + "^0"
		}
		if e.upstream != nil {
			s.Commit(e.branch, e.time, fmt.Sprintf("controller-runtime %s, as upstream released it\n", e.version), e.upstream)
		}
		when := e.time
		if !r.Date.IsZero() {
			when = r.Date
		}
		s.Commit(e.branch, when, fmt.Sprintf("Put a RESTMapper into controller-runtime %s that stays fresh\n\nMade by hack/release of %s.\n", e.version, tree.Ours), e.files)
		s.Tag(e.tag, when, fmt.Sprintf("controller-runtime %s with a RESTMapper that stays fresh\n\nreplace %s => %s %s\n", e.version, tree.Module, r.Module, e.tag))
		s.From = ""
	}
	return s
}

func (r Request) writeNotes(editions []edition) error {
	if r.Notes == "" {
		return nil
	}
	if err := os.MkdirAll(r.Notes, 0o755); err != nil {
		return fmt.Errorf("make a folder for the release notes: %w", err)
	}
	for _, e := range editions {
		if err := os.WriteFile(filepath.Join(r.Notes, e.tag+".md"), []byte(e.notes), 0o644); err != nil {
			return fmt.Errorf("write the release notes: %w", err)
		}
	}
	return nil
}

// ParseLines reads "v0.25", "v0.24,v0.25" or "v0.20..v0.25".
func ParseLines(text string) ([]tree.Line, error) {
	from, to, isRange := strings.Cut(text, "..")
	if isRange {
		first, errFirst := indexOf(from)
		last, errLast := indexOf(to)
		switch {
		case errFirst != nil:
			return nil, errFirst
		case errLast != nil:
			return nil, errLast
		case last < first:
			return nil, fmt.Errorf("the lines %s are the wrong way round", text)
		}
		return tree.Lines[first : last+1], nil
	}
	var lines []tree.Line
	for _, name := range strings.Split(text, ",") {
		i, err := indexOf(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		lines = append(lines, tree.Lines[i])
	}
	return lines, nil
}

func indexOf(minor string) (int, error) {
	for i, line := range tree.Lines {
		if line.Minor == minor {
			return i, nil
		}
	}
	return 0, fmt.Errorf("the line %q is not supported: use %s", minor, tree.Supported())
}
