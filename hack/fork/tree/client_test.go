// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/freshmapper/freshmapper/hack/fork/gotool"
	"github.com/freshmapper/freshmapper/hack/fork/source"
)

// upstreamOf reads a release from the module cache, once.
func upstreamOf(t testing.TB, version string) Files {
	t.Helper()
	read, _ := releases.LoadOrStore(version, sync.OnceValues(func() (Files, error) {
		return Upstream(context.Background(), version, nil)
	}))
	files, err := read.(func() (Files, error))()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

var releases sync.Map // of functions by version

// editOf is what is done to a file.
func editOf(name string) edit {
	all := slices.Concat(clientEdits, informerEdits)
	return all[slices.IndexFunc(all, func(e edit) bool { return e.file == name })]
}

// edited are the files of upstream's that are edited.
func edited() (names []string) {
	for _, e := range slices.Concat(clientEdits, informerEdits) {
		names = append(names, e.file)
	}
	return names
}

// An edit removes few of upstream's lines, in every supported line.
func TestEditsKeepUpstreamsLines(t *testing.T) {
	const most = 14 // of the client's fields, which are moved one by one
	for _, line := range Lines {
		for _, name := range edited() {
			if name == namespacedFile && line.Minor < "v0.22" {
				continue
			}
			before := upstreamOf(t, line.Newest)[name]
			t.Run(line.Newest+" "+name, func(t *testing.T) {
				after := editedBy(t, name, before.Data)
				if n := lost(string(before.Data), after); n == 0 || n > most {
					t.Errorf("%d of upstream's lines are gone, want 1 to %d", n, most)
				}
				if name == clientFile {
					checkOrder(t, after)
				}
			})
		}
	}
}

// lost counts the lines that after does not have, however they are indented.
func lost(before, after string) (n int) {
	left := map[string]int{}
	for _, line := range gotool.SplitLines(after) {
		left[strings.TrimSpace(line)]++
	}
	for _, line := range gotool.SplitLines(before) {
		line = strings.TrimSpace(line)
		if left[line]--; line != "" && left[line] < 0 {
			n++
		}
	}
	return n
}

func editedBy(t *testing.T, name string, before []byte) string {
	t.Helper()
	f := source.New(name, before)
	editOf(name).apply(f, keys{})
	after, err := f.Done()
	if err != nil {
		t.Fatal(err)
	}
	return string(after)
}

func TestClientMaps(t *testing.T) {
	for _, line := range Lines {
		t.Run(line.Newest, func(t *testing.T) {
			noted := keys{}
			lookUpUnlocked(source.New(clientFile, upstreamOf(t, line.Newest)[clientFile].Data), noted)
			want := []string{"resourceByType"}
			if line.Minor < "v0.22" {
				want = []string{"structuredResourceByType", "unstructuredResourceByType"}
			}
			if !slices.Equal(noted["MAPS"], want) {
				t.Errorf("maps: %q", noted["MAPS"])
			}
		})
	}
}

// checkOrder checks the order of lines that work only in that order.
func checkOrder(t *testing.T, edited string) {
	t.Helper()
	order := []string{
		"c.mu.RLock()", "r, known := ", "c.mu.RUnlock()", "if known {", "return c.current(r)",
		"c.newResource(", "c.mu.Lock()", "defer c.mu.Unlock()", "] = r\n", "return r, err",
	}
	rest := edited
	for _, text := range order {
		_, after, found := strings.Cut(rest, text)
		if !found {
			t.Errorf("no %q where it belongs:\n%s", text, edited)
			return
		}
		rest = after
	}
}

// A file that is not as expected is left alone, and the error names what is missing.
func TestEditRefuses(t *testing.T) {
	const informers, reader, fields, watch = informersFile, readerFile, fieldsFile, watchFile
	tests := map[string]struct {
		file     string
		old, new string // in upstream's file
		want     string // in the error
	}{
		"not Go":             {clientFile, "package client", "package", "parse upstream's"},
		"no type":            {clientFile, "type clientRestResources struct", "type clientResources struct", "struct type clientRestResources"},
		"no map":             {clientFile, "map[cacheKey]*resourceMeta", "sync.Map", "map to *resourceMeta"},
		"another map":        {clientFile, "\tmu sync.RWMutex", "\tmu sync.RWMutex\n\tothers map[string]int", "others"},
		"another lock":       {clientFile, "mu sync.RWMutex", "mu sync.Mutex", `"mu sync.RWMutex"`},
		"another mapper":     {clientFile, "mapper meta.RESTMapper", "mapper meta.ResettableRESTMapper", `"mapper meta.RESTMapper"`},
		"no method":          {clientFile, ") getResource(", ") getResources(", "function (c *clientRestResources) getResource"},
		"another receiver":   {clientFile, "func (c *clientRestResources) getResource(", "func (c clientRestResources) getResource(", "getResource"},
		"no read lock":       {clientFile, "\tc.mu.RLock()\n", "", "c.mu.RLock()"},
		"another load":       {clientFile, "r, known := c.resourceByType[cacheKey]", "r, known := c.load(cacheKey)", `loads and stores "c.load(cacheKey)"`},
		"a load elsewhere":   {clientFile, "r, known := c.resourceByType[cacheKey]", "r, known := others[cacheKey]", `loads and stores "others[cacheKey]"`},
		"a busy hit":         {clientFile, "if known {", "if known {\n\t\tc.hits++", "if known { return r, nil }"},
		"no lock":            {clientFile, "\tc.mu.Lock()\n", "", "c.mu.Lock()"},
		"another lookup":     {clientFile, "r, err = c.newResource(", "r, err = c.otherResource(", "c.newResource("},
		"another place":      {clientFile, "c.resourceByType[cacheKey] = r", "c.resourceByType[otherKey] = r", "loads and stores"},
		"work after it":      {clientFile, "\treturn r, err\n", "\tc.stored()\n\treturn r, err\n", "getResource like this"},
		"work with the lock": {clientFile, "\tdefer c.mu.Unlock()\n", "\tdefer c.mu.Unlock()\n\tc.prepare()\n", "getResource like this"},
		"a third locking":    {clientFile, "\tvar isList bool\n", "\tc.mu.RLock()\n\tc.mu.RUnlock()\n\tvar isList bool\n", "locks nowhere else"},
		"not gofmt's":        {clientFile, "\tvar isList bool\n", "\tvar  isList bool\n", "not as gofmt has it"},

		"another parameter": {clientFile, "getResource(obj any)", "getResource(object any)", "getResource(obj <type>)"},

		"another field":        {fields, "typedClient        typedClient", "typedClient        *typedClient", `"typedClient typedClient" in client`},
		"another literal":      {fields, "typedClient: typedClient{", "typedClient: newTypedClient{", `single "typedClient{"`},
		"another mapper there": {fields, "mapper:     options.Mapper,", "mapper:     mapper,", "mapper: options.Mapper"},
		"another scope there":  {fields, "apiutil.IsObjectNamespaced(obj, c.scheme, c.mapper)", "c.isNamespaced(obj)", "apiutil.IsObjectNamespaced(obj, c.scheme, c.mapper)"},
		"another Apply":        {namespacedFile, "apiutil.IsGVKNamespaced(gvk, n.RESTMapper())", "n.isNamespaced(gvk)", "apiutil.IsGVKNamespaced(gvk, n.RESTMapper())"},
		"another import":       {namespacedFile, "\t\"sigs.k8s.io/controller-runtime/pkg/client/apiutil\"", "\tapiutil \"sigs.k8s.io/controller-runtime/pkg/client/apiutil\"", "alone on its lines"},
		"another owner":        {ownerFile, "mapper:    mapper,", "mapper:    other,", "mapper: mapper"},
		"another metadata":     {fields, "restMapper: options.Mapper,", "restMapper: mapper,", "restMapper: options.Mapper"},
		"no Watch":             {watch, ") Watch(", ") Watches(", "function (w *watchingClient) Watch"},
		"another base":         {watch, "w.base.typedClient.resources", "w.inner.typedClient.resources", "w.base.typedClient.resources"},
		"another informers":    {informers, "mapper:     options.Mapper,", "mapper:     mapper,", "mapper: options.Mapper"},
		"another list watcher": {informers, "ip.makeListWatcher(gvk, obj)", "ip.newListWatcher(gvk, obj)", "ip.makeListWatcher(gvk, obj)"},
		"another call of it":   {informers, "listWatcher.ListWithContextFunc(ctx, opts)", "listWatcher.List(opts)", "listWatcher.ListWithContextFunc"},
		"another scope":        {reader, "if c.scopeName == apimeta.RESTScopeNameRoot {", "if c.isRoot() {", "c.scopeName == apimeta.RESTScopeNameRoot"},
		"another namespaces":   {namespaceFile, "func newMultiNamespaceCache(", "func makeMultiNamespaceCache(", "function newMultiNamespaceCache"},
		"another key":          {reader, "storeKey := objectKeyToStoreKey(key)", "storeKey := keyOf(key)", "objectKeyToStoreKey(key)"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			stock := string(upstreamOf(t, Newest())[test.file].Data)
			spoiled := strings.Replace(stock, test.old, test.new, 1)
			if spoiled == stock {
				t.Fatalf("upstream's file has no %q", test.old)
			}
			files := Files{test.file: {Data: []byte(spoiled)}}
			err := files.Edit(test.file, func(f *source.File) { editOf(test.file).apply(f, keys{}) })
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), test.file) {
				t.Errorf("error: %v", err)
			}
		})
	}
}
