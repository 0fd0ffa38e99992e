// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
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

// keepsLines checks that the edits change few of upstream's lines.
func keepsLines(t *testing.T, upstream, made Files) {
	t.Helper()
	n := 0
	for name, file := range upstream {
		if now, ok := made[name]; ok && !strings.HasPrefix(name, apiutilDir+"/") {
			n += lost(string(file), string(now))
		}
	}
	if n != len(edits) {
		t.Errorf("%d of upstream's lines are changed, want %d", n, len(edits))
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
	for _, e := range edits {
		stock := string(upstreamOf(t, Newest())[e.file])
		for name, spoiled := range map[string]string{"absent": strings.Replace(stock, e.old, "\n", 1), "twice": stock + e.old} {
			if got, err := e.apply(spoiled); err == nil || got != "" || !strings.Contains(err.Error(), strings.TrimSpace(e.old)) || !strings.Contains(err.Error(), e.file) {
				t.Errorf("%s: %s: error: %v", e.file, name, err)
			}
		}
	}
}

// A change of fresh that the tool has to know of is noticed.
func TestCutRefuses(t *testing.T) {
	const text = "func a() {\n}\n\nfunc b() {\n\tc()\n}\n"
	if got, err := cut(text, "func a(", ""); err != nil || got != "\nfunc b() {\n\tc()\n}\n" {
		t.Errorf("%q, %v", got, err)
	}
	for _, old := range []string{"func d(", "()"} {
		if _, err := cut(text, old, ""); err == nil {
			t.Errorf("%s: no error", old)
		}
	}
}

// Only names of the package itself lose their qualifier.
func TestUnqualified(t *testing.T) {
	const src = "\npackage fresh\n\nimport (\n\t\"sigs.k8s.io/controller-runtime/pkg/cache\"\n)\n\nvar a, b = cache.New(toolscache.New(x.cache.A)), my.cache.Cache{cache.Cache: c.cache}\n\nfunc NewCache() {}\n"
	const want = "\npackage cache\n\nimport (\n)\n\nvar a, b = newUpstream(toolscache.New(x.cache.A)), my.cache.Cache{Cache: c.cache}\n\nfunc New() {}\n"
	if got := unqualified(src, "cache"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
