// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/mail"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/freshmapper/freshmapper/hack/fork/gotool"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// repository is one of releases, which need not be there yet.
type repository struct {
	dir  string
	refs []string // refs/heads/fresh-0.25, refs/tags/v0.25.2-fresh.1, …
}

// openRepository looks at what is in dir, and writes nothing.
func openRepository(ctx context.Context, dir string) (*repository, error) {
	if _, err := exec.LookPath("git"); err != nil {
		return nil, fmt.Errorf("no git command in PATH: install git: %w", err) // before anything is downloaded
	}
	r := &repository{dir: dir}
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) || (err == nil && len(entries) == 0):
		return r, nil
	case err != nil:
		return nil, fmt.Errorf("look at %s: %w", dir, err)
	case !r.made():
		return nil, fmt.Errorf("%s is not empty and no git repository: choose a new folder", dir)
	}
	refs, err := gotool.Git(ctx, dir, nil, nil, "for-each-ref", "--format=%(refname)")
	if err != nil {
		return nil, err
	}
	r.refs = strings.Fields(refs)
	if !slices.ContainsFunc(r.refs, func(ref string) bool {
		return strings.HasPrefix(ref, "refs/heads/fresh-0.") || strings.HasPrefix(ref, "refs/remotes/") && strings.Contains(ref, "/fresh-0.")
	}) {
		return nil, fmt.Errorf("%s is a git repository of something else: it has no branch fresh-0.x; choose a new folder", dir)
	}
	changes, err := gotool.Git(ctx, dir, nil, nil, "status", "--porcelain")
	if err != nil {
		return nil, err
	}
	if first, _, _ := strings.Cut(changes, "\n"); first != "" {
		return nil, fmt.Errorf("%s has changes that are not committed (%s): commit them elsewhere, or choose a new folder", dir, strings.TrimSpace(first))
	}
	return r, nil
}

// made reports whether there is a repository.
func (r *repository) made() bool { return tree.Exists(filepath.Join(r.dir, ".git")) }

// base returns the ref from which a branch continues. Without a local branch, as in
// a fresh clone, it is the remote's. It is "" if the branch is new.
func (r *repository) base(branch string) string {
	if local := "refs/heads/" + branch; slices.Contains(r.refs, local) {
		return local
	}
	for _, ref := range r.refs {
		if strings.HasPrefix(ref, "refs/remotes/") && strings.HasSuffix(ref, "/"+branch) {
			return ref
		}
	}
	return ""
}

// add makes the repository if there is none, adds commits to it, and checks out a
// branch.
func (r *repository) add(ctx context.Context, s *stream, branch string) error {
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return fmt.Errorf("make %s: %w", r.dir, err)
	}
	var commands [][]string
	if !r.made() {
		commands = append(commands, []string{"init", "-q", "--template="}, []string{"symbolic-ref", "HEAD", "refs/heads/" + branch})
	}
	s.text.WriteString("done\n")
	commands = append(commands, []string{"fast-import", "--quiet", "--done"}, []string{"checkout", "-q", "-f", branch})
	for _, command := range commands {
		var stdin io.Reader
		if command[0] == "fast-import" {
			stdin = &s.text
		}
		if _, err := gotool.Git(ctx, r.dir, nil, stdin, command...); err != nil {
			return err
		}
	}
	return nil
}

// stream is what "git fast-import" reads: commits and tags. git takes all of it or
// nothing. Nothing in it depends on the machine, its user or the time.
type stream struct {
	author *mail.Address
	from   string // the commit to go on from; "" for none
	text   bytes.Buffer
	marks  int
}

// commit adds a commit, on which the next one builds.
func (s *stream) commit(branch string, when time.Time, message string, files tree.Files) {
	s.marks++
	fmt.Fprintf(&s.text, "commit refs/heads/%s\nmark :%d\n", branch, s.marks)
	s.person("author", when)
	s.person("committer", when)
	s.data([]byte(message))
	if s.from != "" {
		fmt.Fprintf(&s.text, "from %s\n", s.from)
	}
	s.text.WriteString("deleteall\n")
	for _, name := range slices.Sorted(maps.Keys(files)) {
		mode := "100644"
		if files[name].Exec {
			mode = "100755"
		}
		fmt.Fprintf(&s.text, "M %s inline %s\n", mode, name) // a file of a Go module needs no quotes
		s.data(files[name].Data)
	}
	s.from = fmt.Sprintf(":%d", s.marks)
}

// tag tags the last commit.
func (s *stream) tag(name string, when time.Time, message string) {
	fmt.Fprintf(&s.text, "tag %s\nfrom %s\n", name, s.from)
	s.person("tagger", when)
	s.data([]byte(message))
}

func (s *stream) person(role string, when time.Time) {
	fmt.Fprintf(&s.text, "%s %s <%s> %d +0000\n", role, s.author.Name, s.author.Address, when.Unix())
}

func (s *stream) data(data []byte) {
	fmt.Fprintf(&s.text, "data %d\n", len(data))
	s.text.Write(data)
	s.text.WriteString("\n")
}
