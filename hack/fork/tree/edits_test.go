// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/freshmapper/freshmapper/hack/fork/gotool"
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
				after, err := editOf(name).apply(before.Data, holes{})
				if err != nil {
					t.Fatal(err)
				}
				if n := lost(string(before.Data), string(after)); n == 0 || n > most {
					t.Errorf("%d of upstream's lines are gone, want 1 to %d", n, most)
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

// A file that is not as expected is left alone, and the error names what is missing.
func TestEditRefuses(t *testing.T) {
	const informers, reader, fields, watch = informersFile, readerFile, fieldsFile, watchFile
	tests := map[string]struct {
		file     string
		old, new string // in upstream's file
		want     string // in the error
	}{
		"not Go":             {clientFile, "package client", "package", "parse upstream's"},
		"no method":          {clientFile, ") getResource(", ") getResources(", "(c *clientRestResources) getResource("},
		"another receiver":   {clientFile, "func (c *clientRestResources) getResource(", "func (c clientRestResources) getResource(", "getResource"},
		"a busy hit":         {clientFile, "if known {", "if known {\n\t\tc.hits++", "if known { return r, nil"},
		"no lock":            {clientFile, "\tc.mu.Lock()\n", "", "c.mu.Lock()"},
		"another lookup":     {clientFile, "r, err = c.newResource(", "r, err = c.otherResource(", "c.newResource("},
		"work after it":      {clientFile, "\treturn r, err\n", "\tc.stored()\n\treturn r, err\n", "<ENTRY> = r return r, err }"},
		"work with the lock": {clientFile, "\tdefer c.mu.Unlock()\n", "\tdefer c.mu.Unlock()\n\tc.prepare()\n", "defer c.mu.Unlock() r, err = c.newResource("},
		"not gofmt's":        {clientFile, "\tvar isList bool\n", "\tvar  isList bool\n", "not as gofmt has it"},

		"another parameter": {clientFile, "getResource(obj any)", "getResource(object any)", "getResource(obj <OBJ>)"},

		"another field":        {fields, "typedClient        typedClient", "typedClient        *typedClient", "typedClient typedClient"},
		"another literal":      {fields, "typedClient: typedClient{", "typedClient: newTypedClient{", "typedClient: typedClient{"},
		"another mapper there": {fields, "mapper:     options.Mapper,", "mapper:     mapper,", "mapper: options.Mapper"},
		"another scope there":  {fields, "apiutil.IsObjectNamespaced(obj, c.scheme, c.mapper)", "c.isNamespaced(obj)", "apiutil.IsObjectNamespaced(obj, c.scheme, c.mapper)"},
		"another Apply":        {namespacedFile, "apiutil.IsGVKNamespaced(gvk, n.RESTMapper())", "n.isNamespaced(gvk)", "apiutil.IsGVKNamespaced(gvk, n.RESTMapper())"},
		"another import":       {namespacedFile, "\t\"sigs.k8s.io/controller-runtime/pkg/client/apiutil\"", "\tapiutil \"sigs.k8s.io/controller-runtime/pkg/client/apiutil\"", `"sigs.k8s.io/controller-runtime/pkg/client/apiutil"`},
		"another owner":        {ownerFile, "mapper:    mapper,", "mapper:    other,", "mapper: mapper"},
		"another metadata":     {fields, "restMapper: options.Mapper,", "restMapper: mapper,", "restMapper: options.Mapper"},
		"no Watch":             {watch, ") Watch(", ") Watches(", "(w *watchingClient) Watch(ctx"},
		"another informers":    {informers, "mapper:     options.Mapper,", "mapper:     mapper,", "mapper: options.Mapper"},
		"another list watcher": {informers, "ip.makeListWatcher(gvk, obj)", "ip.newListWatcher(gvk, obj)", "ip.makeListWatcher(gvk, obj)"},
		"another call of it":   {informers, "listWatcher.ListWithContextFunc(ctx, opts)", "listWatcher.List(opts)", "listWatcher.List<LIST>Func("},
		"another scope":        {reader, "if c.scopeName == apimeta.RESTScopeNameRoot {", "if c.isRoot() {", "c.scopeName == apimeta.RESTScopeNameRoot"},
		"another key":          {reader, "storeKey := objectKeyToStoreKey(key)", "storeKey := keyOf(key)", "objectKeyToStoreKey(key)"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			stock := string(upstreamOf(t, Newest())[test.file].Data)
			spoiled := strings.Replace(stock, test.old, test.new, 1)
			if spoiled == stock {
				t.Fatalf("upstream's file has no %q", test.old)
			}
			_, err := editOf(test.file).apply([]byte(spoiled), holes{})
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), test.file) {
				t.Errorf("error: %v", err)
			}
		})
	}
}
