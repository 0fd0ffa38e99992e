// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// A Slot is the place of a tree on disk. A tree is written beside its place and renamed
// into it, so the place holds a whole tree or none. The tree that was there waits beside
// it until Keep, so that Revert, or Clear after a run that was killed, can put it back.
type Slot struct {
	Dir string
}

func (s Slot) beside(suffix string) string {
	return filepath.Join(filepath.Dir(s.Dir), "."+filepath.Base(s.Dir)+".freshmapper-"+suffix)
}

func (s Slot) staged() string { return s.beside("tmp") } // what is being written or removed
func (s Slot) old() string    { return s.beside("old") }

// Exists reports whether there is something of that name, even if it is a link to
// nowhere.
func Exists(name string) bool {
	_, err := os.Lstat(name)
	return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR)
}

// Interrupted reports whether a run is at work, or was killed.
func (s Slot) Interrupted() bool { return Exists(s.staged()) || Exists(s.old()) }

// Put puts a tree in its place. After that comes Keep or Revert. On failure the place is as
// it was.
func (s Slot) Put(ctx context.Context, files Files, manifest *Manifest) error {
	err := s.remove(s.staged())
	for name, file := range files {
		if err == nil {
			err = errors.Join(Write(s.staged(), name, file), ctx.Err())
		}
	}
	if err == nil {
		err = manifest.Save(s.staged())
	}
	if err == nil && Exists(s.Dir) {
		err = os.Rename(s.Dir, s.old())
	}
	if err == nil {
		err = os.Rename(s.staged(), s.Dir)
	}
	if err == nil {
		return nil
	}
	return errors.Join(fmt.Errorf("write the tree: %w", cmp.Or(ctx.Err(), err)), s.Clear())
}

// Keep gives up the tree that was there before.
func (s Slot) Keep() error { return s.remove(s.old()) }

// Revert takes back a Put.
func (s Slot) Revert() error {
	if Exists(s.old()) {
		return s.Clear()
	}
	return s.Remove()
}

// Clear clears away what a Put without an end has left, and puts back the tree that was
// there before it.
func (s Slot) Clear() error {
	if !Exists(s.old()) {
		return s.remove(s.staged())
	}
	err := s.Remove()
	if err == nil {
		err = os.Rename(s.old(), s.Dir)
	}
	return err
}

// Remove empties the place.
func (s Slot) Remove() error { return s.remove(s.Dir) }

// remove renames first: being killed half way leaves what Clear removes, and not half a
// tree.
func (s Slot) remove(dir string) error {
	err := os.RemoveAll(s.staged())
	if err == nil && dir != s.staged() && Exists(dir) {
		err = os.Rename(dir, s.staged())
	}
	if err == nil {
		err = os.RemoveAll(s.staged())
	}
	if err != nil {
		return fmt.Errorf("remove a tree: %w", err)
	}
	return nil
}
