// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"testing"

	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/source"
	"github.com/freshmapper/freshmapper/hack/stage/series"
)

func TestSeriesIsSmall(t *testing.T) {
	patches := made(t)
	first, all := 0, 0
	for i, patch := range patches {
		t.Logf("%s: %s", patch.File, patch.Size)
		all += patch.Size.Code
		if i < 3 {
			first += patch.Size.Code
		}
	}
	if first > 200 || all > 500 {
		t.Errorf("the first three patches add %d lines, all add %d: 200 and 500 are what upstream is asked to read", first, all)
	}
}

// Only three of upstream's files change; its own tests stay byte for byte. The
// series exports nothing new but methods.
func TestSeriesLeavesTheRestAlone(t *testing.T) {
	upstream, patches := stock(t), made(t)
	files := patches[len(patches)-1].Files
	for name, was := range upstream {
		is, stays := files[name]
		if (!stays || !bytes.Equal(was.Data, is.Data)) && name != "pkg/client/apiutil/restmapper.go" && name != "pkg/client/client_rest_resources.go" {
			t.Errorf("%s is not as it was", name)
		}
	}
	for name, file := range files {
		was, known := upstream[name]
		if series.IsTest(name) || known && bytes.Equal(was.Data, file.Data) {
			continue
		}
		if before, after := exported(t, was.Data), exported(t, file.Data); !slices.Equal(before, after) {
			t.Errorf("%s exports %q, and did %q", name, after, before)
		}
	}
}

// exported returns the exported names of a file that are not methods.
func exported(t *testing.T, src []byte) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "", src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, decl := range file.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv != nil {
			continue
		}
		if name := source.NameOf(decl); ast.IsExported(name) {
			names = append(names, name)
		}
	}
	return names
}

// patchesOnServer need an API server.
const patchesOnServer = "^(TestApiMachinery|TestClient|TestLazyRestMapperProvider|TestRESTMapperFindsKindInNewVersion)$"

// Each patch applies, builds, is tidy and passes upstream's tests and ours of the
// mapper and the client by itself. With KUBEBUILDER_ASSETS set they run on real
// servers, with aggregated discovery and, from setup-envtest's store, without.
func TestEachPatchPasses(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles controller-runtime, and its tests, once for each patch")
	}
	tests := []string{"test", "-trimpath", "-count=1", "-timeout=15m"}
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Run("with an API server", func(t *testing.T) {
			t.Skipf("KUBEBUILDER_ASSETS is not set: without %s", patchesOnServer)
		})
		tests = append(tests, "-skip", patchesOnServer)
	}
	t.Setenv("KUBEBUILDER_CONTROLPLANE_START_TIMEOUT", "3m") // envtest gives 20 s, which a busy machine may need
	dir := repository(t)
	for _, patch := range made(t) {
		apply(t, dir, patch)
		forktest.Run(t, dir, "go", "build", "-trimpath", "./...")
		forktest.Run(t, dir, "go", "vet", "-trimpath", "./pkg/client/...")
		forktest.Run(t, dir, "go", "mod", "tidy", "-diff")
		t.Logf("%s\n%s", patch.File, forktest.Run(t, dir, "go", append(slices.Clone(tests), "./pkg/client", "./pkg/client/apiutil")...))
	}
}
