// SPDX-License-Identifier: Apache-2.0

// Package consumer puts a patched controller-runtime into somebody's module,
// and takes it out again.
//
// Into writes third_party/controller-runtime, builds with a copy of go.mod that replaces
// controller-runtime with it, and writes go.mod last. So a run that fails, or is killed,
// has changed nothing that the consumer's build uses, and the next run clears away what is
// left. The tree's manifest knows what go.mod and go.sum were before.
package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// place is where the tree goes, relative to the consumer.
const place = "third_party/controller-runtime"

// Request is what to do to which module.
type Request struct {
	Dir     string    // the folder of its go.mod
	Ours    fs.FS     // apiutil and internal; not needed to undo
	Force   bool      // give up hand edits
	NoBuild bool      // believe that it builds
	Self    string    // the command the user started, for the hints
	Out     io.Writer // progress
}

// job is one run, and what an earlier one, or the user, has left in the consumer.
type job struct {
	Request
	*module
	slot        tree.Slot
	now, before contents       // go.mod and go.sum; before is what undoing makes of now
	hasTree     bool           // there is a tree of ours
	manifest    *tree.Manifest // of it; nil: none, or unreadable
	edits       []string       // what somebody changed in it
}

func open(ctx context.Context, r Request) (*job, error) {
	m, err := openModule(ctx, r.Dir)
	if err != nil {
		return nil, err
	}
	return &job{Request: r, module: m, slot: tree.Slot{Dir: m.path(place)}}, nil
}

// begin opens a module for a run, and clears away what a killed run has left.
func begin(ctx context.Context, r Request) (*job, error) {
	j, err := open(ctx, r)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{goMod, goSum} {
		err = errors.Join(err, os.RemoveAll(tempName(j.path(name))))
	}
	if j.slot.Interrupted() {
		j.say("clear", "an earlier run was interrupted: what it left is cleared away")
		err = errors.Join(err, j.slot.Clear())
		j.removeAbove()
	}
	if err != nil {
		return nil, fmt.Errorf("clear away what an earlier run left: %w", err)
	}
	return j, j.look(ctx)
}

// say prints a line of progress.
func (j *job) say(what, format string, args ...any) {
	fmt.Fprintf(j.Out, "%-10s %s\n", what, fmt.Sprintf(format, args...))
}

// command is what to type to run this tool on the same folder.
func (j *job) command(flags ...string) string {
	return strings.Join(append([]string{j.Self, "-into", quoted(j.Dir)}, flags...), " ")
}

// quoted is a folder as a shell takes it.
func quoted(dir string) string {
	if strings.ContainsAny(dir, " \t\"'$&|;<>()*?[]#~`\\!{}") {
		return "'" + strings.ReplaceAll(dir, "'", `'\''`) + "'"
	}
	return dir
}

// look finds out what is there.
func (j *job) look(ctx context.Context) (err error) {
	if above := filepath.Dir(j.slot.Dir); tree.Exists(above) && !isDir(above) {
		return fmt.Errorf("%s is in the way, the tree goes into a folder of that name: move it away", j.show(path.Dir(place)))
	}
	if j.hasTree = tree.Exists(j.slot.Dir); j.hasTree {
		j.manifest, j.edits, err = tree.Open(j.slot.Dir)
	}
	switch {
	case errors.Is(err, tree.ErrNotOurs):
		return fmt.Errorf("%s is in the way, it %w: move it away", j.show(place), tree.ErrNotOurs)
	case err != nil && !j.Force:
		return fmt.Errorf("%w (-force gives the tree up)", err)
	}
	return j.readFiles(ctx)
}

// foreign returns an error if go.mod replaces controller-runtime with something else.
func (j *job) foreign() error {
	for _, r := range j.mod.Replace {
		if r.Old.Path == tree.Module && r != ourReplace {
			return fmt.Errorf("%s replaces %s with %s, which is not this tool's: drop that replace first (go mod edit -dropreplace=%s)",
				j.show(goMod), tree.Module, r.New, r.Old.flag())
		}
	}
	return nil
}

// edited refuses to touch a tree that somebody edited.
func (j *job) edited() error {
	if len(j.edits) > 0 && !j.Force {
		return tree.EditedError(j.show(place), j.edits)
	}
	return nil
}

// Into forks controller-runtime into r.Dir. Run again, it updates the tree if
// the sources or the version have changed since, and else changes nothing.
func Into(ctx context.Context, r Request) error {
	j, err := begin(ctx, r)
	if err != nil {
		return err
	}
	for _, err := range []error{j.requires(), j.foreign(), j.edited()} {
		if err != nil {
			return err
		}
	}
	j.say("module", "%s in %s", j.mod.Module.Path, j.Dir)
	if j.work != "" {
		j.say("workspace", "%s", j.work)
	}
	version, sibling, err := j.selected(ctx)
	if err != nil {
		return err
	}
	if sibling != "" {
		j.say("done", "nothing to do: the fork in %s serves all modules of the workspace; with GOWORK=off %s does not have it", j.relative(sibling), j.Dir)
		return nil
	}
	j.say("upstream", "%s %s from the module cache", tree.Module, version)
	made, err := tree.Make(ctx, version, j.before[goSum], j.Ours, false)
	if err != nil {
		return err
	}
	if j.mod.forked() && j.manifest != nil && len(j.edits) == 0 && j.manifest.Describes(made) {
		j.say("done", "nothing to do: %s is up to date; undo: %s", place, j.command("-undo"))
	} else if err := j.install(ctx, made); err != nil {
		return err
	}
	return j.advise(ctx)
}

// install writes the tree, builds, and writes go.mod. If a step fails, or ctx ends, the
// consumer is as it was.
func (j *job) install(ctx context.Context, made *tree.Result) error {
	manifest := tree.NewManifest(made)
	err := j.slot.Put(ctx, made.Files, manifest)
	if err == nil {
		j.say("tree", "%s: %s", place, made)
		if err = j.adopt(ctx, manifest); err != nil {
			err = errors.Join(err, j.slot.Revert())
		}
	}
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	if err != nil {
		j.removeAbove()
		return fmt.Errorf("%w; %s is as it was", err, j.Dir)
	}
	j.tellVendor()
	fmt.Fprintf(j.Out, "\ndone: %s now uses %s %s with this mapper inside.\n", j.mod.Module.Path, tree.Module, made.Version)
	fmt.Fprintf(j.Out, "undo: %s\n", j.command("-undo"))
	return j.slot.Keep()
}

// adopt makes the consumer use the tree.
func (j *job) adopt(ctx context.Context, manifest *tree.Manifest) error {
	mod, err := editMod(ctx, j.now[goMod], "-replace="+tree.Module+"=./"+place)
	want := contents{goMod: mod, goSum: j.now[goSum]}
	if err == nil && !j.NoBuild {
		want, err = j.build(ctx, want)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	manifest.Saved = map[string]tree.Saved{}
	for name, data := range j.before {
		saved := tree.Saved{Written: sumOf(want[name])}
		if data != nil {
			text := string(data)
			saved.Before = &text
		}
		manifest.Saved[name] = saved
	}
	if err = manifest.Save(j.slot.Dir); err == nil {
		err = j.write(want)
	}
	if err == nil {
		j.say(goMod, "replace %s => ./%s", tree.Module, place)
	}
	return err
}

// Undo takes back what Into did.
func Undo(ctx context.Context, r Request) error {
	j, err := begin(ctx, r)
	if err != nil {
		return err
	}
	if !j.hasTree && !j.mod.forked() {
		j.say("done", "nothing to undo: no fork of this tool's in %s", j.Dir)
		return nil
	}
	if err := j.edited(); err != nil {
		return err
	}
	if err = j.write(j.before); err == nil {
		j.tellUndone()
		err = j.slot.Remove()
	}
	if err != nil {
		return fmt.Errorf("%w; when that is mended, run %s again", err, j.command("-undo"))
	}
	j.removeAbove()
	j.say("tree", "%s is gone", place)
	j.tellVendor()
	if err := j.tellModules(ctx, true); err != nil {
		return err
	}
	j.say("done", "the fork is out of %s", j.Dir)
	return nil
}

// removeAbove removes the folder above the tree if nothing is in it.
func (j *job) removeAbove() {
	above := filepath.Dir(j.slot.Dir)
	if info, err := os.Lstat(above); err == nil && info.IsDir() { // a link was the user's before
		os.Remove(above) //nolint:errcheck // It fails if something is in it. An empty folder does no harm.
	}
}

// tellUndone says what became of go.mod and go.sum, and what they lack now.
func (j *job) tellUndone() {
	for _, name := range []string{goMod, goSum} {
		was, known := j.saved(name)
		switch {
		case known && bytes.Equal(was, j.before[name]):
			j.say(name, "as it was")
		case name == goMod:
			j.say(name, "your changes kept, the replace line dropped; go mod tidy drops what nothing needs now")
		default:
			j.say(name, "your changes kept")
		}
	}
	// "go get" of a newer controller-runtime adds no sums of it while a folder replaces it.
	if version := j.mod.required(); version != "" && !bytes.Contains(j.before[goSum], []byte(tree.Module+" "+version+" h1:")) {
		j.say(goSum, "note: it has no sum of %s %s, go mod tidy adds it", tree.Module, version)
	}
}
