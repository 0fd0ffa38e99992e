// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
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
	return edits[slices.IndexFunc(edits, func(e edit) bool { return e.file == name })]
}

// keepsLines checks that the edits remove few of upstream's lines.
func keepsLines(t *testing.T, upstream, made Files) {
	t.Helper()
	const most = 8
	for _, e := range edits {
		if n := lost(string(upstream[e.file]), string(made[e.file])); n > most {
			t.Errorf("%d of the lines of %s are gone, want at most %d", n, e.file, most)
		}
	}
}

// lost counts the lines that after does not have, however they are indented.
func lost(before, after string) (n int) {
	left := map[string]int{}
	for _, line := range strings.SplitAfter(after, "\n") {
		left[strings.TrimSpace(line)]++
	}
	for _, line := range strings.SplitAfter(before, "\n") {
		line = strings.TrimSpace(line)
		if left[line]--; line != "" && left[line] < 0 {
			n++
		}
	}
	return n
}

// A file that is not as expected is left alone, and the error names what is missing.
func TestEditRefuses(t *testing.T) {
	tests := map[string]struct {
		file     string
		old, new string // in upstream's file
		want     string // in the error
	}{
		"not Go":             {clientFile, "package client", "package", "parse upstream's"},
		"not gofmt's":        {clientFile, "\tvar isList bool\n", "\tvar  isList bool\n", "not as gofmt has it"},
		"another name":       {clientFile, ") getResource(", ") getResources(", "(c *clientRestResources) getResource("},
		"another receiver":   {clientFile, "func (c *clientRestResources) getResource(", "func (c clientRestResources) getResource(", "getResource"},
		"a busy hit":         {clientFile, "if known {", "if known {\n\t\tc.hits++", "if known { return r, nil"},
		"no lock":            {clientFile, "\tc.mu.Lock()\n", "", "c.mu.Lock()"},
		"work with the lock": {clientFile, "\tdefer c.mu.Unlock()\n", "\tdefer c.mu.Unlock()\n\tc.prepare()\n", "defer c.mu.Unlock() r, err = c.newResource("},
		"work after it":      {clientFile, "\treturn r, err\n", "\tc.stored()\n\treturn r, err\n", "<ENTRY> = r return r, err }"},
		"in another literal": {fieldsFile, "restMapper: options.Mapper,", "restMapper: mapper,", "restMapper: options.Mapper"},
		"an import's alias":  {namespacedFile, "\t\"" + Module + "/pkg/client/apiutil\"", "\tapiutil \"" + Module + "/pkg/client/apiutil\"", `"` + Module + `/pkg/client/apiutil"`},
		"twice":              {ownerFile, "\tif err := e.parse", "\t_ = enqueueRequestForOwner[object]{\n\t\tmapper: mapper,\n\t}\n\tif err := e.parse", "mapper: mapper"},
		"in a comment":       {informersFile, "listWatcher, err := ip.makeListWatcher(gvk, obj)", "// ip.makeListWatcher(gvk, obj)", "ip.makeListWatcher(gvk, obj)"},
		"another call":       {informersFile, "listWatcher.ListWithContextFunc(ctx, opts)", "listWatcher.List(opts)", "listWatcher.List<LIST>Func("},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			stock := string(upstreamOf(t, Newest())[test.file])
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
