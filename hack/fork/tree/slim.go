// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// differing are those parts of pkg/ where something differs from upstream.
var differing = []string{"pkg/cache/", "pkg/client/", "pkg/handler/", "pkg/internal/follow/", "pkg/internal/mappermetrics/", "pkg/metrics/"}

const (
	// kinds has types like those of an API, which controller-gen takes for the user's:
	// it walks every go.mod below a project. With skipFile it makes no
	// CustomResourceDefinition of them. The marker stands by itself, so that it is not
	// the package's documentation.
	kinds    = "pkg/controller/controllertest"
	skipFile = "// SPDX-License-Identifier: Apache-2.0\n\n// +kubebuilder:skip\n\npackage controllertest\n"
	// managerInternal has such types too, and only upstream's tests use it.
	managerInternal = "pkg/manager/internal/"
	// asWritten keeps git from changing line ends, as it does on Windows: the tree
	// would no longer be what the manifest says.
	asWritten = "* -text\n"
)

// slim removes what no program compiles and what does not test the fork: everything
// that is no Go package, and the tests of those parts of pkg/ where nothing differs
// from upstream.
func (r *Result) slim() {
	maps.DeleteFunc(r.Files, func(name string, _ File) bool { return !r.compiled(name) && !r.testsFork(name) })
	r.Files[path.Join(kinds, "zz_skip.go")] = File{Data: []byte(skipFile)}
	r.Files[".gitattributes"] = File{Data: []byte(asWritten)}
}

// compiled reports whether a program compiles the file, or the go command or a
// lawyer reads it.
func (r *Result) compiled(name string) bool {
	if isTest(name) {
		return false
	}
	if !strings.Contains(name, "/") {
		return path.Ext(name) == ".go" || slices.Contains([]string{"go.mod", "go.sum", "LICENSE"}, name)
	}
	return strings.HasPrefix(name, "pkg/") && !strings.HasPrefix(name, managerInternal)
}

// testsFork reports whether the file belongs to the tests of the parts that differ.
// Upstream's suite of pkg/client does not: it imports examples/, which is left out.
func (r *Result) testsFork(name string) bool {
	_, upstreams := r.before[name]
	return isTest(name) && !(upstreams && path.Dir(name) == "pkg/client") &&
		slices.ContainsFunc(differing, func(part string) bool { return strings.HasPrefix(name, part) })
}

// isTest reports whether a file is compiled or read by tests only.
func isTest(name string) bool {
	return strings.HasSuffix(name, "_test.go") || slices.Contains(strings.Split(name, "/"), "testdata")
}
