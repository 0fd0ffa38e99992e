// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/freshmapper/freshmapper/hack/fork/gotool"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// shownLines is how much of a failed build is printed.
const shownLines = 10

// install writes the tree, adds the replace directive and builds. before is
// what a later undo restores. If a step fails, or ctx ends, the consumer is as
// it was when install began.
func (j *job) install(ctx context.Context, made *tree.Result, before contents) error {
	if err := j.vendored(); err != nil {
		return err
	}
	var undo []func() error // what was done so far
	if err := j.apply(ctx, made, before, &undo); err != nil {
		for _, step := range slices.Backward(undo) {
			// The tree, which goes later, has the only copies of what is not back yet.
			if failed := step(); failed != nil {
				return fmt.Errorf("%w; rolling back failed too: %w; when that is mended, run %s", err, failed, j.command("-undo"))
			}
		}
		if errors.Is(err, context.Canceled) {
			err = errors.New("interrupted")
		}
		return fmt.Errorf("%w; %s is as it was", err, j.Dir)
	}
	if err := j.slot.Sweep(); err != nil {
		return err
	}
	fmt.Fprintf(j.Out, "\ndone: %s now builds with %s %s and this mapper inside.\n", j.mod.Module.Path, tree.Module, made.Version)
	fmt.Fprintf(j.Out, "undo: %s\n", j.command("-undo"))
	return nil
}

// apply does it, and notes how to take back what it did.
func (j *job) apply(ctx context.Context, made *tree.Result, before contents, undo *[]func() error) error {
	now, err := j.current()
	if err != nil {
		return err
	}
	with := maps.Clone(now)
	if with[goMod], err = editMod(ctx, now[goMod], "-replace="+tree.Module+"=./"+place); err != nil {
		return err
	}
	above := filepath.Dir(j.slot.Dir)
	if !tree.Exists(above) {
		if err := os.Mkdir(above, 0o755); err != nil {
			return fmt.Errorf("make a folder for the tree: %w", err)
		}
		*undo = append(*undo, func() error { return os.Remove(above) })
	}
	manifest := tree.NewManifest(made)
	manifest.Saved = saves(before, with)
	copies := map[string][]byte{}
	for name, saved := range manifest.Saved {
		if saved.Copy != "" {
			copies[saved.Copy] = before[name]
		}
	}
	if err := j.slot.Put(ctx, made.Files, manifest, copies); err != nil {
		return err
	}
	*undo = append(*undo, j.slot.Revert)
	j.say("tree", "%s: %s", place, made)

	*undo = append(*undo, func() error { return j.restore(now) })
	if err := replaceFile(j.path(goMod), with[goMod]); err != nil { // the others are not ours to write
		return fmt.Errorf("write %s: %w", j.show(goMod), err)
	}
	j.say("go.mod", "replace %s => ./%s", tree.Module, place)
	if err := j.build(ctx); err != nil {
		return err
	}
	left, err := j.current()
	if err != nil {
		return err
	}
	manifest.Saved, manifest.Complete = saves(before, left), true
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return manifest.Save(j.slot.Dir)
}

// build builds the consumer with the tree in place.
func (j *job) build(ctx context.Context) error {
	j.say("build", "go build ./... (the first one compiles all of controller-runtime)")
	start := time.Now()
	err := j.goBuild(ctx, "-mod=readonly")
	if j.lacksSums(err) {
		err = j.buildAdding(ctx)
	}
	if err != nil {
		return j.buildFailed(err)
	}
	j.say("build", "ok in %s", time.Since(start).Round(100*time.Millisecond))
	return nil
}

// buildAdding lets the go command complete go.mod and go.sum, and tells what it
// added. That happens to a program that uses so little of controller-runtime
// that it never needed a module which our mapper imports.
func (j *job) buildAdding(ctx context.Context) error {
	before, err := j.current()
	if err != nil {
		return err
	}
	j.say("build", "go.mod or go.sum lacks what the tree needs: go build -mod=mod ./... adds it")
	if err := j.goBuild(ctx, "-mod=mod"); err != nil {
		return err
	}
	after, err := j.current()
	for _, name := range []string{goMod, goSum} {
		known := gotool.SplitLines(string(before[name]))
		var added []string
		for _, line := range gotool.SplitLines(string(after[name])) {
			if !slices.Contains(known, line) {
				added = append(added, strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(line), "// indirect")))
			}
		}
		if len(added) > 0 {
			j.say(name, "added %s", strings.Join(added, ", "))
		}
	}
	return err
}

// goBuild compiles everything and keeps nothing: without -o a module with one
// command would find a binary in its folder.
func (j *job) goBuild(ctx context.Context, mode string) error {
	// No -v or -x of GOFLAGS: what they print would be taken for the reason of a failure.
	_, err := gotool.Run(ctx, j.dir, j.env, "build", mode, "-v=false", "-x=false", "-buildvcs=false", "-o", os.DevNull, "./...")
	return err
}

// lacksSums reports whether -mod=mod would help. A workspace doesn't allow it,
// and adds sums to go.work.sum by itself.
func (j *job) lacksSums(err error) bool {
	var failed *gotool.Error
	return j.work == "" && errors.As(err, &failed) &&
		containsAny(failed.Output, "missing go.sum entry", "updates to go.mod needed", "updates to go.sum needed")
}

func containsAny(text string, signs ...string) bool {
	return slices.ContainsFunc(signs, func(sign string) bool { return strings.Contains(text, sign) })
}

func (j *job) buildFailed(err error) error {
	var failed *gotool.Error
	if !errors.As(err, &failed) {
		return err
	}
	lines := gotool.Lines(failed.Output)
	for _, line := range lines[:min(len(lines), shownLines)] {
		j.say("", "%s", line)
	}
	if more := len(lines) - shownLines; more > 0 {
		j.say("", "… %d lines more", more)
	}
	if at := slices.IndexFunc(lines, unavailable); at >= 0 {
		cause := strings.TrimSpace(strings.TrimPrefix(lines[at], "go: "))
		return fmt.Errorf("%s does not build because a dependency can't be had: %s", j.Dir, cause)
	}
	lines = append(lines, "no reason given")
	return fmt.Errorf("%s does not build with the fork: %s (does it without? go build ./...)", j.Dir, strings.TrimSpace(lines[0]))
}

// unavailable reports whether in this line the go command says that it could not
// get a module, or may not use it. That has nothing to do with the fork.
func unavailable(line string) bool {
	return containsAny(line,
		": reading ", ": Get ", "dial tcp", "404 Not Found", "410 Gone", "403 Forbidden", "module lookup disabled",
		"unrecognized import path", "unknown revision", "checksum mismatch", "verifying ", "no required module provides")
}
