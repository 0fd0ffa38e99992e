// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"io/fs"
	"net/mail"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freshmapper/freshmapper/hack/fork/cli"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// series holds the patches without upstream's lines, as hack/stage/take.sh writes them:
// the commit message; then for each file "+++ NAME" and its hunks, "@@ -FROM,N +TO,M @@"
// and the new lines. base.sha256 has the files before the series.
//
//go:embed series
var series embed.FS

const branch = "series"

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
	now := strconv.FormatInt(time.Now().Unix(), 10)
	seconds, err := strconv.ParseInt(cmp.Or(os.Getenv("SOURCE_DATE_EPOCH"), now), 10, 64) // with it the commits are the same each time
	if err != nil {
		return nil, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	when := time.Unix(seconds, 0)
	files, err := changed(ctx, base)
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(series, "series/*.patch")
	if err != nil {
		return nil, err
	}
	history := &tree.History{Author: author}
	history.Commit(branch, "", when, "upstream\n", files)
	mails := make([]patchMail, len(names))
	for i, name := range names {
		text, err := series.ReadFile(name)
		if err != nil {
			return nil, err
		}
		parts := strings.Split(string(text), "\n+++ ")
		mails[i].message = parts[0]
		for _, file := range parts[1:] {
			if err := mails[i].apply(files, strings.TrimSuffix(file, "\n")+"\n"); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		history.Commit(branch, "", when, strings.TrimSpace(parts[0])+"\n", files)
	}
	return mails, format(ctx, history, mails)
}

// changed are the files of a release that the series changes. They must be those that it
// was made for.
func changed(ctx context.Context, base string) (tree.Files, error) {
	upstream, err := tree.Upstream(ctx, base, nil)
	if err != nil {
		return nil, err
	}
	sums, err := series.ReadFile("series/base.sha256")
	if err != nil {
		return nil, err
	}
	files := tree.Files{}
	for line := range slices.Chunk(strings.Fields(string(sums)), 2) {
		sum, name := line[0], line[1]
		if files[name] = upstream[name]; tree.Digest(files[name]) != sum {
			return nil, fmt.Errorf("%s of controller-runtime %s is not that of %s: apply the series to %[3]s, and rebase it with git", name, base, newest)
		}
	}
	return files, nil
}

// format makes the mails of all commits but the first. The user's settings of git do not
// count.
func format(ctx context.Context, history *tree.History, mails []patchMail) error {
	scratch, err := os.MkdirTemp("", "freshmapper-stage-")
	if err != nil {
		return fmt.Errorf("make a scratch repository: %w", err)
	}
	defer os.RemoveAll(scratch)
	if err := history.Import(ctx, scratch, branch); err != nil {
		return err
	}
	env := []string{"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1"}
	said, err := cli.Git(ctx, scratch, env, nil, "format-patch", "--zero-commit", "--full-index", "--no-renames", "--numbered",
		"--signature=freshmapper", "--output-directory=mails", fmt.Sprintf("HEAD~%d..HEAD", len(mails)))
	if err != nil {
		return err
	}
	for i, name := range strings.Fields(said) {
		mails[i].file = filepath.Base(name)
		if mails[i].text, err = os.ReadFile(filepath.Join(scratch, name)); err != nil {
			return fmt.Errorf("read what git format-patch wrote: %w", err)
		}
	}
	return nil
}

// apply applies the hunks of one file, whose name is their first line.
func (m *patchMail) apply(files tree.Files, text string) error {
	name, hunks, _ := strings.Cut(text, "\n")
	old := strings.SplitAfter(string(files[name]), "\n")
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
	files[name] = []byte(strings.Join(edited, ""))
	return nil
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
