// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"maps"
	"path"
	"slices"
	"strings"
)

const (
	// kinds has types like those of an API, which controller-gen takes for the user's:
	// it walks every go.mod below a project. With skipFile it makes no
	// CustomResourceDefinition of them. The marker stands by itself, so that it is not
	// the package's documentation.
	kinds    = "pkg/controller/controllertest"
	skipFile = "// SPDX-License-Identifier: Apache-2.0\n\n// +kubebuilder:skip\n\npackage controllertest\n"
	// attributes keep git from changing line ends, as it does on Windows: the tree would
	// no longer be what the manifest says. Code hosts show the files collapsed in reviews.
	attributes = "* -text linguist-generated gitlab-generated\n"
)

// forTests are packages that only tests use. The first has types like those of an API.
var forTests = []string{"pkg/manager/internal/", apiutilDir + "/internal/fakeapi/"}

// slim removes what no program compiles: everything that is no Go package, and tests.
func (f Files) slim() {
	maps.DeleteFunc(f, func(name string, _ []byte) bool { return !compiled(name) })
	f[path.Join(kinds, "zz_skip.go")] = []byte(skipFile)
	f[".gitattributes"] = []byte(attributes)
}

// compiled reports whether a program compiles the file, or the go command or a lawyer
// reads it.
func compiled(name string) bool {
	switch {
	case strings.HasSuffix(name, "_test.go") || slices.Contains(strings.Split(name, "/"), "testdata"):
		return false
	case !strings.Contains(name, "/"):
		return path.Ext(name) == ".go" || slices.Contains([]string{"go.mod", "go.sum", "LICENSE"}, name)
	}
	return strings.HasPrefix(name, "pkg/") &&
		!slices.ContainsFunc(forTests, func(folder string) bool { return strings.HasPrefix(name, folder) })
}
