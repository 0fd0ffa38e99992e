// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/freshmapper/freshmapper/hack/fork/gotool"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

const (
	shownLines = 10               // how much of a failed build is printed
	beat       = 10 * time.Second // how often a build shows that it goes on
)

// build builds the consumer with copies of go.mod and go.sum, and returns what they are
// after that. The go command completes them if it has to: a program may use so little of
// controller-runtime that it never needed a module which our mapper imports, and a tree of
// a newer release requires newer modules.
func (j *job) build(ctx context.Context, with contents) (contents, error) {
	aside, err := os.MkdirTemp("", "freshmapper-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the build: %w", err)
	}
	defer os.RemoveAll(aside)
	env, flags, err := j.aside(ctx, aside, with)
	if err != nil {
		return nil, fmt.Errorf("copy go.mod for the build: %w", err)
	}
	j.say("build", "go build ./... (the first one compiles all of controller-runtime; -nobuild leaves it out)")
	start := time.Now()
	err = j.goBuild(ctx, start, env, append(flags, "-mod=readonly"))
	if j.lacksSums(err) {
		j.say("build", "go.mod or go.sum lacks what the tree needs: go build -mod=mod ./... adds it")
		err = j.goBuild(ctx, start, env, append(flags, "-mod=mod"))
	}
	if err != nil {
		return nil, j.buildFailed(err)
	}
	j.say("build", "ok in %s", time.Since(start).Round(100*time.Millisecond))
	after := contents{goMod: with[goMod], goSum: with[goSum]}
	for name, was := range with {
		data, err := os.ReadFile(filepath.Join(aside, name))
		if err == nil && !bytes.Equal(data, was) {
			after[name] = linesLike(was, data)
		}
	}
	if said := moved(with, after); said != "" {
		j.say("moved", "%s", said)
	}
	return after, nil
}

// aside writes what the go command takes in place of the consumer's own files: go.mod and
// go.sum or, in a workspace, where that can't be, go.work with the replace in it.
func (j *job) aside(ctx context.Context, dir string, with contents) (env, flags []string, err error) {
	files := with
	if j.work == "" {
		env, flags = j.env, []string{"-modfile=" + filepath.Join(dir, goMod)}
	} else {
		args := []string{"work", "edit", "-print", "-replace=" + tree.Module + "=" + j.slot.Dir}
		for i, folder := range j.uses.Use {
			args = append(args, "-dropuse="+folder.DiskPath, "-use="+j.used[i])
		}
		for _, r := range j.uses.Replace {
			if r.New.Version == "" {
				args = append(args, "-replace="+r.Old.flag()+"="+below(filepath.Dir(j.work), r.New.Path))
			}
		}
		work, err := gotool.Run(ctx, j.dir, nil, append(args, j.work)...)
		if err != nil {
			return nil, nil, err
		}
		sums, _ := os.ReadFile(j.work + ".sum") // there may be none
		env, files = []string{"GOWORK=" + filepath.Join(dir, "go.work")}, contents{"go.work": work, "go.work.sum": sums}
	}
	for name, data := range files {
		if data != nil && err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
	}
	return env, flags, err
}

// goBuild compiles everything and keeps nothing: without -o a module with one
// command would find a binary in its folder. It says now and then that it goes on.
func (j *job) goBuild(ctx context.Context, start time.Time, env, flags []string) error {
	heard, ended := &progress{}, make(chan error, 1)
	go func() {
		// -v names packages; -x of GOFLAGS would be taken for the reason of a failure.
		args := append([]string{"build", "-v", "-x=false", "-buildvcs=false", "-o", os.DevNull}, flags...)
		ended <- gotool.Watch(ctx, j.dir, env, heard, append(args, "./...")...)
	}()
	beats := time.NewTicker(beat)
	defer beats.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-beats.C:
			j.say("build", "%s: %s", time.Since(start).Round(time.Second), heard)
		}
	}
}

// progress is what "go build -v" says: the name of each package that it compiles, and what
// it downloads.
type progress struct {
	mu   sync.Mutex
	said []byte
}

func (p *progress) Write(said []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = append(p.said, said...)
	return len(said), nil
}

func (p *progress) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	doing, count := "", 0
	for _, line := range strings.Split(string(p.said[:bytes.LastIndexByte(p.said, '\n')+1]), "\n") {
		if download, found := strings.CutPrefix(line, "go: downloading "); found {
			doing = "downloading " + download
		} else if line != "" && !strings.ContainsAny(line, " \t") {
			count++
			doing = "compiling " + line
		}
	}
	if doing == "" {
		return "reading packages, linking"
	}
	return fmt.Sprintf("%s (%d packages so far)", doing, count)
}

// moved says in a line what the build made of go.mod and go.sum. Of requirements it names
// one that moved, those of Kubernetes before all others and as one, and counts the others:
// "k8s.io 0.36 → 0.37 and 12 more".
func moved(with, after contents) string {
	var said, moves []string
	if n := len(newLines(with[goSum], after[goSum])); n > 0 {
		said = append(said, fmt.Sprintf("go.sum: %d lines", n))
	}
	before := map[string]string{}
	for _, r := range requirement.FindAllSubmatch(unixLines(with[goMod]), -1) {
		before[string(r[1])] = string(r[2])
	}
	for _, r := range requirement.FindAllSubmatch(unixLines(after[goMod]), -1) {
		path, version := string(r[1]), string(r[2])
		switch was := before[path]; {
		case version == was:
		case was == "":
			moves = append(moves, path+" "+version)
		case slices.Contains([]string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"}, path):
			move := "k8s.io " + minor(was) + " → " + minor(version)
			moves = slices.Insert(slices.DeleteFunc(moves, func(other string) bool { return other == move }), 0, move)
		default:
			moves = append(moves, path+" "+was+" → "+version)
		}
	}
	if len(moves) > 0 {
		said = append(said, "go.mod: "+moves[0])
	}
	if len(moves) > 1 {
		said[len(said)-1] += fmt.Sprintf(" and %d more", len(moves)-1)
	}
	return strings.Join(said, "; ")
}

// requirement matches a line of a go.mod that requires a module.
var requirement = regexp.MustCompile(`(?m)^(?:require)?[ \t]*(\S+)[ \t]+(v\S+)[ \t]*(?://.*)?$`)

// newLines are the lines that a file did not have before.
func newLines(before, now []byte) []string {
	known := append(splitLines(before), "")
	return slices.DeleteFunc(splitLines(now), func(line string) bool { return slices.Contains(known, line) })
}

// minor is "0.37" of "v0.37.1".
func minor(version string) string {
	return strings.Join(strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)[:2], ".")
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
