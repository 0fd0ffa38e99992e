// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/freshmapper/freshmapper/hack/fork/gotool"
)

// upstreamOf reads a release from the module cache, once.
func upstreamOf(t *testing.T, version string) Files {
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

// What the edits take out of upstream's file and put into it, line by line and
// without indentation.
var (
	clientRemoved = []string{"c.mu.Lock()", "defer c.mu.Unlock()", "return r, nil"}
	clientAdded   = []string{
		"",
		"// generation is the mapper's that what is kept belongs to; guarded by mu",
		"generation uint64",
		"// This comes before the lookup, so that what is kept is never older than its generation.",
		"generation := c.mapperGeneration()",
		"",
		"known = known && c.generation == generation",
		"return c.current(r)",
		"// without the lock: discovery may take its time, and other kinds need not wait for it",
		"c.mu.Lock()",
		"defer c.mu.Unlock()",
		"c.keepFor(generation)",
	}
)

// Every supported line, and nothing but those lines.
func TestEditClient(t *testing.T) {
	for _, line := range Lines {
		t.Run(line.Newest, func(t *testing.T) {
			before := upstreamOf(t, line.Newest)[clientFile].Data
			edited, maps, err := editClient(before)
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"resourceByType"}
			if line.Minor < "v0.22" {
				want = []string{"structuredResourceByType", "unstructuredResourceByType"}
			}
			if !slices.Equal(maps, want) {
				t.Errorf("maps: %q", maps)
			}
			checkLines(t, string(before), string(edited))
			checkOrder(t, string(edited))
		})
	}
}

// checkLines compares what is left of before with what is left of after, each
// without its own lines: upstream's lines must all be there, in their order.
func checkLines(t *testing.T, before, after string) {
	t.Helper()
	kept := without(t, before, clientRemoved)
	same := without(t, after, clientAdded)
	if !slices.Equal(kept, same) {
		t.Errorf("more was changed than the known lines:\n%s", after)
	}
}

// without takes the last of each of the lines out of text. The blank ones all
// count as one: they stand between the others.
func without(t *testing.T, text string, lines []string) []string {
	t.Helper()
	var left []string
	for _, line := range gotool.SplitLines(text) {
		if line != "\n" {
			left = append(left, line)
		}
	}
	for _, line := range lines {
		if line == "" {
			continue
		}
		found := false
		for i, have := range slices.Backward(left) {
			if strings.TrimSpace(have) == line {
				left, found = slices.Delete(left, i, i+1), true
				break
			}
		}
		if !found {
			t.Errorf("no line %q", line)
		}
	}
	return left
}

// checkOrder makes sure that the lines are where they do what they are there for.
func checkOrder(t *testing.T, edited string) {
	t.Helper()
	order := []string{
		"generation uint64",
		"generation := c.mapperGeneration()", "c.mu.RLock()", "r, known := ", "known = known && ", "c.mu.RUnlock()",
		"if known {", "return c.current(r)",
		"c.newResource(", "c.mu.Lock()", "defer c.mu.Unlock()", "c.keepFor(generation)", "] = r\n", "return r, err",
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
func TestEditClientRefuses(t *testing.T) {
	tests := map[string]struct {
		old, new string // in upstream's file
		want     string // in the error
	}{
		"not Go":             {"package client", "package", "parse upstream's"},
		"no type":            {"type clientRestResources struct", "type clientResources struct", "struct type clientRestResources"},
		"no map":             {"map[cacheKey]*resourceMeta", "sync.Map", "map to *resourceMeta"},
		"another map":        {"\tmu sync.RWMutex", "\tmu sync.RWMutex\n\tothers map[string]int", "others"},
		"another lock":       {"mu sync.RWMutex", "mu sync.Mutex", `"mu sync.RWMutex"`},
		"another mapper":     {"mapper meta.RESTMapper", "mapper meta.ResettableRESTMapper", `"mapper meta.RESTMapper"`},
		"no method":          {") getResource(", ") getResources(", "method (c *clientRestResources) getResource"},
		"another receiver":   {"func (c *clientRestResources) getResource(", "func (c clientRestResources) getResource(", "getResource"},
		"no read lock":       {"\tc.mu.RLock()\n", "", "c.mu.RLock()"},
		"another load":       {"r, known := c.resourceByType[cacheKey]", "r, known := c.load(cacheKey)", "r, known := <map>[<key>]"},
		"a load elsewhere":   {"r, known := c.resourceByType[cacheKey]", "r, known := others[cacheKey]", "r, known := <map>[<key>]"},
		"a busy hit":         {"if known {", "if known {\n\t\tc.hits++", "if known { return r, nil }"},
		"no lock":            {"\tc.mu.Lock()\n", "", "c.mu.Lock()"},
		"another lookup":     {"r, err = c.newResource(", "r, err = c.otherResource(", "c.newResource(...)"},
		"another place":      {"c.resourceByType[cacheKey] = r", "c.resourceByType[otherKey] = r", "<map>[<key>] = r"},
		"work after it":      {"\treturn r, err\n", "\tc.stored()\n\treturn r, err\n", "ends by locking"},
		"work with the lock": {"\tdefer c.mu.Unlock()\n", "\tdefer c.mu.Unlock()\n\tc.prepare()\n", "ends by locking"},
		"a third locking":    {"\tvar isList bool\n", "\tc.mu.RLock()\n\tc.mu.RUnlock()\n\tvar isList bool\n", "locks nowhere else"},
		"not gofmt's":        {"\tvar isList bool\n", "\tvar  isList bool\n", "not as gofmt has it"},
	}
	stock := string(upstreamOf(t, Newest())[clientFile].Data)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spoiled := strings.Replace(stock, test.old, test.new, 1)
			if spoiled == stock {
				t.Fatalf("upstream's file has no %q", test.old)
			}
			_, _, err := editClient([]byte(spoiled))
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), clientFile)):
				t.Errorf("error: %v", err)
			}
		})
	}
}

// Whatever the tool writes, gofmt would have written.
func TestTemplates(t *testing.T) {
	for _, line := range Lines {
		files, err := Generate(line.Newest, maps.Clone(upstreamOf(t, line.Newest)), ours())
		if err != nil {
			t.Fatal(err)
		}
		for name, file := range files {
			if _, stock := upstreamOf(t, line.Newest)[name]; stock || !strings.HasSuffix(name, ".go") {
				continue
			}
			s, err := parseSource(name, file.Data)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.edited(); err != nil {
				t.Error(err)
			}
			if strings.Contains(string(file.Data), "MAPS") {
				t.Errorf("%s %s is half filled in", line.Newest, name)
			}
		}
	}
}
