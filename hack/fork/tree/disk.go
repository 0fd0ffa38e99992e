// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
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

func (p Place) Clear() error { return os.RemoveAll(p.Scratch()) }

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

// Full reports whether the tree has all upstream files, and is not slim. Each release has a Makefile, and
// no program compiles it.
func (m *Manifest) Full() bool {
	_, full := m.Files["Makefile"]
	return full
}

// Open reads the manifest of the tree in dir, and lists how the tree differs from it.
func Open(dir string) (m Manifest, edits []string, err error) {
	name := filepath.Join(dir, Meta, manifestName)
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil, fmt.Errorf("%s %w", dir, ErrNotOurs)
	}
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err == nil && m.Format != manifestFormat {
		err = fmt.Errorf(
			"it has format %d, this tool knows %d: use the release that wrote it",
			m.Format,
			manifestFormat,
		)
	}
	if err != nil {
		return Manifest{}, nil, fmt.Errorf("read %s: %w", name, err)
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

// EditedError refuses to touch a tree that somebody edited.
func EditedError(dir string, edits []string) error {
	return fmt.Errorf(
		"%s was edited by hand (files: %d, the first: %s): put it back, or give up the edits with -force",
		dir,
		len(edits),
		edits[0],
	)
}

// Request asks for a tree that belongs to no consumer.
type Request struct {
	Dir     string // must be absent, empty, or an earlier tree of ours
	Version string // of controller-runtime
	Ours    fs.FS  // apiutil and internal
	Full    bool   // with all upstream files, not only what a program compiles
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
		fmt.Fprintf(
			r.Out,
			"done: %s holds %s %s with this mapper inside, %d files\n",
			r.Dir,
			Module,
			r.Version,
			len(files),
		)
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
