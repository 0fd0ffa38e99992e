// SPDX-License-Identifier: Apache-2.0

// Package git writes trees to git repositories of the tools' own. Nothing that
// is written depends on the machine, its user or the time.
package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/mail"
	"slices"
	"time"

	"github.com/freshmapper/freshmapper/hack/fork/gotool"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// Repository is a repository, which need not be there yet.
type Repository struct {
	Dir string
	Env []string // for git, on top of this process's own
}

// Run runs git in the repository, and never in one around it. It returns what git
// printed.
func (r Repository) Run(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	env := append([]string{"GIT_DEFAULT_HASH=sha1", "GIT_DIR=.git", "GIT_WORK_TREE=."}, r.Env...)
	command := append([]string{"git", "-c", "core.autocrlf=false", "-c", "core.hooksPath=/dev/null"}, args...)
	out, err := gotool.Exec(ctx, r.Dir, env, stdin, command...)
	var failed *gotool.Error
	if errors.As(err, &failed) {
		failed.Args = []string{"git", args[0]} // the others are many
	}
	return string(out), err
}

// Import makes the repository if there is none, with a branch to be checked out,
// and adds commits to it.
func (r Repository) Import(ctx context.Context, made bool, branch string, s *Stream) error {
	if !made {
		if _, err := r.Run(ctx, nil, "init", "-q", "--template="); err != nil {
			return err
		}
		if _, err := r.Run(ctx, nil, "symbolic-ref", "HEAD", "refs/heads/"+branch); err != nil {
			return err
		}
	}
	s.text.WriteString("done\n")
	_, err := r.Run(ctx, &s.text, "fast-import", "--quiet", "--done")
	return err
}

// Stream is what "git fast-import" reads: commits and tags. git takes all of it or
// nothing.
type Stream struct {
	Author *mail.Address
	From   string // the commit to go on from; "" for none

	text  bytes.Buffer
	marks int
}

// Commit adds a commit, on which the next one builds.
func (s *Stream) Commit(branch string, when time.Time, message string, files tree.Files) {
	s.marks++
	fmt.Fprintf(&s.text, "commit refs/heads/%s\nmark :%d\n", branch, s.marks)
	s.person("author", when)
	s.person("committer", when)
	s.data([]byte(message))
	if s.From != "" {
		fmt.Fprintf(&s.text, "from %s\n", s.From)
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
	s.From = fmt.Sprintf(":%d", s.marks)
}

// Tag tags the last commit.
func (s *Stream) Tag(name string, when time.Time, message string) {
	fmt.Fprintf(&s.text, "tag %s\nfrom %s\n", name, s.From)
	s.person("tagger", when)
	s.data([]byte(message))
}

func (s *Stream) person(role string, when time.Time) {
	fmt.Fprintf(&s.text, "%s %s <%s> %d +0000\n", role, s.Author.Name, s.Author.Address, when.Unix())
}

func (s *Stream) data(data []byte) {
	fmt.Fprintf(&s.text, "data %d\n", len(data))
	s.text.Write(data)
	s.text.WriteString("\n")
}
