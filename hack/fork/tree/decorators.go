// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

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
	{"NewNamespacedClient is client.NewNamespacedClient for ", "NewNamespacedClient returns a client of a namespace for "},
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
	{before: "v0.21", file: "cache_generation.go", old: "toolscache.ListerWatcherWithContext", with: "toolscache.ListerWatcher"},
	{before: "v0.21", file: "cache_generation.go", old: "toolscache.ToListerWatcherWithContext(lw)", with: "lw"},
	{before: "v0.21", file: "cache_generation.go", old: ".ListWithContext(ctx, opts)", with: ".List(opts)"},
	{before: "v0.21", file: "cache_generation.go", old: ".WatchWithContext(ctx, opts)", with: ".Watch(opts)"},
	{before: "v0.21", file: "cache_generation.go", old: "{ListWithContextFunc: j.list, WatchFuncWithContext: j.watch}", with: "{\n" +
		"ListFunc: func(opts metav1.ListOptions) (runtime.Object, error) { return j.list(j.g.ctx, opts) },\n" +
		"WatchFunc: func(opts metav1.ListOptions) (watch.Interface, error) { return j.watch(j.g.ctx, opts) },\n}"},
}

// decorate places the files of fresh.
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

// unqualified makes a file of fresh one of upstream's package of that name.
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

// sources reads our sources, with the files of fresh by themselves.
func (d *draft) sources() (err error) {
	if d.ours, err = Read(d.from); err != nil {
		return fmt.Errorf("read our sources: %w", err)
	}
	d.fresh = Archive(string(d.ours[packed]))
	delete(d.ours, packed)
	return nil
}
