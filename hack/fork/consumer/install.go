// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"context"
	"errors"
	"fmt"
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

// journal holds how to take back what was done so far, last first.
type journal []func() error

func (l *journal) add(undo func() error) { *l = append(*l, undo) }

func (l journal) rollback() error {
	var errs []error
	for _, undo := range slices.Backward(l) {
		errs = append(errs, undo())
	}
	return errors.Join(errs...)
}

// install writes the tree, adds the replace directive and builds. before is
// what a later undo restores. If a step fails, or ctx ends, the consumer is as
// it was when install began.
func (j *job) install(ctx context.Context, made *tree.Result, before contents) error {
	if err := j.vendored(); err != nil {
		return err
	}
	var log journal
	manifest, err := j.apply(ctx, made, before, &log)
	if err == nil {
		err = j.build(ctx)
	}
	if err == nil {
		err = j.complete(ctx, manifest)
	}
	if err != nil {
		return j.rollback(err, log)
	}
	if err := j.slot.Sweep(); err != nil {
		return err
	}
	j.summary(made)
	return j.advise(ctx)
}

func (j *job) rollback(err error, log journal) error {
	if failed := log.rollback(); failed != nil {
		return fmt.Errorf("%w; rolling back failed too: %w; run %s", err, failed, j.command("-undo"))
	}
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	return fmt.Errorf("%w; %s is as it was", err, j.Dir)
}

// apply does what the build needs: the tree, then go.mod.
func (j *job) apply(ctx context.Context, made *tree.Result, before contents, log *journal) (*tree.Manifest, error) {
	now, err := j.current()
	if err != nil {
		return nil, err
	}
	mod, err := editMod(ctx, now[goMod], "-replace="+tree.Module+"=./"+place)
	if err != nil {
		return nil, err
	}
	manifest := tree.NewManifest(made)
	manifest.Saved = saves(before, now)
	manifest.Saved[goMod] = tree.Saved{Copy: copyName(goMod), Written: tree.Digest(mod)}
	if err := j.writeTree(ctx, made, manifest, copies(before), log); err != nil {
		return nil, err
	}
	j.say("tree", "%s: %s", place, made)

	log.add(func() error { return j.restore(now) })
	if err := replaceFile(j.path(goMod), mod); err != nil {
		return nil, fmt.Errorf("write %s: %w", j.show(goMod), err)
	}
	j.say("go.mod", "replace %s => ./%s", tree.Module, place)
	return manifest, nil
}

func (j *job) writeTree(ctx context.Context, made *tree.Result, manifest *tree.Manifest, copies map[string][]byte, log *journal) error {
	above := filepath.Dir(j.slot.Dir)
	if !exists(above) {
		if err := os.Mkdir(above, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", above, err)
		}
		log.add(func() error { return os.Remove(above) })
	}
	if err := j.slot.Stage(ctx, made.Files, manifest, copies); err != nil {
		return err
	}
	if err := j.slot.Swap(); err != nil {
		return errors.Join(err, j.slot.Sweep())
	}
	log.add(j.slot.Revert)
	return nil
}

// saves returns where each file's earlier content is kept, and what the file holds
// at this point.
func saves(before, now contents) map[string]tree.Saved {
	saved := map[string]tree.Saved{}
	for name, data := range before {
		s := tree.Saved{Written: sumOf(now[name])}
		if data != nil {
			s.Copy = copyName(name)
		}
		saved[name] = s
	}
	return saved
}

func copies(before contents) map[string][]byte {
	files := map[string][]byte{}
	for name, data := range before {
		if data != nil {
			files[copyName(name)] = data
		}
	}
	return files
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
		if added := newLines(before[name], after[name]); len(added) > 0 {
			j.say(name, "added %s", strings.Join(added, ", "))
		}
	}
	return err
}

func newLines(before, after []byte) []string {
	known := gotool.SplitLines(string(before))
	var added []string
	for _, line := range gotool.SplitLines(string(after)) {
		if !slices.Contains(known, line) {
			added = append(added, strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(line), "// indirect")))
		}
	}
	return added
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
	if j.work != "" || !errors.As(err, &failed) {
		return false
	}
	return strings.Contains(failed.Output, "missing go.sum entry") ||
		strings.Contains(failed.Output, "updates to go.mod needed") ||
		strings.Contains(failed.Output, "updates to go.sum needed")
}

func (j *job) buildFailed(err error) error {
	var failed *gotool.Error
	if !errors.As(err, &failed) {
		return err
	}
	lines := gotool.Lines(failed.Output)
	for i, line := range lines {
		if i == shownLines {
			j.say("", "… %d lines more", len(lines)-i)
			break
		}
		j.say("", "%s", line)
	}
	if cause := unavailable(lines); cause != "" {
		return fmt.Errorf("%s does not build because a dependency can't be had: %s", j.Dir, cause)
	}
	return fmt.Errorf("%s does not build with the fork: %s (does it without? go build ./...)", j.Dir, strings.TrimSpace(gotool.First(lines)))
}

// unavailable returns the line in which the go command reports that it could not
// get a module, or may not use it. That has nothing to do with the fork.
func unavailable(lines []string) string {
	for _, line := range lines {
		for _, sign := range []string{
			": reading ", ": Get ", "dial tcp", "404 Not Found", "410 Gone", "403 Forbidden", "module lookup disabled",
			"unrecognized import path", "unknown revision", "checksum mismatch", "verifying ", "no required module provides",
		} {
			if strings.Contains(line, sign) {
				return strings.TrimSpace(strings.TrimPrefix(line, "go: "))
			}
		}
	}
	return ""
}

// complete notes what the run left, and that it ended.
func (j *job) complete(ctx context.Context, manifest *tree.Manifest) error {
	now, err := j.current()
	if err != nil {
		return err
	}
	for name, saved := range manifest.Saved {
		saved.Written = sumOf(now[name])
		manifest.Saved[name] = saved
	}
	manifest.Complete = true
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return manifest.Save(j.slot.Dir)
}

func (j *job) summary(made *tree.Result) {
	fmt.Fprintf(j.Out, "\ndone: %s now builds with %s %s and this mapper inside.\n", j.mod.Module.Path, tree.Module, made.Version)
	fmt.Fprintf(j.Out, "undo: %s\n", j.command("-undo"))
}
