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

// A dependency that uses controller-runtime, too, and asks for an older release
// of it, is built with the fork as well.
func TestOtherDependency(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "operator")
	if err := os.Rename(forktest.Consumer(t), dir); err != nil {
		t.Fatal(err)
	}
	forktest.Write(t, top, "library/go.mod", "module example.com/library\n\ngo 1.26.0\n\nrequire "+tree.Module+" v0.25.0\n")
	forktest.Write(t, top, "library/library.go", "package library\n\nimport \""+mapperPackage+"\"\n\n"+
		"// Mapper makes a mapper.\nfunc Mapper() { _, _ = apiutil.NewDynamicRESTMapper(nil, nil) }\n")
	forktest.Write(t, dir, "library.go", "package main\n\nimport \"example.com/library\"\n\nvar _ = library.Mapper\n")
	forktest.Run(t, dir, "go", "mod", "edit", "-require=example.com/library@v0.0.0", "-replace=example.com/library=../library")
	forktest.Run(t, dir, "go", "mod", "tidy")
	forktest.Commit(t, dir)

	into.must(t, dir, nil)
	if from, want := builtFrom(t, dir), filepath.Join(dir, place, "pkg/client/apiutil"); from != want {
		t.Errorf("the mapper is built from %q, not from %s alone", from, want)
	}
	undo.must(t, dir, nil)
	forktest.Clean(t, dir)
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
