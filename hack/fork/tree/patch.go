// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path"

	"github.com/freshmapper/freshmapper/hack/fork/source"
)

// A Patch is one purpose: hack/fork applies them all, hack/stage makes a commit
// of each. A patch that does not find in upstream what it expects is an error,
// never a guess.
type Patch struct {
	Name  string
	Apply func(*Draft) error
}

// Patches lists what is done to upstream, in order.
func Patches() []Patch {
	return []Patch{
		{Name: "mapper", Apply: putMapper},
		{Name: "client", Apply: keepClientFresh},
		{Name: "informers", Apply: keepInformersFresh},
		{Name: "metrics", Apply: registerMetrics},
	}
}

// Draft is a tree while the patches work on it.
type Draft struct {
	Line    Line
	Version string
	Files   Files
	Ours    fs.FS // our sources: apiutil and internal
}

// Generate makes the patched tree of a release out of upstream's files and our
// sources. It changes upstream and returns it.
func Generate(version string, upstream Files, ours fs.FS) (Files, error) {
	draft, err := newDraft(version, upstream, ours)
	if err != nil {
		return nil, err
	}
	for _, patch := range Patches() {
		if err := draft.apply(patch); err != nil {
			return nil, err
		}
	}
	return draft.Files, nil
}

// Step is what a patch has made of the tree.
type Step struct {
	Patch string // its name
	Files Files
}

// Steps is Generate, with the tree as it is after each patch. It leaves upstream
// as it is.
func Steps(version string, upstream Files, ours fs.FS) ([]Step, error) {
	draft, err := newDraft(version, maps.Clone(upstream), ours)
	if err != nil {
		return nil, err
	}
	var steps []Step
	for _, patch := range Patches() {
		if err := draft.apply(patch); err != nil {
			return nil, err
		}
		steps = append(steps, Step{Patch: patch.Name, Files: maps.Clone(draft.Files)})
	}
	return steps, nil
}

// keys are what of upstream's the templates need: lines by the key that stands for
// them.
type keys map[string][]string

// change edits one of upstream's files, and may note keys.
type change struct {
	name string
	do   func(*source.File, keys)
}

// change makes changes, and then files from templates, which are called like them.
func (d *Draft) change(changes []change, templates ...string) error {
	noted := keys{}
	for _, c := range changes {
		if err := d.Files.Edit(c.name, func(f *source.File) { c.do(f, noted) }); err != nil {
			return err
		}
	}
	for _, name := range templates {
		data, err := template(path.Base(name), noted)
		if err != nil {
			return err
		}
		if err := d.put(name, data); err != nil {
			return err
		}
	}
	return nil
}

// Edit has a file edited that must be there.
func (f Files) Edit(name string, do func(*source.File)) error {
	upstream, ok := f[name]
	if !ok {
		return missing(name)
	}
	edit := source.New(name, upstream.Data)
	do(edit)
	edited, err := edit.Done()
	if err == nil {
		f[name] = File{Data: edited, Exec: upstream.Exec}
	}
	return err
}

func newDraft(version string, upstream Files, ours fs.FS) (*Draft, error) {
	line, err := LineOf(version)
	if err != nil {
		return nil, err
	}
	return &Draft{Line: line, Version: version, Files: upstream, Ours: ours}, nil
}

func (d *Draft) apply(patch Patch) error {
	if err := patch.Apply(d); err != nil {
		return fmt.Errorf("patch %q on %s %s: %w", patch.Name, Module, d.Version, err)
	}
	return nil
}

// A Result is a patched tree, and what became of upstream's files in it.
type Result struct {
	Version  string
	Files    Files
	Kept     int // upstream's files, byte for byte
	Replaced int // upstream's files with other content
	Dropped  int // upstream's files without a successor
	Added    int // ours, where upstream has nothing

	before map[string]string // the digests of upstream's files
}

// Make is Upstream followed by Generate.
func Make(ctx context.Context, version string, sums []byte, ours fs.FS) (*Result, error) {
	if _, err := LineOf(version); err != nil {
		return nil, err // before anything is downloaded
	}
	upstream, err := Upstream(ctx, version, sums)
	if err != nil {
		return nil, err
	}
	before := upstream.Digests()
	files, err := Generate(version, upstream, ours)
	if err != nil {
		return nil, err
	}
	made := &Result{Version: version, Files: files, before: before}
	made.count()
	return made, nil
}

func (r *Result) count() {
	r.Kept, r.Replaced, r.Added = 0, 0, 0
	for name, file := range r.Files {
		switch sum, known := r.before[name]; {
		case !known:
			r.Added++
		case sum == Digest(file.Data):
			r.Kept++
		default:
			r.Replaced++
		}
	}
	r.Dropped = len(r.before) - r.Kept - r.Replaced
}

// String returns the result as a progress line.
func (r *Result) String() string {
	return fmt.Sprintf("%d files of upstream's unchanged, %d replaced, %d dropped, %d of ours added",
		r.Kept, r.Replaced, r.Dropped, r.Added)
}
