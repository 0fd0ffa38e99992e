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
	"syscall"
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
		if Exists(name) {
			names = append(names, name)
		}
	}
	return names
}

// Exists reports whether there is something of that name, even if it is a link to
// nowhere.
func Exists(name string) bool {
	_, err := os.Lstat(name)
	return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR)
}

// Put puts a tree in its place, with its manifest and with copies of the consumer's
// files in the manifest's folder. After that comes Sweep or Revert. On failure the
// place is as it was.
func (s Slot) Put(ctx context.Context, files Files, manifest *Manifest, copies map[string][]byte) error {
	if err := os.Mkdir(s.staged(), 0o755); err != nil {
		return fmt.Errorf("make a place for the tree: %w", err)
	}
	err := s.stage(ctx, files, manifest, copies)
	if err == nil {
		err = s.swap()
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(s.staged()))
	}
	return nil
}

func (s Slot) stage(ctx context.Context, files Files, manifest *Manifest, copies map[string][]byte) error {
	all := maps.Clone(files)
	for name, data := range copies {
		all[path.Join(Meta, name)] = File{Data: data}
	}
	for name, file := range all {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := file.Write(s.staged(), name); err != nil {
			return fmt.Errorf("write the tree: %w", err)
		}
	}
	return manifest.Save(s.staged())
}

// swap puts the staged tree in its place. On failure the place is as it was.
func (s Slot) swap() error {
	had := Exists(s.Dir)
	if had {
		if err := os.Rename(s.Dir, s.old()); err != nil {
			return fmt.Errorf("put the old tree aside: %w", err)
		}
	}
	err := os.Rename(s.staged(), s.Dir)
	if err != nil {
		err = fmt.Errorf("put the new tree in its place: %w", err)
	}
	if err != nil && had {
		err = errors.Join(err, os.Rename(s.old(), s.Dir))
	}
	return err
}

// Revert takes back a Put.
func (s Slot) Revert() error {
	if err := os.Rename(s.Dir, s.staged()); err != nil {
		return fmt.Errorf("take the new tree out of its place: %w", err)
	}
	if Exists(s.old()) {
		if err := os.Rename(s.old(), s.Dir); err != nil {
			return fmt.Errorf("put the old tree back: %w", err)
		}
	}
	return s.Sweep()
}

// Sweep removes what is beside the place. After that a Put cannot be taken back.
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

// Current is where the tree is: in its place or, after a run that was killed in
// the middle of a Put, beside it.
func (s Slot) Current() string {
	if !Exists(s.Dir) && Exists(s.old()) {
		return s.old()
	}
	return s.Dir
}
