// SPDX-License-Identifier: Apache-2.0

// Package tree makes a controller-runtime tree with this project's mapper
// inside.
//
// The tree is made in memory, as Files: upstream's source from the user's own
// module cache, and what Generate does to it. Only then is it written, beside
// its final place, and renamed into it. A manifest in the tree says what the
// tool wrote, so that a later run can tell its own work from somebody's edits.
package tree

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

const (
	// Module is the module the tool patches.
	Module = "sigs.k8s.io/controller-runtime"
	// Ours is the module the sources come from.
	Ours = "github.com/freshmapper/freshmapper"
)

// Files is a tree in memory, by slash-separated path.
type Files map[string][]byte

// Digests returns the SHA-256 of every file.
func (f Files) Digests() map[string]string {
	sums := make(map[string]string, len(f))
	for name, file := range f {
		sums[name] = Digest(file)
	}
	return sums
}

// Digest is the SHA-256 of data, in hex.
func Digest(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// SourceDigest is short, and the same for the same sources of a mapper.
func SourceDigest(ours fs.FS) (string, error) {
	files, err := Read(ours)
	return Digest(fmt.Append(nil, files.Digests()))[:12], err // fmt sorts maps
}

// Write writes a file below dir. No file of a module cache can be executed, and so none
// of a tree.
func Write(dir, name string, data []byte) error {
	full := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		return err
	}
	return os.WriteFile(full, data, 0o644)
}

// Read reads a tree from fsys. What the tool adds to a tree on disk (its
// manifest's folder) is no part of it, nor are the files that a desktop drops. The tool
// never writes a link: instead of its data, one has what it is.
func Read(fsys fs.FS) (Files, error) {
	files := Files{}
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name == Meta:
			return fs.SkipDir
		case entry.IsDir() || path.Base(name) == ".DS_Store":
			return nil
		}
		if !entry.Type().IsRegular() {
			files[name] = []byte(entry.Type().String())
			return nil
		}
		files[name], err = fs.ReadFile(fsys, name)
		return err
	})
	return files, err
}
