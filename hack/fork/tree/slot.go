// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// A Slot is the place of a tree on disk. A tree is staged beside its place and
// renamed into it; the tree that was there waits, also beside it, until the
// caller keeps the new one. So the place always holds a whole tree or none, and
// what a killed run leaves behind can be told by its name.
type Slot struct {
	Dir string
}

func (s Slot) beside(suffix string) string {
	return filepath.Join(filepath.Dir(s.Dir), "."+filepath.Base(s.Dir)+".freshmapper-"+suffix)
}

func (s Slot) staged() string { return s.beside("tmp") }
func (s Slot) old() string    { return s.beside("old") }

// Leftovers names what a run that did not end has left beside the place.
func (s Slot) Leftovers() []string {
	var names []string
	for _, name := range []string{s.staged(), s.old()} {
		if exists(name) {
			names = append(names, name)
		}
	}
	return names
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return !errors.Is(err, fs.ErrNotExist)
}

// Stage writes a tree, its manifest, and copies of the consumer's files for the
// manifest's folder, beside the place. A failure leaves nothing.
func (s Slot) Stage(ctx context.Context, files Files, manifest *Manifest, copies map[string][]byte) (err error) {
	if err := os.Mkdir(s.staged(), 0o755); err != nil {
		return fmt.Errorf("make a place for the tree: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(s.staged()))
		}
	}()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := files[name].Write(s.staged(), name); err != nil {
			return fmt.Errorf("write the tree: %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(copies)) {
		if err := (File{Data: copies[name]}).Write(s.staged(), path.Join(Meta, name)); err != nil {
			return fmt.Errorf("keep a copy of %s: %w", name, err)
		}
	}
	if err := os.MkdirAll(filepath.Join(s.staged(), Meta), 0o755); err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	return manifest.Save(s.staged())
}

// Write writes the file below dir.
func (f File) Write(dir, name string) error {
	mode := fs.FileMode(0o644)
	if f.Exec {
		mode = 0o755
	}
	full := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		return err
	}
	return os.WriteFile(full, f.Data, mode)
}

// Swap puts the staged tree in its place. On failure the place is as it was.
func (s Slot) Swap() error {
	had := exists(s.Dir)
	if had {
		if err := os.Rename(s.Dir, s.old()); err != nil {
			return fmt.Errorf("put the old tree aside: %w", err)
		}
	}
	err := os.Rename(s.staged(), s.Dir)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("put the new tree in its place: %w", err)
	if had {
		err = errors.Join(err, os.Rename(s.old(), s.Dir))
	}
	return err
}

// Revert takes back a Swap.
func (s Slot) Revert() error {
	if err := os.Rename(s.Dir, s.staged()); err != nil {
		return fmt.Errorf("take the new tree out of its place: %w", err)
	}
	if exists(s.old()) {
		if err := os.Rename(s.old(), s.Dir); err != nil {
			return fmt.Errorf("put the old tree back: %w", err)
		}
	}
	return s.Sweep()
}

// Sweep removes what is beside the place: after a Swap it settles the matter.
func (s Slot) Sweep() error {
	if err := errors.Join(os.RemoveAll(s.staged()), os.RemoveAll(s.old())); err != nil {
		return fmt.Errorf("remove leftovers: %w", err)
	}
	return nil
}

// Remove empties the place and sweeps. The rename comes first, so that being
// killed half way leaves a leftover with our name and not half a tree.
func (s Slot) Remove() error {
	if err := s.Sweep(); err != nil {
		return err
	}
	if err := os.Rename(s.Dir, s.staged()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the tree: %w", err)
	}
	return s.Sweep()
}

// Current is where the tree is: in its place or, after a run that was killed
// in the middle of a Swap, beside it.
func (s Slot) Current() string {
	if !exists(s.Dir) && exists(s.old()) {
		return s.old()
	}
	return s.Dir
}

// ReadCopy returns a file of the consumer's as it was, nil if it was not there.
func (s Slot) ReadCopy(saved Saved) ([]byte, error) {
	if saved.Copy == "" {
		return nil, nil
	}
	data, err := os.ReadFile(filepath.Join(s.Current(), Meta, filepath.Base(saved.Copy)))
	if err != nil {
		return nil, fmt.Errorf("read the copy of the consumer's file: %w", err)
	}
	return data, nil
}
