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
	"regexp"
	"slices"
	"strings"
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
	files Files
	ours  Files             // apiutil and internal
	fresh map[string]string // the files of fresh
}

// Generate makes the patched tree of a release out of upstream files and our sources.
// It leaves upstream as it is. What it does not find in upstream as it expects is an error,
// never a guess.
func Generate(version string, upstream Files, ours fs.FS) (Files, error) {
	line, err := LineOf(version)
	if err != nil {
		return nil, err
	}
	sources, err := Read(ours)
	if err != nil {
		return nil, fmt.Errorf("read our sources: %w", err)
	}
	d := &draft{line: line, files: maps.Clone(upstream), ours: sources, fresh: Archive(string(sources[packed]))}
	delete(d.ours, packed)
	for _, step := range []func() error{d.putMapper, d.edit, d.decorate, d.add} {
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

// upstream is an upstream file, which must be there.
func (d *draft) upstream(name string) ([]byte, error) {
	file, ok := d.files[name]
	if !ok {
		return nil, fmt.Errorf("upstream has no %s: this release needs a look before the tool can patch it", name)
	}
	return file, nil
}

// put adds a file where nothing of upstream is left.
func (d *draft) put(name string, data []byte) error {
	if _, taken := d.files[name]; taken {
		return fmt.Errorf("our file would overwrite upstream's %s: rename ours", name)
	}
	d.files[name] = data
	return nil
}

// Make takes a release from the module cache, as Folder does, and patches it. With
// full, the tree keeps all upstream files; else it has what a program compiles.
func Make(ctx context.Context, version string, sums []byte, ours fs.FS, full bool) (Files, error) {
	upstream, err := Upstream(ctx, version, sums)
	if err != nil {
		return nil, err
	}
	files, err := Generate(version, upstream, ours)
	if err != nil {
		return nil, err
	}
	if !full {
		files.slim()
	}
	files["README.md"] = []byte(readme)
	return files, nil
}

// apiutilDir is where upstream's mapper lives, and ours in its place.
const apiutilDir = "pkg/client/apiutil"

// mapperFiles are the files of the upstream mapper that make way for ours, and their
// white-box test.
var mapperFiles = []string{"restmapper.go", "errors.go", "restmapper_wb_test.go"}

// putMapper replaces upstream's mapper by ours.
func (d *draft) putMapper() error {
	for _, name := range mapperFiles {
		if _, err := d.upstream(path.Join(apiutilDir, name)); err != nil {
			return err
		}
		delete(d.files, path.Join(apiutilDir, name))
	}
	for _, name := range slices.Sorted(maps.Keys(d.ours)) {
		// apiutil/x becomes pkg/client/apiutil/x, internal/x becomes pkg/client/apiutil/internal/x.
		to := path.Join(apiutilDir, strings.TrimPrefix(name, "apiutil/"))
		if within, ok := strings.CutPrefix(name, "internal/follow/"); ok {
			to = path.Join("pkg/internal/follow", within) // for clients and caches, too
		}
		if to == defaults {
			continue
		}
		data, err := localize(name, d.ours[name])
		if err == nil {
			err = d.put(to, data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// imports makes imports of our module imports of the tree's.
var imports = strings.NewReplacer(
	`"`+Ours+`/apiutil`, `"`+Module+"/"+apiutilDir,
	`"`+Ours+`/internal/follow`, `"`+Module+`/pkg/internal/follow`,
	`"`+Ours+`/internal`, `"`+Module+"/"+apiutilDir+`/internal`,
)

// localize adapts a file of ours to the tree. Whatever is not Go, and everything below a
// testdata folder, stays as it is.
func localize(name string, src []byte) ([]byte, error) {
	if path.Ext(name) != ".go" || slices.Contains(strings.Split(name, "/"), "testdata") {
		return src, nil
	}
	edited := imports.Replace(string(src))
	if strings.Contains(edited, `"`+Ours) {
		return nil, fmt.Errorf("our %s imports what the tree does not have: only apiutil and internal come along", name)
	}
	data, err := format.Source([]byte(edited)) // the new paths sort elsewhere
	if err != nil {
		return nil, fmt.Errorf("format our %s after its imports were rewritten: %w", name, err)
	}
	return data, nil
}

// An edit replaces a piece of one upstream file. If the piece is not there exactly once, that is an
// error: the tool never guesses. What it does not replace stays byte for byte,
// below a notice at the top.
type edit struct{ file, old, with string }

// edits are what is done to upstream's files. Upstream's constructors get other names, and those of ours
// take theirs. The handler of owners needs the scope of an owner for each event, also of a kind that is gone.
var edits = []edit{
	{"pkg/client/client.go", "\nfunc New(config ", "\nfunc newUpstream(config "},
	{"pkg/client/watch.go", "\nfunc NewWithWatch(config ", "\nfunc newUpstreamWithWatch(config "},
	{"pkg/client/namespaced_client.go", "\nfunc NewNamespacedClient(c ", "\nfunc newUpstreamNamespaced(c "},
	{"pkg/cache/cache.go", "\nfunc New(cfg ", "\nfunc newUpstream(cfg "},
	{"pkg/handler/enqueue_owner.go", "\t\tmapper:    mapper,\n", "\t\tmapper:    following(mapper),\n"},
}

// changed is the notice that Apache-2.0, section 4(b), asks for in a file that was changed.
const changed = "// This file is upstream's, changed by " + Ours + ".\n\n"

func (d *draft) edit() error {
	for _, e := range edits {
		upstream, err := d.upstream(e.file)
		if err != nil {
			return err
		}
		if n := strings.Count(string(upstream), e.old); n != 1 {
			return fmt.Errorf(
				"upstream's %s has %q %d times, and not once: this release needs a look before the tool can edit it",
				e.file,
				strings.TrimSpace(e.old),
				n,
			)
		}
		d.files[e.file] = append([]byte(changed), strings.Replace(string(upstream), e.old, e.with, 1)...)
	}
	return nil
}

// packed are the files of our module fresh in one text, because a nested module cannot be embedded.
// hack/pack.sh writes it.
const packed = "fresh.txt"

// decorated are upstream's packages in which files of fresh have a place: those that begin with its name.
var decorated = []string{"client", "cache"}

// names are what becomes of names when the files are placed beside upstream's constructors.
var names = [][2]string{
	{"client.NewNamespacedClient(", "newUpstreamNamespaced("},
	{"client.NewWithWatch(", "newUpstreamWithWatch("},
	{"client.New(", "newUpstream("},
	{"cache.New(", "newUpstream("},
	{"NewClient is client.New for ", "New returns "},
	{"NewWithWatch is client.NewWithWatch for ", "NewWithWatch returns "},
	{
		"NewNamespacedClient is client.NewNamespacedClient for ",
		"NewNamespacedClient returns a client of a namespace for ",
	},
	{"NewCache is cache.New for ", "New returns "},
	{"NewClient(", "New("},
	{"NewCache(", "New("},
}

// older are what older lines do not have yet: a function that is left out, or other text for a piece that is
// there once.
var older = []struct{ before, file, old, with string }{
	{before: "v0.22", file: "client_requests.go", old: "func (c *followingClient) Apply("},
	{before: "v0.22", file: "client_namespaced.go", old: "func (n *followingNamespaced) Apply("},
	{before: "v0.23", file: "client_requests.go", old: "func (s *followingSubResource) Apply("},
	{before: "v0.23", file: "client_namespaced.go", old: "func (s *namespacedSubResource) Apply("},
	{before: "v0.22", file: "client_namespaced.go", old: "\t\"k8s.io/apimachinery/pkg/runtime\"\n", with: ""},
	{before: "v0.21", file: "cache.go", old: `"informer already started"`, with: `"Informer already started"`},
	{before: "v0.21", file: "cache_informer.go", old: "func (i *informer) AddEventHandlerWithOptions("},
	{before: "v0.21", file: "cache_informer.go", old: "func (s *sharedInformer) SetWatchErrorHandlerWithContext("},
	{before: "v0.21", file: "cache_instance.go", old: "func (x instanceInformer) RunWithContext("},
	{before: "v0.21", file: "cache_instance.go", old: "func (x instanceInformer) SetWatchErrorHandlerWithContext("},
	{
		before: "v0.21",
		file:   "cache_instance.go",
		old:    "SetWatchErrorHandlerWithContext(lw.logError)",
		with: "SetWatchErrorHandler(func(r *toolscache.Reflector, err error) {\n" +
			"lw.logError(i.ctx, r, err)\n})",
	},
	{
		before: "v0.21",
		file:   "cache_listwatch.go",
		old:    "DefaultWatchErrorHandler(ctx, r, err)",
		with:   "DefaultWatchErrorHandler(r, err)",
	},
	{
		before: "v0.21",
		file:   "cache_listwatch.go",
		old:    "toolscache.ListerWatcherWithContext",
		with:   "toolscache.ListerWatcher",
	},
	{
		before: "v0.21",
		file:   "cache_instance.go",
		old:    "toolscache.ToListerWatcherWithContext(upstream)",
		with:   "upstream",
	},
	{before: "v0.21", file: "cache_listwatch.go", old: ".ListWithContext(ctx, opts)", with: ".List(opts)"},
	{before: "v0.21", file: "cache_listwatch.go", old: ".WatchWithContext(ctx, opts)", with: ".Watch(opts)"},
	{
		before: "v0.21",
		file:   "cache_listwatch.go",
		old:    "{ListWithContextFunc: lw.list, WatchFuncWithContext: lw.watch}",
		with: "{\n" +
			"ListFunc: func(opts metav1.ListOptions) (runtime.Object, error) { return lw.list(lw.i.ctx, opts) },\n" +
			"WatchFunc: func(opts metav1.ListOptions) (watch.Interface, error) { return lw.watch(lw.i.ctx, opts) },\n}",
	},
}

func (d *draft) decorate() error {
	for name, text := range d.fresh {
		base, _, _ := strings.Cut(strings.TrimSuffix(name, ".go"), "_")
		if !slices.Contains(decorated, base) {
			return fmt.Errorf("our fresh/%s has no place: its name must begin with one of %q", name, decorated)
		}
		for _, o := range older {
			if o.file != name || d.line.Minor >= o.before {
				continue
			}
			var err error
			if text, err = cut(text, o.old, o.with); err != nil {
				return fmt.Errorf("our fresh/%s: %w", name, err)
			}
		}
		to := path.Join("pkg", base, "following"+strings.TrimPrefix(name, base))
		data, err := localize(to, []byte(unqualified(text, base)))
		if err == nil {
			err = d.put(to, data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unqualified makes a file of fresh one of the upstream package of that name.
func unqualified(text, pkg string) string {
	for _, name := range names {
		text = regexp.MustCompile(`\b`+regexp.QuoteMeta(name[0])).ReplaceAllLiteralString(text, name[1])
	}
	text = strings.Replace(text, "\npackage fresh\n", "\npackage "+pkg+"\n", 1)
	text = strings.Replace(text, "\t\""+Module+"/pkg/"+pkg+"\"\n", "", 1)
	return regexp.MustCompile(`\b(\w*[.])?`+pkg+`\.([A-Z])`).ReplaceAllStringFunc(text, func(found string) string {
		return strings.TrimPrefix(found, pkg+".")
	})
}

// cut replaces a piece that is there once; a function goes whole.
func cut(text, old, with string) (string, error) {
	if strings.Count(text, old) != 1 {
		return "", fmt.Errorf("it has %q not once", old)
	}
	at := strings.Index(text, old)
	end := at + len(old)
	if strings.HasPrefix(old, "func ") {
		end = at + strings.Index(text[at:], "\n}\n") + len("\n}\n")
	}
	return text[:at] + with + text[end:], nil
}

// Archive are the files in a text. A line "-- NAME --" is before each.
func Archive(text string) map[string]string {
	files := map[string]string{}
	for _, part := range strings.Split("\n"+text, "\n-- ")[1:] {
		name, data, _ := strings.Cut(part, " --\n")
		files[name] = strings.TrimSuffix(data, "\n") + "\n"
	}
	return files
}
