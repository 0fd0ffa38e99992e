// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// Meta is the folder of the tree that holds the tool's own notes.
	Meta           = ".freshmapper"
	manifestName   = "manifest.json"
	manifestFormat = 1
)

// ErrNotOurs is what Load returns for a folder without a manifest.
var ErrNotOurs = errors.New("was not written by this tool")

// Manifest is a list of what the tool wrote. It holds no time and no path of the
// machine: the same input gives the same bytes.
type Manifest struct {
	Format  int    `json:"format"`
	Version string `json:"version"` // of controller-runtime
	// Files are the SHA-256 of every file of the tree but the manifest's folder.
	Files map[string]string `json:"files"`
	// Saved are go.mod and go.sum of the consumer. It is empty in a tree that belongs to
	// no consumer, or whose run did not end.
	Saved map[string]Saved `json:"saved,omitempty"`
}

// Saved is a file of the consumer's.
type Saved struct {
	Before  *string `json:"before"`  // as it was; nil if it was not there
	Written string  `json:"written"` // SHA-256 of what the run left; "" if it left no file
}

// NewManifest describes a tree that is being written.
func NewManifest(r *Result) *Manifest {
	return &Manifest{Format: manifestFormat, Version: r.Version, Files: r.Files.Digests()}
}

// Describes reports whether r is the tree that was written.
func (m *Manifest) Describes(r *Result) bool {
	return m.Version == r.Version && maps.Equal(m.Files, r.Files.Digests())
}

// Full reports whether the tree has all of upstream's files, and is not slim.
func (m *Manifest) Full() bool {
	_, documents := m.Files["README.md"]
	return documents
}

// Load reads the manifest of the tree in dir.
func Load(dir string) (*Manifest, error) {
	name := filepath.Join(dir, Meta, manifestName)
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s %w", dir, ErrNotOurs)
	}
	if err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	m := &Manifest{}
	if err := json.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if m.Format != manifestFormat {
		return nil, fmt.Errorf("%s has format %d, this tool knows %d: use the release that wrote it", name, m.Format, manifestFormat)
	}
	return m, nil
}

// Open reads the manifest of the tree in dir, and lists how the tree differs from it.
func Open(dir string) (m *Manifest, edits []string, err error) {
	if m, err = Load(dir); err == nil {
		edits, err = m.Edits(dir)
	}
	if err != nil {
		return nil, nil, err
	}
	return m, edits, nil
}

// Save writes the manifest of the tree in dir, through a rename: so the file is
// always complete.
func (m *Manifest) Save(dir string) error {
	data, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return err
	}
	name := filepath.Join(Meta, manifestName)
	err = Write(dir, name+".tmp", append(data, '\n'))
	if err == nil {
		err = os.Rename(filepath.Join(dir, name+".tmp"), filepath.Join(dir, name))
	}
	if err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	return nil
}

// Edits lists how the tree in dir differs from what the tool wrote: "changed
// pkg/x.go", "removed …", "added …", in the order of the paths.
func (m *Manifest) Edits(dir string) (edits []string, err error) {
	files, err := Read(os.DirFS(dir))
	if err != nil {
		return nil, fmt.Errorf("compare %s with its manifest: %w", dir, err)
	}
	found, all := files.Digests(), maps.Clone(m.Files)
	maps.Copy(all, found)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		was, known := m.Files[name]
		is, there := found[name]
		switch {
		case !known:
			edits = append(edits, "added "+name)
		case !there:
			edits = append(edits, "removed "+name)
		case is != was:
			edits = append(edits, "changed "+name)
		}
	}
	return edits, nil
}

// EditedError refuses to touch a tree that somebody edited. It names up to
// three files.
func EditedError(dir string, edits []string) error {
	named, more := edits, ""
	if len(edits) > 3 {
		named, more = edits[:3], fmt.Sprintf(" and %d more", len(edits)-3)
	}
	return fmt.Errorf("%s was edited by hand (%s%s): put it back, or give up the edits with -force",
		dir, strings.Join(named, ", "), more)
}
