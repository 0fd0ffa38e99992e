// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
	"embed"
	"fmt"
	"go/format"
	"io/fs"
	"maps"
	"path"
)

// A patch is one purpose. One that does not find in upstream what it expects is an
// error, never a guess.
type patch struct {
	name  string
	begin func(*draft) error // what comes before the edits; may be nil
	edits []edit
	adds  []string // files from templates, which are called like them
}

// patches are what is done to upstream, in order.
var patches = []patch{
	{name: "mapper", begin: putMapper},
	{
		name: "client", begin: putRequests, edits: clientEdits,
		adds: []string{
			"pkg/internal/mappermetrics/mappermetrics.go",
			"pkg/internal/follow/follow.go",
			"pkg/client/client_follow.go",
			"pkg/client/client_mappers.go", "pkg/client/client_mappers_test.go",
		},
	},
	{
		name: "informers", edits: informerEdits,
		adds: []string{
			"pkg/cache/internal/informers_follow.go",
			"pkg/cache/multi_namespace_follow.go",
			"pkg/cache/moving_server_test.go", "pkg/cache/following_test.go", "pkg/cache/follow_server_test.go",
		},
	},
	{
		// pkg/metrics registers the mapper's metrics when it is initialized, as it
		// does with other metrics, and leaves the recorder in an internal package,
		// where the mapper finds it. If the mapper imported pkg/metrics, every
		// program with a client would need Prometheus, and client-go's metrics
		// would be registered as well.
		name: "metrics",
		adds: []string{
			defaults, "pkg/metrics/restmapper.go", apiutilDir + "/metrics_registry_test.go",
		},
	},
}

// draft is a tree while the patches work on it.
type draft struct {
	line  Line
	files Files
	ours  fs.FS // our sources: apiutil and internal
}

// Generate makes the patched tree of a release out of upstream's files and our sources.
// It leaves upstream as it is.
func Generate(version string, upstream Files, ours fs.FS) (Files, error) {
	line, err := LineOf(version)
	if err != nil {
		return nil, err
	}
	d := &draft{line: line, files: maps.Clone(upstream), ours: ours}
	for _, p := range patches {
		if err := d.apply(p); err != nil {
			return nil, fmt.Errorf("patch %q on %s %s: %w", p.name, Module, version, err)
		}
	}
	return d.files, nil
}

func (d *draft) apply(p patch) error {
	if p.begin != nil {
		if err := p.begin(d); err != nil {
			return err
		}
	}
	noted := holes{}
	for _, e := range p.edits {
		if d.line.Minor < e.since {
			continue
		}
		upstream, err := d.upstream(e.file)
		if err != nil {
			return err
		}
		edited, err := e.apply(upstream, noted)
		if err != nil {
			return err
		}
		d.files[e.file] = edited
	}
	for _, name := range p.adds {
		data, err := template(path.Base(name), noted)
		if err == nil {
			err = d.put(name, data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// upstream is a file of upstream's, which must be there.
func (d *draft) upstream(name string) ([]byte, error) {
	file, ok := d.files[name]
	if !ok {
		return file, fmt.Errorf("upstream has no %s: this release needs a row of its own in the table of lines", name)
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

// templates are files of ours that have a place in the tree only. They are no Go
// files here because they compile only there.
//
//go:embed template
var templates embed.FS

// template returns the text of a file, with what the holes stood for.
func template(name string, noted holes) ([]byte, error) {
	data, err := templates.ReadFile("template/" + name + ".txt")
	if err != nil {
		return nil, fmt.Errorf("our template: %w", err)
	}
	if data, err = format.Source([]byte(noted.fill(string(data)))); err != nil { // what was filled in is longer or shorter
		return nil, fmt.Errorf("our template %s, filled in: %w", name, err)
	}
	return data, nil
}

// A Result is a patched tree of a release.
type Result struct {
	Version string
	Files   Files
	before  map[string]string // the digests of upstream's files
}

// Make takes a release from the module cache, as Folder does, and patches it. With
// full, the tree keeps all of upstream's files; else it is slim.
func Make(ctx context.Context, version string, sums []byte, ours fs.FS, full bool) (*Result, error) {
	if _, err := LineOf(version); err != nil {
		return nil, err // before anything is downloaded
	}
	upstream, err := Upstream(ctx, version, sums)
	if err != nil {
		return nil, err
	}
	files, err := Generate(version, upstream, ours)
	if err != nil {
		return nil, err
	}
	made := &Result{Version: version, Files: files, before: upstream.Digests()}
	if !full {
		made.slim()
	}
	return made, nil
}

// String returns how many of upstream's files were kept, changed and so on, for a
// reader.
func (r *Result) String() string {
	kept, replaced := 0, 0
	for name, was := range r.before {
		switch file, there := r.Files[name]; {
		case there && Digest(file) == was:
			kept++
		case there:
			replaced++
		}
	}
	return fmt.Sprintf("%d files of upstream's unchanged, %d replaced, %d dropped, %d of ours added",
		kept, replaced, len(r.before)-kept-replaced, len(r.Files)-kept-replaced)
}
