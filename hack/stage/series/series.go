// SPDX-License-Identifier: Apache-2.0

// Package series writes changes to controller-runtime as patches that git am
// takes: it commits them to a scratch repository and lets git format them.
package series

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/mail"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/freshmapper/freshmapper/hack/fork/git"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// Change is a change of one purpose: its commit message, and the tree after it.
type Change struct {
	Message string // of the commit: a subject, a blank line, a body
	Files   tree.Files
}

// Patch is a change as a mail.
type Patch struct {
	File  string // its name, as git format-patch gives it
	Mail  []byte
	Files tree.Files // what the tree is after it
	Size  Size
}

// Make makes the series that leads from upstream through the changes. author is
// "Name <address>". With SOURCE_DATE_EPOCH set, the same input gives the same
// bytes.
func Make(ctx context.Context, author string, upstream tree.Files, changes []Change) ([]Patch, error) {
	by, err := mail.ParseAddress(author)
	if err != nil {
		return nil, fmt.Errorf("the author %q: %w", author, err)
	}
	scratch, err := os.MkdirTemp("", "freshmapper-stage-")
	if err != nil {
		return nil, fmt.Errorf("make a scratch repository: %w", err)
	}
	defer os.RemoveAll(scratch)
	const branch = "main"
	stream, when := git.Stream{Author: by}, now()
	stream.Commit(branch, when, "upstream\n", upstream)
	patches := make([]Patch, len(changes))
	before := upstream
	for i, change := range changes {
		dressed, err := dress(change.Files, upstream)
		if err == nil && maps.Equal(dressed.Digests(), before.Digests()) {
			err = errors.New("it changes nothing")
		}
		if err != nil {
			subject, _, _ := strings.Cut(change.Message, "\n")
			return nil, fmt.Errorf("patch %q: %w", subject, err)
		}
		before = dressed
		stream.Commit(branch, when, change.Message, dressed)
		patches[i].Files = dressed
	}
	repo := git.Repository{Dir: scratch, Env: []string{"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1"}}
	if err := repo.Import(ctx, false, branch, &stream); err != nil {
		return nil, err
	}
	if _, err := repo.Run(ctx, nil, "format-patch", "-q", "--zero-commit", "--full-index", "--no-renames", "--numbered",
		"--signature=freshmapper", "--output-directory=mails", fmt.Sprintf("%s~%d..%[1]s", branch, len(changes))); err != nil {
		return nil, err
	}
	return patches, read(filepath.Join(scratch, "mails"), patches)
}

// now is the time of the commits.
func now() time.Time {
	if seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64); err == nil {
		return time.Unix(seconds, 0)
	}
	return time.Now()
}

// read reads the mails, which sort as the patches do.
func read(dir string, patches []Patch) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read what git format-patch wrote: %w", err)
	}
	if len(entries) != len(patches) {
		return fmt.Errorf("git format-patch wrote %d mails for %d patches", len(entries), len(patches))
	}
	for i, entry := range entries {
		mail, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return fmt.Errorf("read what git format-patch wrote: %w", err)
		}
		patches[i].File, patches[i].Mail, patches[i].Size = entry.Name(), mail, sizeOf(mail)
	}
	return nil
}
