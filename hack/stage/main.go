// SPDX-License-Identifier: Apache-2.0

// Command stage writes this project's changes to controller-runtime's own mapper as patches for
// upstream.
package main

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/mail"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freshmapper/freshmapper/hack/fork/cli"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

const help = `stage writes patches for controller-runtime.

  stage -o DIR [-base V] [-author 'NAME <ADDRESS>']

stage writes the patches to DIR, which must be absent or empty. Each patch applies to
the release V by itself, builds and passes its tests. In a checkout of the tag V of
controller-runtime run

  git am DIR/0001-*.patch       for one of them
  git am -3 DIR/*.patch         for all, in this order

Upstream asks contributors to sign a CLA: as author, name somebody who has signed it.

  -base V     the controller-runtime release to change (default ` + newest + `); the files
              that the patches change must be those of the default
  -author A   the author of the commits (default ` + nobody + `)

hack/stage/PROPOSAL.md says what to tell upstream, and that you say it in your own words.
`

const (
	newest = "v0.25.2"
	nobody = "freshmapper <freshmapper@example.invalid>"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	var out, base, author string
	flags := flag.NewFlagSet("stage", flag.ContinueOnError)
	flags.StringVar(&out, "o", "", "")
	flags.StringVar(&base, "base", newest, "")
	flags.StringVar(&author, "author", nobody, "")
	var by *mail.Address
	valid := func() (err error) {
		if out == "" {
			return errors.New("-o DIR is missing: name the folder for the patches")
		}
		if by, err = mail.ParseAddress(author); err != nil {
			return fmt.Errorf("-author %q is not like 'NAME <ADDRESS>': %w", author, err)
		}
		return nil
	}
	return cli.Command{
		Flags: flags, Help: help, Valid: valid,
		Do: func(ctx context.Context) error { return stage(ctx, out, base, by, stdout) },
	}.Run(args, stdout, stderr)
}

func stage(ctx context.Context, out, base string, author *mail.Address, stdout io.Writer) error {
	if entries, err := os.ReadDir(out); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s holds %s: remove it, or choose another folder", out, entries[0].Name())
	}
	mails, err := makeMails(ctx, base, author)
	if err != nil {
		return err
	}
	for _, mail := range mails {
		if err := tree.Write(out, mail.file, mail.text); err != nil {
			return fmt.Errorf("write a patch: %w", err)
		}
		fmt.Fprintln(stdout, filepath.Join(out, mail.file))
	}
	return nil
}

// series are the patches without upstream's lines, as hack/stage/take.sh writes them: for
// each file "+++ NAME" and its hunks, "@@ BEFORE N" (how many lines are before those that are
// replaced, and how many these are) and the new lines, of a new file without its license.
// base.sha256 has the files that the patches change, as they were before.
//
//go:embed series
var series embed.FS

// proposal has a text for each patch, and then one for a comment. The message of a patch is the
// begin of its text.
//
//go:embed PROPOSAL.md
var proposal string

// proposed finds the texts.
var proposed = regexp.MustCompile("(?s)````markdown\n(.*?)````")

const license = "hack/boilerplate/boilerplate.go.txt" // upstream's own, for new files

// patchMail is a patch as git am takes it.
type patchMail struct {
	message string
	file    string // its name as git format-patch has it
	text    []byte
}

// makeMails commits each patch to a scratch repository, which has nothing but the files that
// they change, and lets git format the mails. Before each patch a commit restores the files.
func makeMails(ctx context.Context, base string, author *mail.Address) ([]patchMail, error) {
	epoch := cmp.Or(
		os.Getenv("SOURCE_DATE_EPOCH"),
		strconv.FormatInt(time.Now().Unix(), 10),
	) // with it the commits are the same each time
	seconds, err := strconv.ParseInt(epoch, 10, 64)
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
	texts := proposed.FindAllStringSubmatch(proposal, len(names))
	const branch = "patches"
	history := &tree.History{Author: author}
	mails := make([]patchMail, len(names))
	for i, name := range names {
		patch, err := series.ReadFile(name)
		if err != nil {
			return nil, err
		}
		mails[i].message = message(texts[i][1])
		edited := maps.Clone(files)
		for _, file := range strings.Split("\n"+string(patch), "\n+++ ")[1:] {
			if err := apply(edited, strings.TrimSuffix(file, "\n")+"\n"); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		history.Commit(branch, "", when, "upstream\n", files)
		history.Commit(branch, "", when, mails[i].message, edited)
	}
	scratch, err := os.MkdirTemp("", "freshmapper-stage-")
	if err != nil {
		return nil, fmt.Errorf("make a scratch repository: %w", err)
	}
	defer os.RemoveAll(scratch)
	err = history.Import(ctx, scratch, branch)
	for i := range mails {
		if err == nil {
			err = mails[i].format(ctx, scratch, i+1, fmt.Sprintf("HEAD~%d", 2*(len(mails)-1-i)))
		}
	}
	return mails, err
}

// message is the title of a text, and its first section without the heading, in short lines.
func message(text string) string {
	parts := strings.SplitN(text, "\n\n**", 3)
	_, body, _ := strings.Cut(parts[1], "**\n\n")
	return parts[0] + "\n\n" + regexp.MustCompile(`(.{1,72})(?: |\n|$)`).ReplaceAllString(body, "$1\n")
}

// changed are the files of a release that the patches change, and the license. The files
// must be those that the patches were made for.
func changed(ctx context.Context, base string) (tree.Files, error) {
	upstream, err := tree.Upstream(ctx, base, nil)
	if err != nil {
		return nil, err
	}
	sums, err := series.ReadFile("series/base.sha256")
	if err != nil {
		return nil, err
	}
	files := tree.Files{license: upstream[license]}
	for line := range slices.Chunk(strings.Fields(string(sums)), 2) {
		sum, name := line[0], line[1]
		if files[name] = upstream[name]; tree.Digest(files[name]) != sum {
			return nil, fmt.Errorf(
				"%s of controller-runtime %s is not that of %s: apply the patches to %[3]s, and rebase them with git",
				name,
				base,
				newest,
			)
		}
	}
	return files, nil
}

// format makes the mail of a commit. The user's settings of git do not count.
func (m *patchMail) format(ctx context.Context, scratch string, number int, commit string) error {
	env := []string{"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1"}
	said, err := cli.Git(ctx, scratch, env, nil, "format-patch", "-1", "--zero-commit", "--full-index", "--no-renames",
		fmt.Sprintf("--start-number=%d", number), "--signature=freshmapper", commit)
	if err != nil {
		return err
	}
	m.file = strings.TrimSpace(said)
	m.text, err = os.ReadFile(filepath.Join(scratch, m.file))
	return err
}

// apply applies the hunks of one file, whose name is their first line.
func apply(files tree.Files, text string) error {
	name, hunks, _ := strings.Cut(text, "\n")
	old, done := strings.SplitAfter(string(files[name]), "\n"), 0
	var edited []string
	if files[name] == nil {
		edited = []string{string(files[license]), "\n"}
	}
	for _, line := range strings.SplitAfter(hunks, "\n") {
		switch {
		case strings.HasPrefix(line, "@@ "):
			var before, n int
			if _, err := fmt.Sscanf(line, "@@ %d %d", &before, &n); err != nil || before < done || before+n > len(old) {
				return fmt.Errorf("%s: hunk %q does not fit: %w", name, strings.TrimSpace(line), err)
			}
			edited = append(edited, old[done:before]...)
			done = before + n
		case strings.HasPrefix(line, "+"):
			edited = append(edited, line[1:])
		}
	}
	files[name] = []byte(strings.Join(append(edited, old[done:]...), ""))
	return nil
}
