// SPDX-License-Identifier: Apache-2.0

// Package series writes changes to controller-runtime as patches that git am
// takes: it commits them to a scratch repository and lets git format them.
package series

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// Change is one purpose: what is said of it, and the tree after it.
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
	scratch, err := os.MkdirTemp("", "freshmapper-stage-")
	if err != nil {
		return nil, fmt.Errorf("make a scratch repository: %w", err)
	}
	defer os.RemoveAll(scratch)
	repo := repository{dir: filepath.Join(scratch, "repository"), author: author}
	mails := filepath.Join(scratch, "mails")
	if err := os.Mkdir(repo.dir, 0o755); err != nil {
		return nil, fmt.Errorf("make a scratch repository: %w", err)
	}
	if err := repo.create(ctx, upstream); err != nil {
		return nil, err
	}
	patches := make([]Patch, len(changes))
	before := upstream
	for i, change := range changes {
		subject, _, _ := strings.Cut(change.Message, "\n")
		dressed, err := dress(change.Files, upstream)
		if err != nil {
			return nil, fmt.Errorf("patch %q: %w", subject, err)
		}
		if err := repo.commit(ctx, before, dressed, change.Message); err != nil {
			return nil, fmt.Errorf("patch %q: %w", subject, err)
		}
		patches[i].Files, before = dressed, dressed
	}
	if err := repo.mails(ctx, mails, len(changes)); err != nil {
		return nil, err
	}
	return patches, read(mails, patches)
}

// read reads the mails, which sort as the patches do.
func read(dir string, patches []Patch) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read what git format-patch wrote: %w", err)
	}
	if len(entries) != len(patches) {
		return fmt.Errorf("git format-patch wrote %d mails for %d patches: does one change nothing?", len(entries), len(patches))
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
