// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// The ways in that README.md describes, beside the plain one and a workspace.

const mapperPackage = tree.Module + "/pkg/client/apiutil"

// builtFrom returns the folder that a program in dir takes the mapper from. There
// must be one only, whoever imports it.
func builtFrom(t *testing.T, dir string, flags ...string) string {
	t.Helper()
	list := append([]string{"list", "-deps", "-f", "{{if eq .ImportPath \"" + mapperPackage + "\"}}{{.Dir}}{{end}}"}, flags...)
	return strings.TrimSpace(forktest.Run(t, dir, "go", append(list, "./...")...))
}

// A vendor folder is made from the fork. An update names what makes it anew, and so does the
// check of one that nobody made anew: the go command does not mind.
func TestVendored(t *testing.T) {
	dir := forked(t)
	forktest.Write(t, dir, "vendor/modules.txt", "")
	check.fails(t, dir, nil, "vendor has no sigs.k8s.io/controller-runtime", "run go mod vendor in "+dir)
	forktest.Run(t, dir, "go", "mod", "vendor")
	check.must(t, dir, nil)
	forktest.Run(t, dir, "go", "build", "-trimpath", "-mod=vendor", "-o", os.DevNull, "./...")
	if from, want := builtFrom(t, dir, "-mod=vendor"), filepath.Join(dir, "vendor", mapperPackage); from != want {
		t.Errorf("the mapper is built from %s, not from %s", from, want)
	}
	if out := into.must(t, dir, nil); !strings.Contains(out, "nothing to do") {
		t.Errorf("the second run said\n%s", out)
	}
	newer := with(forktest.Edited("apiutil/more.go", "package apiutil\n"))
	if out := into.must(t, dir, newer); !strings.Contains(out, "run in "+dir+":\n              go mod vendor\n") {
		t.Errorf("no word about vendor in\n%s", out)
	}
	forktest.Run(t, dir, "go", "mod", "vendor")
	check.must(t, dir, newer)
	file := filepath.Join("vendor", mapperPackage, "restmapper.go")
	forktest.Write(t, dir, file, forktest.Text(t, dir, file)+"\n// as it was\n")
	check.fails(t, dir, newer, "vendor/sigs.k8s.io/controller-runtime is not what is in", "pkg/client/apiutil/restmapper.go", "run go mod vendor in "+dir)
	t.Setenv("GOFLAGS", "-mod=mod") // then it is not used
	if out := into.must(t, dir, nil); strings.Contains(out, "vendor") {
		t.Errorf("a word about vendor in\n%s", out)
	}
	remove(t, dir, "vendor")
	undo.must(t, dir, nil) // of two updates
	forktest.Clean(t, dir)
}
