// SPDX-License-Identifier: Apache-2.0

// Package tree makes a controller-runtime tree with this project's mapper
// inside.
//
// The tree is made in memory, as Files: upstream's source from the user's own
// module cache, and what Generate does to it. Only then is it written, beside
// its final place, and renamed into it. A manifest in the tree says what the
// tool wrote, so that a later run can tell its own work from somebody's edits.
package tree

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/cli"
)

const (
	// Module is the module the tool patches.
	Module = "sigs.k8s.io/controller-runtime"
	// Ours is the module the sources come from.
	Ours = "github.com/freshmapper/freshmapper"
)

// Files is a tree in memory, by slash-separated path.
type Files map[string][]byte

// Digests returns the SHA-256 of every file.
func (f Files) Digests() map[string]string {
	sums := make(map[string]string, len(f))
	for name, file := range f {
		sums[name] = Digest(file)
	}
	return sums
}

// Digest is the SHA-256 of data, in hex.
func Digest(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// SourceDigest is short, and the same for the same sources of a mapper.
func SourceDigest(ours fs.FS) (string, error) {
	files, err := Read(ours)
	return Digest(fmt.Append(nil, files.Digests()))[:12], err // fmt sorts maps
}

// Write writes a file below dir. No file of a module cache can be executed, and so none
// of a tree.
func Write(dir, name string, data []byte) error {
	full := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		return err
	}
	return os.WriteFile(full, data, 0o644)
}

// Read reads a tree from fsys. What the tool adds to a tree on disk (its
// manifest's folder) is no part of it, nor are the files that a desktop drops. The tool
// never writes a link: instead of its data, one has what it is.
func Read(fsys fs.FS) (Files, error) {
	files := Files{}
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name == Meta:
			return fs.SkipDir
		case entry.IsDir() || path.Base(name) == ".DS_Store":
			return nil
		}
		if !entry.Type().IsRegular() {
			files[name] = []byte(entry.Type().String())
			return nil
		}
		files[name], err = fs.ReadFile(fsys, name)
		return err
	})
	return files, err
}

// Upstream reads controller-runtime's source from the module cache, as Folder
// finds it.
func Upstream(ctx context.Context, version string, sums []byte) (Files, error) {
	dir, err := Folder(ctx, version, sums)
	if err != nil {
		return nil, err
	}
	return Read(os.DirFS(dir))
}

// ErrAbsent is in the error of Folder for a release that is not there.
var ErrAbsent = errors.New("is not available")

// Folder is where the module cache has controller-runtime. It is downloaded first
// if need be. sums is the go.sum to check it against, nil to ask the checksum
// database: with the consumer's own go.sum a module that is in the cache needs no
// network. The error of a release that is not there names the newest of its line.
func Folder(ctx context.Context, version string, sums []byte) (string, error) {
	line, err := LineOf(version)
	if err != nil {
		return "", err
	}
	var module struct{ Dir, Error string }
	// In a module of its own: in the consumer's folder the go command would write to the
	// consumer's go.sum.
	mod := []byte("module freshmapper.invalid/download\n\ngo 1.23\n")
	err = cli.Elsewhere(ctx, mod, sums, &module, "mod", "download", "-json", Module+"@"+version)
	if module.Error != "" {
		err = fmt.Errorf(
			"download %s",
			strings.Join(strings.Fields(module.Error), " "),
		) // the proxy's answer is in lines
		var newest struct{ Version string }
		asked := cli.Elsewhere(ctx, mod, nil, &newest, "list", "-m", "-json", Module+"@"+line.Minor)
		if asked == nil && newest.Version != version {
			err = fmt.Errorf(
				"controller-runtime %s %w: the newest release of %s is %s: %w",
				version,
				ErrAbsent,
				line.Minor,
				newest.Version,
				err,
			)
		}
	}
	return module.Dir, err
}

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

// readme says what a tree is, to whoever finds it in a repository.
const readme = `# controller-runtime with another RESTMapper

This folder is a release of [controller-runtime](https://github.com/kubernetes-sigs/controller-runtime) with the
RESTMapper, client and cache of [freshmapper](https://` + Ours + `) inside. It is not a release of
the Kubernetes project.

The tool hack/fork of freshmapper wrote it, and .freshmapper/manifest.json has its version and the digest of each
file. Do not edit it: the tool updates it, checks it (-check), and removes it (-undo).

Upstream's files have their own notices. Those that were changed say so at the top. The files of freshmapper say
SPDX-License-Identifier: Apache-2.0. The license of all is in LICENSE.
`

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
