// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// tagged is the version of a published fork: v0.25.2-fresh.1 is of v0.25.2.
var tagged = regexp.MustCompile(`^(v[0-9]+\.[0-9]+\.[0-9]+)-fresh\.[0-9]+$`)

// Check returns nil if r.Dir builds with a fork that is whole, of the
// controller-runtime that go.mod requires, and of the mapper in r.Ours; else it
// says what to run. It changes nothing.
func Check(ctx context.Context, r Request) error {
	j, err := open(ctx, r)
	if err == nil {
		err = j.requires()
	}
	if err != nil {
		return err
	}
	got, err := j.list(ctx)
	if err != nil {
		return err
	}
	if got.Replace == nil {
		return fmt.Errorf("%s has no fork of %s: run %s", j.Dir, tree.Module, j.command())
	}
	if got.Replace.Version != "" {
		return j.checkTag(got.Version, *got.Replace)
	}
	return j.checkTree(ctx, got.Version, got.Replace.Dir)
}

func (j *job) checkTag(required string, with modVersion) error {
	found := tagged.FindStringSubmatch(with.Version)
	switch {
	case found == nil:
		return fmt.Errorf(
			"%s replaces %s with %s, whose version is not that of a fork (for example v0.25.2-fresh.1)",
			j.show(j.path(goMod)),
			tree.Module,
			with,
		)
	case required != found[1]:
		return fmt.Errorf(
			"%s requires %s %s, but replaces it with %s: run go get %s@%s in %s, or replace it with a tag of %s",
			j.show(j.path(goMod)),
			tree.Module,
			required,
			with,
			tree.Module,
			found[1],
			quoted(j.Dir),
			required,
		)
	}
	j.say(
		"ok",
		"%s is replaced with %s, as go.mod requires: only the versions were compared, not the module's content",
		tree.Module,
		with,
	)
	j.tellMakefile(true)
	return nil
}

// checkTree looks at the tree in dir: of this module, of another one of the repository, or
// what -o wrote. version is the one that the build would use without it.
func (j *job) checkTree(ctx context.Context, version, dir string) error {
	shown := j.show(dir)
	fix := j.Self + " -o " + quoted(shown) + " -version " + version
	if root, of := strings.CutSuffix(filepath.ToSlash(dir), "/"+place); of {
		fix = j.Self + " -into " + quoted(j.show(root))
	}
	if !isDir(dir) {
		return fmt.Errorf("%s is missing: commit it (does a .gitignore hide it?), or run %s", shown, fix)
	}
	manifest, edits, err := tree.Open(dir)
	j.at, j.manifest, j.edits = tree.Place(dir), manifest, edits
	if j.manifest.Full() {
		fix += " -full"
	}
	switch {
	case errors.Is(err, tree.ErrNotOurs):
		return fmt.Errorf(
			"%s %w: %s replaces %s with it (if it was, restore %s/manifest.json)",
			shown,
			tree.ErrNotOurs,
			j.show(j.path(goMod)),
			tree.Module,
			tree.Meta,
		)
	case err != nil:
		return fmt.Errorf("%w (%s -force gives the tree up)", err, fix)
	case len(j.edits) > 0:
		return fmt.Errorf(
			"%s is not as this tool wrote it (files: %d, the first: %s): put them back "+
				"(does a .gitignore hide them?), or run %s -force",
			shown,
			len(j.edits),
			j.edits[0],
			fix,
		)
	case version != j.manifest.Version:
		return fmt.Errorf(
			"%s is %s %s, but %s requires %s: run %s",
			shown,
			tree.Module,
			j.manifest.Version,
			j.show(j.path(goMod)),
			version,
			fix,
		)
	}
	if err := j.readFiles(ctx); err != nil {
		return err
	}
	made, err := tree.Make(ctx, version, j.before[goSum], j.Ours, j.manifest.Full())
	switch {
	case err != nil:
		return err
	case !maps.Equal(made.Digests(), j.manifest.Files):
		return fmt.Errorf("%s has another mapper inside than this tool: run %s", shown, fix)
	}
	if err := j.sameInVendor(shown); err != nil {
		return err
	}
	j.say("ok", "%s is %s %s with this mapper inside", shown, tree.Module, version)
	return nil
}

// sameInVendor returns an error unless the vendor folder that the build uses has
// the same files as the tree. The go command compares only versions, and the tree
// has none.
func (j *job) sameInVendor(shown string) error {
	vendor, command := j.vendor()
	if vendor == "" {
		return nil
	}
	copied := filepath.Join(vendor, filepath.FromSlash(tree.Module))
	run := command + " in " + quoted(filepath.Dir(vendor))
	if !isDir(copied) {
		return fmt.Errorf("%s has no %s, and the build takes it from there: run %s", j.show(vendor), tree.Module, run)
	}
	files, err := tree.Read(os.DirFS(copied))
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err == nil && sumOf(files[name]) != j.manifest.Files[name] {
			err = fmt.Errorf(
				"%s is not what is in %s, and the build takes it from there (the first file that differs: %s): run %s",
				j.show(copied),
				shown,
				name,
				run,
			)
		}
	}
	return err
}
