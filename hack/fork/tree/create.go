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
	if _, err := LineOf(r.Version); err != nil {
		return err
	}
	dir, err := filepath.Abs(r.Dir)
	if err != nil {
		return fmt.Errorf("find %s: %w", r.Dir, err)
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real // a link stays, and the tree goes where it leads
	} else if Exists(dir) {
		return fmt.Errorf("make the folder that the link %s leads to: %w", r.Dir, err)
	}
	earlier, err := r.look(dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.Out, "upstream   %s %s from the module cache\n", Module, r.Version)
	made, err := Make(ctx, r.Version, nil, r.Ours, r.Full)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.Out, "tree       %s\n", made)
	if earlier != nil && earlier.Describes(made) {
		fmt.Fprintf(r.Out, "nothing to do: %s is up to date\n", r.Dir)
		return nil
	}
	slot := Slot{Dir: dir}
	if err = slot.Clear(); err == nil {
		err = slot.Put(ctx, made.Files, NewManifest(made))
	}
	if err == nil {
		fmt.Fprintf(r.Out, "done: %s holds %s %s with this mapper inside\n", r.Dir, Module, r.Version)
		err = slot.Keep()
	}
	return err
}

// look decides whether a tree may be written to dir. It returns the manifest of an earlier
// tree, if that is unedited.
func (r Request) look(dir string) (*Manifest, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && len(entries) == 0) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", r.Dir, err)
	}
	earlier, edits, err := Open(dir)
	switch {
	case errors.Is(err, ErrNotOurs):
		return nil, fmt.Errorf("%s is not empty and %w: choose a new folder", r.Dir, ErrNotOurs)
	case err != nil:
		return nil, err
	case len(earlier.Saved) > 0:
		return nil, fmt.Errorf("%s is part of a program that was forked with -into: use -into again", r.Dir)
	case len(edits) == 0:
		return earlier, nil
	case r.Force:
		return nil, nil
	}
	return nil, EditedError(r.Dir, edits)
}
