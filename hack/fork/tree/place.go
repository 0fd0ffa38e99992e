// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// A Place is where a tree is on disk. A tree is written to a scratch folder beside it, and
// renamed: so the place holds a whole tree or none. Whatever is in the scratch folder may go
// at any time.
type Place string

// Scratch is the folder beside the place.
func (p Place) Scratch() string {
	return filepath.Join(filepath.Dir(string(p)), "."+filepath.Base(string(p))+".freshmapper-tmp")
}

// Staged is where a tree waits.
func (p Place) Staged() string { return filepath.Join(p.Scratch(), "new") }

// Exists reports whether there is something of that name, even if it is a link to
// nowhere.
func Exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// Stage writes a tree where it waits.
func (p Place) Stage(ctx context.Context, files Files) error {
	err := p.Clear()
	for name, file := range files {
		if err == nil {
			err = errors.Join(Write(p.Staged(), name, file), ctx.Err())
		}
	}
	if err != nil {
		return fmt.Errorf("write the tree: %w", err)
	}
	return nil
}

// Put puts the tree that waits in the place, with its manifest.
func (p Place) Put(m *Manifest) error {
	err := m.save(p.Staged())
	if err == nil {
		err = p.empty()
	}
	if err == nil {
		err = os.Rename(p.Staged(), string(p))
	}
	if err != nil {
		return fmt.Errorf("put the tree in its place: %w", err)
	}
	return p.Clear()
}

// Remove removes the tree.
func (p Place) Remove() error {
	if err := errors.Join(p.Clear(), os.MkdirAll(p.Scratch(), 0o755), p.empty()); err != nil {
		return fmt.Errorf("remove the tree: %w", err)
	}
	return p.Clear()
}

func (p Place) empty() error {
	if !Exists(string(p)) {
		return nil
	}
	return os.Rename(string(p), filepath.Join(p.Scratch(), "old"))
}

// Clear removes the scratch folder.
func (p Place) Clear() error { return os.RemoveAll(p.Scratch()) }
