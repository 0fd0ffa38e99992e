// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper"
	"github.com/freshmapper/freshmapper/hack/fork/forktest"
)

// The real sources, in programs that use as little of controller-runtime as
// possible: their own go.sum must suffice for what our code imports.
func TestRealSources(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles controller-runtime")
	}
	programs := map[string]string{
		"sigs.k8s.io/controller-runtime/pkg/client":  "_, _ = client.New(nil, client.Options{})",
		"sigs.k8s.io/controller-runtime/pkg/manager": "_, _ = manager.New(nil, manager.Options{})",
	}
	for imported, statement := range programs {
		t.Run(filepath.Base(imported), func(t *testing.T) {
			dir := forktest.Program(t, imported, statement)
			var out, said bytes.Buffer
			if code := run([]string{"-into", dir}, freshmapper.Source, &out, &said); code != 0 {
				t.Fatalf("%s\n%s", &said, &out)
			}
			if strings.Contains(out.String(), "-mod=mod") {
				t.Errorf("the consumer's own go.sum was not enough:\n%s", &out)
			}
			if imports := forktest.Run(t, filepath.Join(dir, "third_party", "controller-runtime"), "go", "list", "-deps", "./pkg/client/apiutil/..."); strings.Contains(imports, "freshmapper") {
				t.Error("the tree still imports our module")
			}
			if code := run([]string{"-into", dir, "-undo"}, nil, &out, &said); code != 0 {
				t.Fatal(&said)
			}
			forktest.Clean(t, dir)
		})
	}
}
