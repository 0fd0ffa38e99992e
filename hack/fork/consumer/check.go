// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
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
	with, err := j.replacement(ctx)
	switch {
	case err != nil:
		return err
	case with.Version != "":
		return j.checkTag(ctx, with)
	case with.Path == "":
		return fmt.Errorf("%s has no fork of %s: run %s", j.Dir, tree.Module, j.command())
	}
	return j.checkTree(ctx, with.Path)
}

// replacement is what controller-runtime is replaced with: a module with its
// version, or a folder, absolute; by go.mod or by another module of the workspace.
func (j *job) replacement(ctx context.Context) (modVersion, error) {
	for _, r := range j.mod.Replace {
		if r.Old.Path != tree.Module {
			continue
		}
		if r.New.Version == "" && !filepath.IsAbs(r.New.Path) {
			r.New.Path = j.path(r.New.Path)
		}
		return r.New, nil
	}
	if j.work == "" {
		return modVersion{}, nil
	}
	_, sibling, err := j.selected(ctx)
	return modVersion{Path: sibling}, err
}

func (j *job) checkTag(ctx context.Context, with modVersion) error {
	found := tagged.FindStringSubmatch(with.Version)
	if found == nil {
		return fmt.Errorf("%s replaces %s with %s, whose version is not one of a fork's (v0.25.2-fresh.1, say)", j.show(goMod), tree.Module, with)
	}
	required, err := j.required(ctx)
	if err != nil {
		return err
	}
	if required != found[1] {
		return fmt.Errorf("%s requires %s %s, but replaces it with %s: run go mod edit -replace=%s=%s@%s-fresh.1 in %s",
			j.show(goMod), tree.Module, required, with, tree.Module, with.Path, required, j.Dir)
	}
	j.say("ok", "%s is replaced with %s, as go.mod requires", tree.Module, with)
	return nil
}

// required is the version that the build would use without a replace. One of which
// there is no fork is an error: no run of this tool would help.
func (j *job) required(ctx context.Context) (string, error) {
	var got struct{ Version string }
	if err := j.parse(ctx, &got, "list", "-mod=readonly", "-m", "-json", tree.Module); err != nil {
		return "", err
	}
	if _, err := tree.LineOf(got.Version); err != nil {
		return "", fmt.Errorf("%s requires what the fork is not of: %w", j.show(goMod), err)
	}
	return got.Version, nil
}

func (j *job) checkTree(ctx context.Context, dir string) error {
	mine := sameFile(filepath.Dir(dir), filepath.Dir(j.slot.Dir))
	shown := j.show(j.relative(dir))
	fix := j.command()
	if !mine { // another module of the repository has the tree
		fix = j.Self + " -into " + quoted(j.show(j.relative(filepath.Dir(filepath.Dir(dir)))))
	}
	if !isDir(dir) {
		return fmt.Errorf("%s is missing: commit it (does a .gitignore hide it?), or run %s -force", shown, fix)
	}
	manifest, err := tree.Load(dir)
	if errors.Is(err, tree.ErrNotOurs) {
		return fmt.Errorf("%s %w: %s replaces %s with it", shown, err, j.show(goMod), tree.Module)
	}
	if err == nil && len(manifest.Saved) == 0 {
		fix, err = j.remake(ctx, manifest, shown)
	}
	if err == nil {
		err = j.checkManifest(manifest, dir, shown, fix)
	}
	if err == nil {
		err = j.checkSources(ctx, manifest, shown, fix)
	}
	if err == nil {
		err = j.checkVendored(manifest, shown)
	}
	if err != nil {
		return err
	}
	j.say("ok", "%s is %s %s with this mapper inside", shown, tree.Module, manifest.Version)
	return nil
}

// remake is the command that writes a tree anew which is no module's own.
func (j *job) remake(ctx context.Context, manifest *tree.Manifest, shown string) (string, error) {
	version, err := j.required(ctx)
	command := j.Self + " -o " + quoted(shown) + " -version " + version
	if manifest.Full() {
		command += " -full"
	}
	return command, err
}

// checkManifest: the tree is whole.
func (j *job) checkManifest(manifest *tree.Manifest, dir, shown, fix string) error {
	if left := (tree.Slot{Dir: dir}).Leftovers(); !manifest.Complete || len(left) > 0 {
		return fmt.Errorf("a run that wrote %s was interrupted, or is at work: run %s -force", shown, fix)
	}
	edits, err := manifest.Edits(dir)
	if err != nil || len(edits) == 0 {
		return err
	}
	missing := 0
	for _, edit := range edits {
		if strings.HasPrefix(edit, "removed ") {
			missing++
		}
	}
	if missing == len(edits) {
		return fmt.Errorf("%s lacks %d files, the first is %s: commit them (does a .gitignore hide them?), or run %s -force",
			shown, missing, strings.TrimPrefix(edits[0], "removed "), fix)
	}
	return fmt.Errorf("%s is not as this tool wrote it (%d files, the first: %s): run %s -force", shown, len(edits), edits[0], fix)
}

// checkSources: the tree is of the version that is required, and of our mapper.
func (j *job) checkSources(ctx context.Context, manifest *tree.Manifest, shown, fix string) error {
	version, err := j.required(ctx)
	if err != nil {
		return err
	}
	if version != manifest.Version {
		return fmt.Errorf("%s is %s %s, but %s requires %s: run %s", shown, tree.Module, manifest.Version, j.show(goMod), version, fix)
	}
	s, err := j.look()
	if err != nil {
		return err
	}
	before, err := j.baseline(ctx, s)
	if err != nil {
		return err
	}
	made, err := tree.Make(ctx, version, before[goSum], j.Ours)
	if err != nil {
		return err
	}
	if !manifest.Full() {
		if err := made.Slim(); err != nil {
			return err
		}
	}
	if !manifest.Describes(made) {
		return fmt.Errorf("%s has another mapper inside than this tool: run %s", shown, fix)
	}
	return nil
}
