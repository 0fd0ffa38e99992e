// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"path"
)

// defaults is our file with the defaults of options. The tree has another: there the
// default of Metrics is what controller-runtime registers.
const defaults = apiutilDir + "/defaults.go"

// added are the files from templates, which are called like them.
//
// pkg/metrics registers the mapper's metrics when it is initialized, as it does with other
// metrics, and leaves the recorder in pkg/internal/mappermetrics, where the mapper finds it.
// If the mapper imported pkg/metrics, every program with a client would need Prometheus, and
// client-go's metrics would be registered as well.
var added = []string{
	defaults, apiutilDir + "/metrics_registry_test.go",
	"pkg/internal/mappermetrics/mappermetrics.go", "pkg/metrics/restmapper.go",
	"pkg/client/following_other.go", "pkg/client/following_other_test.go", "pkg/handler/following.go",
}

// draft is a tree while it is made.
type draft struct {
	line  Line
	from  fs.FS // our sources: apiutil, internal and fresh
	files Files
	ours  Files             // apiutil and internal
	fresh map[string]string // the files of fresh
}

// Generate makes the patched tree of a release out of upstream's files and our sources.
// It leaves upstream as it is. What it does not find in upstream as it expects is an error,
// never a guess.
func Generate(version string, upstream Files, ours fs.FS) (Files, error) {
	line, err := LineOf(version)
	if err != nil {
		return nil, err
	}
	d := &draft{line: line, from: ours, files: maps.Clone(upstream)}
	for _, step := range []func() error{d.sources, d.putMapper, d.edit, d.decorate, d.add} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("patch %s %s: %w", Module, version, err)
		}
	}
	return d.files, nil
}

// templates are files of ours that have a place in the tree only. They are no Go
// files here because they compile only there.
//
//go:embed template
var templates embed.FS

// add adds the templates.
func (d *draft) add() error {
	for _, name := range added {
		data, err := templates.ReadFile("template/" + path.Base(name) + ".txt")
		if err != nil {
			return fmt.Errorf("our template of %s: %w", name, err)
		}
		if err := d.put(name, data); err != nil {
			return err
		}
	}
	return nil
}

// upstream is a file of upstream's, which must be there.
func (d *draft) upstream(name string) ([]byte, error) {
	file, ok := d.files[name]
	if !ok {
		return nil, fmt.Errorf("upstream has no %s: this release needs a look before the tool can patch it", name)
	}
	return file, nil
}

// put adds a file where nothing of upstream's is left.
func (d *draft) put(name string, data []byte) error {
	if _, taken := d.files[name]; taken {
		return fmt.Errorf("our file would overwrite upstream's %s: rename ours", name)
	}
	d.files[name] = data
	return nil
}

// Make takes a release from the module cache, as Folder does, and patches it. With
// full, the tree keeps all of upstream's files; else it has what a program compiles.
func Make(ctx context.Context, version string, sums []byte, ours fs.FS, full bool) (Files, error) {
	if _, err := LineOf(version); err != nil {
		return nil, err // before anything is downloaded
	}
	upstream, err := Upstream(ctx, version, sums)
	if err != nil {
		return nil, err
	}
	files, err := Generate(version, upstream, ours)
	if err == nil && !full {
		files.slim()
	}
	return files, err
}
