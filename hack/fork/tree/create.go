// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Request asks for a tree that belongs to no consumer.
type Request struct {
	Dir     string // must be absent, empty, or an earlier tree of ours
	Version string // of controller-runtime
	Ours    fs.FS  // apiutil and internal
	Full    bool   // with all of upstream's, not only what a program compiles
	Force   bool   // give up hand edits
	Out     io.Writer
}

// Create writes the tree that r asks for, or finds that it is there already.
func Create(ctx context.Context, r Request) error {
	dir, err := filepath.Abs(r.Dir)
	if err == nil {
		err = r.mayWrite(dir)
	}
	if err != nil {
		return err
	}
	files, err := Make(ctx, r.Version, nil, r.Ours, r.Full)
	if err != nil {
		return err
	}
	made := NewManifest(r.Version, files)
	if edits, err := made.Edits(dir); err == nil && len(edits) == 0 {
		fmt.Fprintf(r.Out, "nothing to do: %s is up to date\n", r.Dir)
		return nil
	}
	place := Place(dir)
	if err = place.Stage(ctx, files); err == nil {
		err = place.Put(made)
	}
	if err == nil {
		fmt.Fprintf(r.Out, "done: %s holds %s %s with this mapper inside, %d files\n", r.Dir, Module, r.Version, len(files))
	}
	return err
}

// mayWrite returns an error if what is in dir must stay.
func (r Request) mayWrite(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look at %s: %w", r.Dir, err)
	}
	if len(entries) == 0 {
		return nil
	}
	earlier, edits, err := Open(dir)
	switch {
	case errors.Is(err, ErrNotOurs):
		return fmt.Errorf("%s is not empty and %w: choose a new folder", r.Dir, ErrNotOurs)
	case err != nil:
		return err
	case len(earlier.Saved) > 0:
		return fmt.Errorf("%s is part of a program that was forked with -into: use -into again", r.Dir)
	case len(edits) > 0 && !r.Force:
		return EditedError(r.Dir, edits)
	}
	return nil
}
