// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/mail"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/gotool"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// series holds the patches without upstream's lines, as hack/stage/take.sh writes them:
// the commit message; then for each file "+++ NAME" and its hunks, "@@ -FROM,N +TO,M @@"
// and the new lines. base.sha256 has the files before the series.
//
//go:embed series
var series embed.FS

// patchMail is a patch as git am takes it, and how many lines it adds.
type patchMail struct {
	message     string
	file        string // its name as git format-patch has it
	text        []byte
	code, tests int
}

// makeSeries commits the series to a scratch repository, which has nothing but the
// files that it changes, and lets git format the mails.
func makeSeries(ctx context.Context, base string, author *mail.Address) ([]patchMail, error) {
	scratch, err := os.MkdirTemp("", "freshmapper-stage-")
	if err != nil {
		return nil, fmt.Errorf("make a scratch repository: %w", err)
	}
	defer os.RemoveAll(scratch)
	r := repository{ctx, scratch, author}
	if err := r.begin(base); err != nil {
		return nil, err
	}
	names, err := fs.Glob(series, "series/*.patch")
	if err != nil {
		return nil, err
	}
	var mails []patchMail
	for _, name := range names {
		text, err := series.ReadFile(name)
		if err != nil {
			return nil, err
		}
		parts := strings.Split(string(text), "\n+++ ")
		m := patchMail{message: parts[0]}
		for _, file := range parts[1:] {
			if err := m.apply(scratch, strings.TrimSuffix(file, "\n")+"\n"); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		if err := r.commit(m.message); err != nil {
			return nil, err
		}
		mails = append(mails, m)
	}
	said, err := r.git("format-patch", "--zero-commit", "--full-index", "--no-renames", "--numbered", "--signature=freshmapper",
		"--output-directory=mails", "--root", fmt.Sprintf("HEAD~%d..HEAD", len(mails)))
	if err != nil {
		return nil, err
	}
	for i, name := range strings.Fields(said) {
		mails[i].file = filepath.Base(name)
		if mails[i].text, err = os.ReadFile(filepath.Join(scratch, name)); err != nil {
			return nil, fmt.Errorf("read what git format-patch wrote: %w", err)
		}
	}
	return mails, nil
}

// apply applies the hunks of one file, whose name is their first line.
func (m *patchMail) apply(dir, text string) error {
	name, hunks, _ := strings.Cut(text, "\n")
	path := filepath.Join(dir, filepath.FromSlash(name))
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	old := strings.SplitAfter(string(data), "\n")
	var edited []string
	done := 0
	for _, line := range strings.SplitAfter(hunks, "\n") {
		switch {
		case strings.HasPrefix(line, "@@ "):
			from, n, err := hunkOf(line)
			if err != nil || from < done || from+n > len(old) {
				return fmt.Errorf("%s: hunk %q does not fit: %w", name, strings.TrimSpace(line), err)
			}
			edited = append(edited, old[done:from]...)
			done = from + n
		case strings.HasPrefix(line, "+"):
			edited = append(edited, line[1:])
			if strings.HasSuffix(name, "_test.go") {
				m.tests++
			} else {
				m.code++
			}
		}
	}
	edited = append(edited, old[done:]...)
	return os.WriteFile(path, []byte(strings.Join(edited, "")), 0o644)
}

// hunkOf returns the lines that a hunk replaces: how many are before them, and their
// number.
func hunkOf(line string) (from, n int, err error) {
	old := strings.Fields(line)[1]
	if !strings.Contains(old, ",") {
		old += ",1"
	}
	if _, err = fmt.Sscanf(old, "-%d,%d", &from, &n); n > 0 {
		from--
	}
	return from, n, err
}

// repository is a git repository of the author's. The user's settings do not count.
type repository struct {
	ctx    context.Context //nolint:containedctx // it lives as long as one call of makeSeries
	dir    string
	author *mail.Address
}

// begin commits the files of a release that the series changes. They must be those that
// it was made for.
func (r repository) begin(base string) error {
	upstream, err := tree.Folder(r.ctx, base, nil)
	if err != nil {
		return err
	}
	sums, err := series.ReadFile("series/base.sha256")
	if err != nil {
		return err
	}
	if _, err := r.git("init", "-q", "--template="); err != nil {
		return err
	}
	for line := range slices.Chunk(strings.Fields(string(sums)), 2) {
		sum, name := line[0], line[1]
		data, err := os.ReadFile(filepath.Join(upstream, filepath.FromSlash(name)))
		if err != nil || fmt.Sprintf("%x", sha256.Sum256(data)) != sum {
			return fmt.Errorf("%s of controller-runtime %s is not that of %s: apply the series to %[3]s, and rebase it with git", name, base, newest)
		}
		path := filepath.Join(r.dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o644)); err != nil {
			return fmt.Errorf("copy %s: %w", name, err)
		}
	}
	return r.commit("upstream")
}

func (r repository) commit(message string) error {
	if _, err := r.git("add", "-A", "-f"); err != nil {
		return err
	}
	_, err := r.git("commit", "-q", "-m", strings.TrimSpace(message))
	return err
}

// git runs git. With SOURCE_DATE_EPOCH set, the commits are the same each time.
func (r repository) git(args ...string) (string, error) {
	env := []string{
		"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=" + r.author.Name, "GIT_AUTHOR_EMAIL=" + r.author.Address,
		"GIT_COMMITTER_NAME=" + r.author.Name, "GIT_COMMITTER_EMAIL=" + r.author.Address,
	}
	if date := os.Getenv("SOURCE_DATE_EPOCH"); date != "" {
		env = append(env, "GIT_AUTHOR_DATE="+date+" +0000", "GIT_COMMITTER_DATE="+date+" +0000")
	}
	return gotool.Git(r.ctx, r.dir, env, nil, args...)
}
