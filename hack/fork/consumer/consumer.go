// SPDX-License-Identifier: Apache-2.0

// Package consumer puts a patched controller-runtime into somebody's module,
// and takes it out again.
//
// Into writes the tree beside third_party/controller-runtime, and builds as if it was there
// and go.mod replaced controller-runtime with it. Only then it renames the tree, and writes
// go.mod last. So a run that fails, or is killed, has changed nothing that the consumer's
// build uses. The tree's manifest knows what go.mod and go.sum were before.
package consumer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/freshmapper/freshmapper/hack/fork/cli"
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
	at          tree.Place
	now, before contents      // go.mod and go.sum; before is what undoing makes of now
	manifest    tree.Manifest // of the tree; zero: there is none, or it can't be read
	edits       []string      // what somebody changed in the tree
}

func open(ctx context.Context, r Request) (*job, error) {
	m, err := openModule(ctx, r.Dir)
	if err != nil {
		return nil, err
	}
	return &job{Request: r, module: m, at: tree.Place(m.path(place))}, nil
}

// begin opens a module for a run, and finds out what is there.
func begin(ctx context.Context, r Request) (*job, error) {
	j, err := open(ctx, r)
	if err != nil {
		return nil, err
	}
	j.clear()
	if tree.Exists(string(j.at)) {
		j.manifest, j.edits, err = tree.Open(string(j.at))
	}
	switch {
	case errors.Is(err, tree.ErrNotOurs):
		return nil, fmt.Errorf(
			"%s is in the way, it %w: move it away and run -into or, if it was, restore its %s/manifest.json",
			j.show(string(j.at)),
			tree.ErrNotOurs,
			tree.Meta,
		)
	case err != nil && !j.Force:
		return nil, fmt.Errorf("%w (-force gives the tree up)", err)
	}
	return j, j.readFiles(ctx)
}

// clear removes what a run leaves that has not come to its end, and the folder above the
// tree if nothing is in it. Nothing of that is used.
func (j *job) clear() {
	_ = errors.Join(j.at.Clear(), tree.Place(j.path(goMod)).Clear(), tree.Place(j.path(goSum)).Clear())
	above := filepath.Dir(string(j.at))
	if info, err := os.Lstat(above); err == nil && info.IsDir() { // a link was the user's before
		_ = os.Remove(above) // it fails if something is in it
	}
}

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

// foreign returns an error if go.mod replaces controller-runtime with something else.
func (j *job) foreign() error {
	for _, r := range j.mod.Replace {
		if r.Old.Path == tree.Module && r != ourReplace {
			what := "not this tool's: to fork here"
			if tagged.MatchString(r.New.Version) {
				what = "a tagged fork: to have the tree, or stock, instead"
			}
			return fmt.Errorf(
				"%s replaces %s with %s, which is %s, first drop that replace (go mod edit -dropreplace=%s)",
				j.show(j.path(goMod)),
				tree.Module,
				r.New,
				what,
				strings.TrimSuffix(r.Old.Path+"@"+r.Old.Version, "@"),
			)
		}
	}
	return nil
}

func (j *job) edited() error {
	if len(j.edits) > 0 && !j.Force {
		return tree.EditedError(j.show(string(j.at)), j.edits)
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
	version, sibling, err := j.selected(ctx)
	if err != nil {
		return j.orAbsent(ctx, err)
	}
	if sibling != "" {
		j.say(
			"done",
			"nothing to do: the fork in %s serves all modules of the workspace; with GOWORK=off %s does not have it",
			relativeTo(j.dir, sibling),
			j.Dir,
		)
		return nil
	}
	j.say("upstream", "%s %s from the module cache", tree.Module, version)
	files, err := tree.Make(ctx, version, j.before[goSum], j.Ours, false)
	if err != nil {
		return err
	}
	made := tree.NewManifest(version, files)
	if edits, err := made.Edits(string(j.at)); err == nil && len(edits) == 0 && j.mod.forked() &&
		j.manifest.Version == version {
		j.say("done", "nothing to do: %s is up to date; undo: %s", place, j.command("-undo"))
	} else if err := j.install(ctx, files, made); err != nil {
		return err
	}
	return j.advise(ctx, made)
}

// orAbsent returns err, or a better one if the release that go.mod requires is not there.
func (j *job) orAbsent(ctx context.Context, err error) error {
	if _, absent := tree.Folder(ctx, j.mod.required(), j.now[goSum]); errors.Is(absent, tree.ErrAbsent) {
		return absent
	}
	return err
}

// install builds with the tree, puts it in its place, and writes go.mod. If a step before
// the last two fails, or ctx ends, the consumer is as it was.
func (j *job) install(ctx context.Context, files tree.Files, made *tree.Manifest) error {
	want, err := j.prepare(ctx, files)
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	if err != nil {
		j.clear()
		return fmt.Errorf("%w; %s is as it was", err, j.Dir)
	}
	made.Saved = map[string]tree.Saved{}
	for name, data := range j.before {
		saved, known := j.manifest.Saved[name]
		changed := known && (saved.Changed || saved.Before != string(data))
		made.Saved[name] = tree.Saved{Before: string(data), Written: sumOf(want[name]), Changed: changed}
	}
	if err = j.at.Put(made); err == nil {
		err = j.write(want)
	}
	if err != nil {
		return fmt.Errorf("%w; when that is mended, run %s again", err, j.command())
	}
	j.say(goMod, "replace %s => ./%s", tree.Module, place)
	j.tellVendor()
	fmt.Fprintf(
		j.Out,
		"\ndone: %s now uses %s %s with this mapper inside.\n",
		j.mod.Module.Path,
		tree.Module,
		made.Version,
	)
	fmt.Fprintf(j.Out, "undo: %s\n", j.command("-undo"))
	return nil
}

// prepare stages the tree, and returns go.mod and go.sum as they have to be with it.
func (j *job) prepare(ctx context.Context, files tree.Files) (want contents, err error) {
	if err := j.at.Stage(ctx, files); err != nil {
		return nil, err
	}
	j.say("tree", "%s: %d files", place, len(files))
	mod, err := j.editMod(ctx, "-replace="+tree.Module+"=./"+place)
	want = contents{goMod: mod, goSum: j.now[goSum]}
	if err == nil && !j.NoBuild {
		want, err = j.build(ctx, files, want)
	}
	if err == nil {
		err = errors.Join(ctx.Err(), j.unchanged(want))
	}
	return want, err
}

// Undo takes back what Into did.
func Undo(ctx context.Context, r Request) error {
	j, err := begin(ctx, r)
	if err != nil {
		return err
	}
	if !tree.Exists(string(j.at)) && !j.mod.forked() {
		j.say("done", "nothing to undo: %s", cmp.Or(j.foreign(), errors.New("no fork of this tool's in "+j.Dir)))
		return nil
	}
	if err := j.edited(); err != nil {
		return err
	}
	if err = j.write(j.before); err == nil {
		err = j.at.Remove()
	}
	if err != nil {
		return fmt.Errorf("%w; when that is mended, run %s again", err, j.command("-undo"))
	}
	j.clear()
	j.tellUndone()
	j.say("tree", "%s is gone", place)
	j.tellVendor()
	if err := j.tellModules(ctx, true); err != nil {
		return err
	}
	j.tellAdvised()
	// "go get" of a newer controller-runtime adds no sums of it while a folder replaces it.
	if version := j.mod.required(); version != "" &&
		!bytes.Contains(j.before[goSum], []byte(tree.Module+" "+version+" h1:")) {
		j.advice(
			goSum,
			fmt.Sprintf("it has no sum of %s %s; run in %s:", tree.Module, version, quoted(j.Dir)),
			"go mod tidy",
		)
	}
	j.say("done", "the fork is out of %s", j.Dir)
	return nil
}

func (j *job) tellUndone() {
	for _, name := range []string{goMod, goSum} {
		became := "your changes kept; go mod tidy drops what nothing needs now"
		if saved, known := j.manifest.Saved[name]; known && !saved.Changed && saved.Before == string(j.before[name]) {
			became = "as it was"
		}
		j.say(name, "%s", became)
	}
}

const (
	shownLines = 10               // how much of a failed build is printed
	beat       = 10 * time.Second // how often a build shows that it goes on
)

// build builds the consumer with the staged tree and copies of go.mod and go.sum, and
// returns what they are after that. The go command completes them if it has to: a program
// may use so little of controller-runtime that it never needed a module which our mapper
// imports, and a tree of a newer release requires newer modules.
func (j *job) build(ctx context.Context, files tree.Files, with contents) (contents, error) {
	aside := []string{"-overlay=" + j.aside("overlay.json")}
	if j.work == "" {
		aside = append(aside, "-modfile="+j.aside(goMod))
	}
	if err := j.setAside(files, with); err != nil {
		return nil, fmt.Errorf("copy go.mod for the build: %w", err)
	}
	j.say("build", "go build ./... (the first one compiles all of controller-runtime; -nobuild leaves it out)")
	start := time.Now()
	err := j.goBuild(ctx, append(aside, "-mod=readonly"))
	if j.lacksSums(err) {
		j.say("build", "go.mod or go.sum lacks what the tree needs: go build -mod=mod ./... adds it")
		err = j.goBuild(ctx, append(aside, "-mod=mod"))
	}
	if err != nil {
		return nil, j.buildFailed(err)
	}
	j.say("build", "ok in %s", time.Since(start).Round(100*time.Millisecond))
	after := contents{}
	for _, name := range []string{goSum, goMod} {
		if after[name], err = os.ReadFile(j.aside(name)); err != nil {
			return nil, fmt.Errorf("read what the build made of %s: %w", name, err)
		}
		if added := len(newLines(with[name], after[name])); added > 0 {
			j.say("moved", "%s: %d lines", name, added)
		}
	}
	return after, nil
}

// aside is a file beside the staged tree.
func (j *job) aside(name string) string { return filepath.Join(j.at.Scratch(), name) }

// setAside writes the copies, and a file that makes the go command see the staged tree in
// its place: so it compiles nothing again when the tree is there. In a workspace no other
// file may be named as go.mod, and there the go command sees the copy in its place, too.
func (j *job) setAside(files tree.Files, with contents) error {
	seen := map[string]string{}
	old, _ := tree.Read(os.DirFS(string(j.at))) // there may be none
	for name := range old {
		seen[j.path(path.Join(place, name))] = "" // is not there
	}
	for name := range files {
		seen[j.path(path.Join(place, name))] = filepath.Join(j.at.Staged(), filepath.FromSlash(name))
	}
	if j.work != "" {
		seen[j.path(goMod)] = j.aside(goMod)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": seen})
	for name, data := range map[string][]byte{"overlay.json": overlay, goMod: with[goMod], goSum: with[goSum]} {
		if err == nil {
			err = os.WriteFile(j.aside(name), data, 0o600)
		}
	}
	return err
}

// goBuild compiles everything and keeps nothing: without -o a module with one
// command would find a binary in its folder.
func (j *job) goBuild(ctx context.Context, flags []string) error {
	// -v names packages; -x of GOFLAGS would be taken for the reason of a failure.
	args := slices.Concat(
		[]string{"build", "-v", "-x=false", "-buildvcs=false", "-o", os.DevNull},
		flags,
		[]string{"./..."},
	)
	_, err := cli.Go(ctx, j.dir, j.env, &progress{say: j.say, began: time.Now(), said: time.Now()}, args...)
	return err
}

// progress says now and then that a build goes on. "go build -v" writes the name of each
// package that it compiles, and what it downloads.
type progress struct {
	say         func(what, format string, args ...any)
	began, said time.Time
}

func (p *progress) Write(written []byte) (int, error) {
	if time.Since(p.said) >= beat {
		p.said = time.Now()
		line, _, _ := strings.Cut(strings.TrimPrefix(string(written), "go: "), "\n")
		p.say("build", "%s: %s", time.Since(p.began).Round(time.Second), line)
	}
	return len(written), nil
}

// lacksSums reports whether -mod=mod would help. A workspace doesn't allow it,
// and adds sums to go.work.sum by itself.
func (j *job) lacksSums(err error) bool {
	var failed *cli.Error
	return j.work == "" && errors.As(err, &failed) &&
		containsAny(failed.Output, "missing go.sum entry", "updates to go.mod needed", "updates to go.sum needed")
}

func containsAny(text string, signs ...string) bool {
	return slices.ContainsFunc(signs, func(sign string) bool { return strings.Contains(text, sign) })
}

func (j *job) buildFailed(err error) error {
	var failed *cli.Error
	if !errors.As(err, &failed) {
		return err
	}
	lines := append(cli.Lines(failed.Output), "no reason given")
	for _, line := range lines[:min(len(lines)-1, shownLines)] {
		j.say("", "%s", line)
	}
	if at := slices.IndexFunc(lines, unavailable); at >= 0 {
		cause := strings.TrimSpace(strings.TrimPrefix(lines[at], "go: "))
		return fmt.Errorf("%s does not build because a dependency is not available: %s", j.Dir, cause)
	}
	return fmt.Errorf(
		"%s does not build with the fork: %s (does it without? go build ./...)",
		j.Dir,
		strings.TrimSpace(lines[0]),
	)
}

// unavailable reports whether this line of the go command's output is about a module that it could not
// get, or may not use. That has nothing to do with the fork.
func unavailable(line string) bool {
	return containsAny(
		line,
		": reading ",
		": Get ",
		"dial tcp",
		"404 Not Found",
		"410 Gone",
		"403 Forbidden",
		"module lookup disabled",
		"unrecognized import path",
		"unknown revision",
		"checksum mismatch",
		"verifying ",
		"no required module provides",
	)
}
