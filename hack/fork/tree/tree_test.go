// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func ours() fstest.MapFS {
	return fstest.MapFS{
		"apiutil/restmapper.go":     {Data: []byte("package apiutil\n\nimport _ \"github.com/freshmapper/freshmapper/internal/snapshot\"\n")},
		"apiutil/options.go":        {Data: []byte("package apiutil\n")},
		"apiutil/defaults.go":       {Data: []byte("package apiutil\n")},
		"apiutil/testdata/a.txt":    {Data: []byte("text\n")},
		"internal/snapshot/find.go": {Data: []byte("package snapshot\n")},
		"internal/follow/follow.go": {Data: []byte("package follow\n")},
		"fresh.txt":                 {Data: []byte("-- client.go --\n\npackage fresh\n-- cache_kind.go --\n\npackage fresh\n")},
	}
}

// upstream is the newest release, to be changed.
func upstream(t *testing.T) Files { return maps.Clone(upstreamOf(t, Newest())) }

// All else is upstream's, byte for byte.
func TestGenerateChangesTheseFiles(t *testing.T) {
	stays := upstream(t)
	files, err := Generate(Newest(), upstream(t), ours())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"pkg/cache/cache.go",
		"pkg/cache/following_kind.go",
		"pkg/client/apiutil/defaults.go",
		"pkg/client/apiutil/errors.go",
		"pkg/client/apiutil/internal/snapshot/find.go",
		"pkg/client/apiutil/options.go",
		"pkg/client/apiutil/restmapper.go",
		"pkg/client/apiutil/restmapper_wb_test.go",
		"pkg/client/apiutil/testdata/a.txt",
		"pkg/client/client.go",
		"pkg/client/following.go",
		"pkg/client/following_other.go",
		"pkg/client/namespaced_client.go",
		"pkg/client/watch.go",
		"pkg/handler/enqueue_owner.go",
		"pkg/handler/following.go",
		"pkg/internal/follow/follow.go",
		"pkg/internal/mappermetrics/mappermetrics.go",
		"pkg/metrics/restmapper.go",
	}
	var got []string
	all := maps.Clone(stays)
	maps.Copy(all, files)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		was, before := stays[name]
		is, after := files[name]
		if !before && strings.HasSuffix(name, "_test.go") {
			continue // ours, of what is added
		}
		if before != after || string(was) != string(is) {
			got = append(got, name)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("files:\n%s", strings.Join(got, "\n"))
	}
	mapper := string(files["pkg/client/apiutil/restmapper.go"])
	if !strings.Contains(mapper, `"sigs.k8s.io/controller-runtime/pkg/client/apiutil/internal/snapshot"`) {
		t.Errorf("restmapper.go:\n%s", mapper)
	}
}

func TestGenerateRefuses(t *testing.T) {
	tests := map[string]struct {
		version string
		spoil   func(Files, fstest.MapFS)
		want    []string // all in the error
	}{
		"unknown line":     {version: "v0.19.0", want: []string{"v0.19.0 is not supported", "v0.20", "v0.25"}},
		"next line":        {version: "v0.250.1", want: []string{"not supported"}},
		"pre-release":      {version: "v0.25.0-beta.0", want: []string{"not supported"}},
		"no version":       {version: "0.25.2", want: []string{"not supported"}},
		"overwrite":        {spoil: addOurs("apiutil/apimachinery.go", "package apiutil\n"), want: []string{"overwrite", "pkg/client/apiutil/apimachinery.go"}},
		"overwrite data":   {spoil: addOurs("apiutil/testdata/crd.yaml", ""), want: []string{"overwrite", "testdata/crd.yaml"}},
		"no upstream file": {spoil: dropStock("errors.go"), want: []string{"upstream has no pkg/client/apiutil/errors.go"}},
		"foreign import": {spoil: addOurs("internal/x/x.go", "package x\n\nimport _ \"github.com/freshmapper/freshmapper/hack/fork/tree\"\n"),
			want: []string{"internal/x/x.go", "only apiutil and internal"}},
		"root import": {spoil: addOurs("apiutil/x_test.go", "package apiutil\n\nimport _ \"github.com/freshmapper/freshmapper\"\n"),
			want: []string{"apiutil/x_test.go", "only apiutil and internal"}},
		"no client": {spoil: func(f Files, _ fstest.MapFS) { delete(f, "pkg/client/client.go") }, want: []string{"upstream has no pkg/client/client.go"}},
		"other client": {spoil: func(f Files, _ fstest.MapFS) { f["pkg/client/client.go"] = []byte("package client\n") },
			want: []string{"upstream's pkg/client/client.go", "func New(config", "patch " + Module}},
		"no place": {spoil: addOurs("fresh.txt", "-- clients.go --\npackage fresh\n"), want: []string{"fresh/clients.go", "client", "cache"}},
		"metrics taken": {spoil: func(f Files, _ fstest.MapFS) { f["pkg/metrics/restmapper.go"] = nil },
			want: []string{"overwrite", "pkg/metrics/restmapper.go"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			files, src := upstream(t), ours()
			if test.spoil != nil {
				test.spoil(files, src)
			}
			if test.version == "" {
				test.version = "v0.25.2"
			}
			_, err := Generate(test.version, files, src)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

func addOurs(name, text string) func(Files, fstest.MapFS) {
	return func(_ Files, o fstest.MapFS) { o[name] = &fstest.MapFile{Data: []byte(text)} }
}

func dropStock(name string) func(Files, fstest.MapFS) {
	return func(f Files, _ fstest.MapFS) { delete(f, apiutilDir+"/"+name) }
}

func TestLocalize(t *testing.T) {
	const src = `// Package x is in github.com/freshmapper/freshmapper/internal/x.
package x

import (
	"fmt"

	snap "github.com/freshmapper/freshmapper/internal/snapshot"
	. "github.com/freshmapper/freshmapper/apiutil"
	"k8s.io/client-go/rest" // stays
)
`
	const want = `// Package x is in github.com/freshmapper/freshmapper/internal/x.
package x

import (
	"fmt"

	"k8s.io/client-go/rest" // stays
	. "sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	snap "sigs.k8s.io/controller-runtime/pkg/client/apiutil/internal/snapshot"
)
`
	got, err := localize("internal/x/x.go", []byte(src))
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s", err, got)
	}
	for _, name := range []string{"apiutil/testdata/x.go", "apiutil/x.txt"} {
		if got, err := localize(name, []byte(src)); err != nil || string(got) != src {
			t.Errorf("%s was rewritten: %v", name, err)
		}
	}
}

func TestLines(t *testing.T) {
	for i, line := range Lines {
		got, err := LineOf(line.Newest)
		if err != nil || got.Minor != line.Minor {
			t.Errorf("newest of %s: %v, %v", line.Minor, got.Minor, err)
		}
		if i > 0 && Lines[i-1].Minor >= line.Minor {
			t.Errorf("%s is out of order", line.Minor)
		}
	}
}
