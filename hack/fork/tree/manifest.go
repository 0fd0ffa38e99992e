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

// ErrNotOurs is what Open returns for a folder without a manifest.
var ErrNotOurs = errors.New("was not written by this tool")

// Manifest is a list of what the tool wrote. It holds no time and no path of the
// machine: the same input gives the same bytes.
type Manifest struct {
	Format  int    `json:"format"`
	Version string `json:"version"` // of controller-runtime
	// Files are the SHA-256 of every file of the tree but the manifest's folder.
	Files map[string]string `json:"files"`
	// Saved are go.mod and go.sum of the consumer. It is empty in a tree that belongs to
	// no consumer.
	Saved map[string]Saved `json:"saved,omitempty"`
}

// Saved is a file of the consumer's. One that is not there is like an empty one.
type Saved struct {
	Before  string `json:"before"`            // as it was
	Written string `json:"written"`           // SHA-256 of what the run left
	Changed bool   `json:"changed,omitempty"` // Before has what the user changed after the first run
}

// NewManifest describes a tree of a release.
func NewManifest(version string, files Files) *Manifest {
	return &Manifest{Format: manifestFormat, Version: version, Files: files.Digests()}
}

// Full reports whether the tree has all of upstream's files, and is not slim.
func (m *Manifest) Full() bool {
	_, documents := m.Files["README.md"]
	return documents
}

// Open reads the manifest of the tree in dir, and lists how the tree differs from it.
func Open(dir string) (m *Manifest, edits []string, err error) {
	name := filepath.Join(dir, Meta, manifestName)
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%s %w", dir, ErrNotOurs)
	}
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err == nil && m.Format != manifestFormat {
		err = fmt.Errorf("it has format %d, this tool knows %d: use the release that wrote it", m.Format, manifestFormat)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", name, err)
	}
	edits, err = m.Edits(dir)
	return m, edits, err
}

func (m *Manifest) save(dir string) error {
	data, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return err
	}
	return Write(dir, filepath.Join(Meta, manifestName), append(data, '\n'))
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
	named := strings.Join(edits[:min(len(edits), 3)], ", ")
	if more := len(edits) - 3; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("%s was edited by hand (%s): put it back, or give up the edits with -force", dir, named)
}
