// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	if err != nil {
		return err
	}
	if err := j.requires(); err != nil {
		return err
	}
	got, err := j.list(ctx)
	if err != nil {
		return j.explain(ctx, err)
	}
	if got.Replace == nil {
		return fmt.Errorf("%s has no fork of %s: run %s", j.Dir, tree.Module, j.command())
	}
	if _, err := tree.LineOf(got.Version); err != nil { // no run of this tool would help
		return fmt.Errorf("%s requires a release that has no fork: %w", j.show(goMod), err)
	}
	if got.Replace.Version != "" {
		return j.checkTag(got.Version, modVersion{got.Replace.Path, got.Replace.Version})
	}
	return j.checked(got.Version, got.Replace.Dir).run(ctx)
}

// explain says what is wrong if the go command failed because a tree is missing, as it
// does in a workspace.
func (j *job) explain(ctx context.Context, failed error) error {
	if dir, _ := j.mod.replaced(j.dir); dir != "" && !isDir(dir) {
		return j.checked(j.mod.required(), dir).run(ctx)
	}
	return failed
}

// checkTag looks at the version of a published fork.
func (j *job) checkTag(required string, with modVersion) error {
	found := tagged.FindStringSubmatch(with.Version)
	switch {
	case found == nil:
		return fmt.Errorf("%s replaces %s with %s, whose version is not one of a fork's (v0.25.2-fresh.1, say)", j.show(goMod), tree.Module, with)
	case required != found[1]:
		return fmt.Errorf("%s requires %s %s, but replaces it with %s: run go mod edit -replace=%s=%s@%s-fresh.1 in %s",
			j.show(goMod), tree.Module, required, with, tree.Module, with.Path, required, j.Dir)
	}
	j.say("ok", "%s is replaced with %s, as go.mod requires", tree.Module, with)
	return nil
}

// checked is a tree that is looked at.
type checked struct {
	*job
	version    string // the one that the build would use without it
	dir, shown string
	fix        string // the command that writes the tree anew
	manifest   *tree.Manifest
}

func (j *job) checked(version, dir string) *checked {
	c := &checked{job: j, version: version, dir: dir, shown: j.show(j.relative(dir)), fix: j.command()}
	if !sameFile(filepath.Dir(c.dir), filepath.Dir(j.slot.Dir)) { // another module of the repository has the tree
		c.fix = j.Self + " -into " + quoted(j.show(j.relative(filepath.Dir(filepath.Dir(c.dir)))))
	}
	return c
}

func (c *checked) run(ctx context.Context) error {
	if !isDir(c.dir) {
		return fmt.Errorf("%s is missing: commit it (does a .gitignore hide it?), or run %s", c.shown, c.fix)
	}
	manifest, err := tree.Load(c.dir)
	if errors.Is(err, tree.ErrNotOurs) {
		return fmt.Errorf("%s %w: %s replaces %s with it", c.shown, err, c.show(goMod), tree.Module)
	}
	if err != nil {
		return fmt.Errorf("%w (%s -force gives the tree up)", err, c.fix)
	}
	c.manifest = manifest
	if len(manifest.Saved) == 0 && !sameFile(c.dir, c.slot.Dir) { // no module's own: -o wrote it
		c.fix = c.Self + " -o " + quoted(c.shown) + " -version " + c.version
		if manifest.Full() {
			c.fix += " -full"
		}
	}
	if err = c.whole(); err == nil {
		err = c.upToDate(ctx)
	}
	if err == nil {
		err = c.sameInVendor()
	}
	if err != nil {
		return err
	}
	c.say("ok", "%s is %s %s with this mapper inside", c.shown, tree.Module, c.version)
	return nil
}

// whole returns an error unless the tree has all that this tool wrote, and nothing
// else.
func (c *checked) whole() error {
	if (tree.Slot{Dir: c.dir}).Interrupted() {
		return fmt.Errorf("a run that wrote %s was interrupted, or is at work: run %s", c.shown, c.fix)
	}
	edits, err := c.manifest.Edits(c.dir)
	if err != nil || len(edits) == 0 {
		return err
	}
	if !slices.ContainsFunc(edits, func(edit string) bool { return !strings.HasPrefix(edit, "removed ") }) {
		return fmt.Errorf("%s lacks %d files, the first is %s: commit them (does a .gitignore hide them?), or run %s -force",
			c.shown, len(edits), strings.TrimPrefix(edits[0], "removed "), c.fix)
	}
	return fmt.Errorf("%s is not as this tool wrote it (%d files, the first: %s): run %s -force", c.shown, len(edits), edits[0], c.fix)
}

// upToDate returns an error unless the tree is of the required version and has our
// mapper.
func (c *checked) upToDate(ctx context.Context) error {
	if c.version != c.manifest.Version {
		return fmt.Errorf("%s is %s %s, but %s requires %s: run %s", c.shown, tree.Module, c.manifest.Version, c.show(goMod), c.version, c.fix)
	}
	if err := c.look(ctx); err != nil {
		return err
	}
	made, err := tree.Make(ctx, c.version, c.before[goSum], c.Ours, c.manifest.Full())
	if err != nil {
		return err
	}
	if !c.manifest.Describes(made) {
		return fmt.Errorf("%s has another mapper inside than this tool: run %s", c.shown, c.fix)
	}
	return nil
}

// sameInVendor returns an error unless the vendor folder that the build uses has
// the same files as the tree. The go command compares only versions, and the tree
// has none.
func (c *checked) sameInVendor() error {
	vendor, command := c.vendor()
	if vendor == "" {
		return nil
	}
	copied := filepath.Join(vendor, filepath.FromSlash(tree.Module))
	files, err := tree.Read(os.DirFS(copied))
	shown, run := c.show(c.relative(copied)), command+" in "+quoted(filepath.Dir(vendor))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s has no %s, and the build takes it from there: run %s", c.show(c.relative(vendor)), tree.Module, run)
	case err != nil:
		return fmt.Errorf("compare %s with %s: %w", shown, c.shown, err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if sumOf(files[name].Data) != c.manifest.Files[name] {
			return fmt.Errorf("%s is not what is in %s, and the build takes it from there (the first file that differs: %s): run %s",
				shown, c.shown, name, run)
		}
	}
	return nil
}
