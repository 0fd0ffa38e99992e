// SPDX-License-Identifier: Apache-2.0

// Package consumer puts a patched controller-runtime into somebody's module,
// and takes it out again.
//
// Into writes third_party/controller-runtime and a replace directive, and
// builds; whatever fails on the way, a signal included, is rolled back. The
// order makes a killed run recognizable: the tree's manifest says "complete"
// only when all is done, and holds copies of go.mod and go.sum from before they
// were touched.
package consumer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// place is where the tree goes, relative to the consumer.
const place = "third_party/controller-runtime"

// Request is what to do to which module.
type Request struct {
	Dir   string    // the folder of its go.mod
	Ours  fs.FS     // apiutil and internal; not needed to undo
	Force bool      // give up hand edits, clear away an interrupted run
	Self  string    // the command the user started, for the hints
	Out   io.Writer // progress
}

// job is one run.
type job struct {
	Request
	*module
	slot tree.Slot
}

func open(ctx context.Context, r Request) (*job, error) {
	m, err := openModule(ctx, r.Dir)
	if err != nil {
		return nil, err
	}
	return &job{Request: r, module: m, slot: tree.Slot{Dir: m.path(place)}}, nil
}

// alone opens a module for a run while no other run is at work in it.
func alone(ctx context.Context, r Request, run func(*job) error) error {
	unlock, err := tree.Lock(r.Dir)
	if err != nil {
		return err
	}
	defer unlock()
	j, err := open(ctx, r)
	if err != nil {
		return err
	}
	return run(j)
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

// Into forks controller-runtime into r.Dir. Run again, it updates the tree if
// the sources or the version have changed since, and else changes nothing.
func Into(ctx context.Context, r Request) error {
	return alone(ctx, r, func(j *job) error {
		s, err := j.ready(ctx)
		if err != nil {
			return err
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
		return j.update(ctx, s, version)
	})
}

// update makes the tree, in memory, and installs it unless it is there already.
func (j *job) update(ctx context.Context, s *state, version string) error {
	j.say("upstream", "%s %s from the module cache", tree.Module, version)
	before, err := j.baseline(ctx, s)
	if err != nil {
		return err
	}
	made, err := tree.Make(ctx, version, before[goSum], j.Ours, false)
	if err != nil {
		return err
	}
	if s.healthy() && s.manifest.Describes(made) {
		j.say("done", "nothing to do: %s is up to date; undo: %s", place, j.command("-undo"))
	} else if err := j.install(ctx, made, before); err != nil {
		return err
	}
	return j.advise(ctx)
}

// ready looks at what is there and clears away an interrupted run if it may.
func (j *job) ready(ctx context.Context) (*state, error) {
	if err := j.requires(); err != nil {
		return nil, err
	}
	s, err := j.look()
	if err != nil {
		return nil, err
	}
	switch {
	case s.foreign != "":
		return nil, fmt.Errorf("%s replaces %s with %s, which is not this tool's: drop that replace first (go mod edit %s)",
			j.show(goMod), tree.Module, s.foreign, s.dropping)
	case s.interrupted != "" && !j.Force:
		return nil, fmt.Errorf("an earlier run in %s was interrupted (%s): run %s, or use -force to start over",
			j.Dir, s.interrupted, j.command("-undo"))
	case len(s.edits) > 0 && !j.Force:
		return nil, tree.EditedError(j.show(place), s.edits)
	case s.interrupted == "":
		return s, nil
	}
	j.say("force", "clearing away an interrupted run (%s)", s.interrupted)
	if err := j.undo(ctx, s); err != nil {
		return nil, err
	}
	return j.look()
}

// Undo takes back what Into did, a run that was killed half way included.
func Undo(ctx context.Context, r Request) error {
	return alone(ctx, r, func(j *job) error { return j.takeOut(ctx) })
}

func (j *job) takeOut(ctx context.Context) error {
	s, err := j.look()
	if err != nil {
		return err
	}
	if !s.tree && !s.replaced && s.interrupted == "" {
		j.say("done", "nothing to undo: no fork of this tool's in %s", j.Dir)
		return nil
	}
	if len(s.edits) > 0 && !j.Force {
		return tree.EditedError(j.show(place), s.edits)
	}
	if err := j.undo(ctx, s); err != nil {
		return fmt.Errorf("%w; when that is mended, run %s again", err, j.command("-undo"))
	}
	if err := j.tellMissingSum(); err != nil {
		return err
	}
	if tree.Exists(j.path("vendor")) {
		j.say("vendor", "vendor/ may still hold the fork: run go mod vendor")
	}
	if err := j.tellModules(ctx, true); err != nil {
		return err
	}
	j.say("done", "the fork is out of %s", j.Dir)
	return nil
}

// undo puts the consumer's files back, and removes the tree.
func (j *job) undo(ctx context.Context, s *state) error {
	before, err := j.baseline(ctx, s)
	if err != nil {
		return err
	}
	if err := j.restore(before); err != nil {
		return err
	}
	for _, name := range j.tracked() {
		was, known := s.was[name]
		switch {
		case known && bytes.Equal(was, before[name]):
			j.say(name, "as it was")
		case name == goMod:
			j.say(name, "your changes kept, the replace line dropped; go mod tidy drops what nothing needs now")
		default:
			j.say(name, "your changes kept")
		}
	}
	if err := j.removeTree(); err != nil {
		return err
	}
	return j.reload(ctx)
}

// removeTree removes the tree, and third_party with it if nothing else is in it.
func (j *job) removeTree() error {
	if err := j.slot.Remove(); err != nil {
		return err
	}
	above := filepath.Dir(j.slot.Dir)
	if info, err := os.Lstat(above); err == nil && info.IsDir() { // a link was the user's before
		os.Remove(above) //nolint:errcheck // It fails if something is in it. An empty folder does no harm.
	}
	j.say("tree", "%s is gone", place)
	return nil
}
