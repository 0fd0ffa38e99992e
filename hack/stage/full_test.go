// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper"
	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
	"github.com/freshmapper/freshmapper/hack/stage/full"
)

// No slice is too large for a reviewer, and the series ends with the tree that
// hack/fork makes.
func TestSlices(t *testing.T) {
	patches := made(t, "full")
	for _, patch := range patches {
		t.Logf("%s: %s", patch.File, patch.Size)
		if patch.Size.Added() > full.Limit {
			t.Errorf("%s adds %d lines", patch.File, patch.Size.Added())
		}
	}
	forked, err := tree.Generate(tree.Newest(), stock(t), freshmapper.Source)
	if err != nil {
		t.Fatal(err)
	}
	sameFork(t, patches[len(patches)-1].Files, forked)
}

// sameFork compares the end of the series with the fork. They differ in the header of
// our Go files, and in go.mod.
func sameFork(t *testing.T, staged, forked tree.Files) {
	t.Helper()
	body := func(data []byte) []byte {
		if _, rest, ok := bytes.Cut(data, []byte("\npackage ")); ok {
			return rest
		}
		return data
	}
	for name, file := range forked {
		if is, ok := staged[name]; !ok || name != "go.mod" && !bytes.Equal(body(is.Data), body(file.Data)) {
			t.Errorf("%s is different in the series, or not there", name)
		}
	}
	for name := range staged {
		if _, ok := forked[name]; !ok {
			t.Errorf("the fork lacks %s", name)
		}
	}
}

// The patches have no trace of the place that our code comes from.
func TestSeriesIsUpstreams(t *testing.T) {
	before := stock(t)
	header := before["hack/boilerplate/boilerplate.go.txt"].Data
	for _, patch := range made(t, "full") {
		for name, file := range patch.Files {
			if was, ok := before[name]; ok && bytes.Equal(was.Data, file.Data) || path.Ext(name) != ".go" {
				continue
			}
			if _, upstreams := before[name]; !upstreams && bytes.Count(file.Data, header) != 1 {
				t.Errorf("%s: %s has no header of upstream's", patch.File, name)
			}
			for _, word := range []string{"freshmapper", "SPDX-License-Identifier"} {
				if bytes.Contains(file.Data, []byte(word)) {
					t.Errorf("%s: %s speaks of %s", patch.File, name, word)
				}
			}
		}
	}
}

// slicesOnServer need an API server.
const slicesOnServer = "^(TestApiMachinery|TestClient|TestClientFollowsScopeOnServer|TestEventhandler|TestLazyRestMapperProvider|TestSource)$"

// Each slice applies, builds, and passes the tests of the packages that it changes,
// without a server. For a slice of tests alone, only its own tests run: the others
// have run before on the same code.
func TestEachSlicePasses(t *testing.T) {
	if os.Getenv("FRESHMAPPER_SLICES") == "" {
		t.Skip("compiles controller-runtime's client, and its tests, once for each slice: hack/test.sh -series does")
	}
	before := stock(t)
	dir := repository(t)
	for _, patch := range made(t, "full") {
		apply(t, dir, patch)
		packages := changed(before, patch.Files)
		forktest.Run(t, dir, "go", "build", "-trimpath", "./pkg/client/...", "./pkg/metrics/...")
		forktest.Run(t, dir, "go", append([]string{"vet", "-trimpath"}, packages...)...)
		args := []string{"test", "-trimpath", "-count=1", "-skip", slicesOnServer}
		if patch.Size.Code == 0 {
			args = append(args, "-run", newTests(t, before, patch.Files))
		}
		said := forktest.Run(t, dir, "go", append(args, packages...)...)
		t.Logf("%s\n%s", patch.File, said)
		before = patch.Files
	}
	forktest.Run(t, dir, "go", "mod", "tidy", "-diff")
}

var testName = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)[A-Za-z0-9_]*)\(`)

// newTests is a pattern for the tests of the files that are not as they were.
func newTests(t *testing.T, before, after tree.Files) string {
	t.Helper()
	var names []string
	for name, file := range after {
		if was, ok := before[name]; strings.HasSuffix(name, "_test.go") && (!ok || !bytes.Equal(was.Data, file.Data)) {
			for _, found := range testName.FindAllSubmatch(file.Data, -1) {
				names = append(names, string(found[1]))
			}
		}
	}
	slices.Sort(names)
	return "^(" + strings.Join(names, "|") + ")$"
}

// changed lists the packages with files that are not as they were.
func changed(before, after tree.Files) []string {
	dirs := map[string]bool{}
	for name, file := range after {
		if was, ok := before[name]; (!ok || !bytes.Equal(was.Data, file.Data)) && strings.HasPrefix(name, "pkg/") {
			dir, _, _ := strings.Cut(path.Dir(name), "/testdata")
			dirs["./"+dir] = true
		}
	}
	return slices.Sorted(maps.Keys(dirs))
}
