// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/freshmapper/freshmapper/hack/fork/gotool"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

const (
	shownLines = 10               // how much of a failed build is printed
	beat       = 10 * time.Second // how often a build says that it goes on
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
	return after, j.tellMoved(ctx, with, after)
}

// aside writes what the go command takes in place of the consumer's own files: go.mod and
// go.sum or, in a workspace, where that can't be, go.work with the replace in it.
func (j *job) aside(ctx context.Context, dir string, with contents) (env, flags []string, err error) {
	if j.work == "" {
		for name, data := range with {
			if data != nil && err == nil {
				err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
			}
		}
		return j.env, []string{"-modfile=" + filepath.Join(dir, goMod)}, err
	}
	args := []string{"work", "edit", "-print", "-replace=" + tree.Module + "=" + j.slot.Dir}
	for i, folder := range j.uses.Use {
		args = append(args, "-dropuse="+folder.DiskPath, "-use="+j.used[i])
	}
	for _, r := range j.uses.Replace {
		if r.New.Version == "" && !filepath.IsAbs(r.New.Path) {
			args = append(args, "-replace="+r.Old.flag()+"="+filepath.Join(filepath.Dir(j.work), filepath.FromSlash(r.New.Path)))
		}
	}
	work, err := gotool.Run(ctx, j.dir, nil, append(args, j.work)...)
	sums, _ := os.ReadFile(j.work + ".sum") // there may be none
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(dir, "go.work"), work, 0o600), os.WriteFile(filepath.Join(dir, "go.work.sum"), sums, 0o600))
	}
	return []string{"GOWORK=" + filepath.Join(dir, "go.work")}, nil, err
}

// goBuild compiles everything and keeps nothing: without -o a module with one
// command would find a binary in its folder.
func (j *job) goBuild(ctx context.Context, start time.Time, env, flags []string) error {
	w, done, said := &watched{}, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(said)
		for {
			select {
			case <-time.After(beat):
				j.say("build", "%s: %s", time.Since(start).Round(time.Second), w)
			case <-done:
				return
			}
		}
	}()
	// -v names packages; -x of GOFLAGS would be taken for the reason of a failure.
	args := append([]string{"go", "build", "-v", "-x=false", "-buildvcs=false", "-o", os.DevNull}, flags...)
	err := gotool.Watch(ctx, j.dir, env, w, append(args, "./...")...)
	close(done)
	<-said
	return err
}

// watched hears what "go build -v" writes: the name of each package that it compiles, and
// what it downloads.
type watched struct {
	mu    sync.Mutex
	count int
	doing string
	part  []byte // of a line
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := bytes.Split(append(w.part, p...), []byte("\n"))
	w.part = lines[len(lines)-1]
	for _, line := range lines[:len(lines)-1] {
		text := string(bytes.TrimSpace(line))
		if download, found := strings.CutPrefix(text, "go: downloading "); found {
			w.doing = "downloading " + download
		} else if text != "" && !strings.ContainsAny(text, " \t") {
			w.count++
			w.doing = "compiling " + text
		}
	}
	return len(p), nil
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.doing == "" {
		return "reading packages, linking"
	}
	return fmt.Sprintf("%s (%d packages so far)", w.doing, w.count)
}

// tellMoved says in a line what the build made of go.mod and go.sum.
func (j *job) tellMoved(ctx context.Context, with, after contents) error {
	var said []string
	known := gotool.SplitLines(string(unixLines(with[goSum])))
	added := slices.DeleteFunc(gotool.SplitLines(string(unixLines(after[goSum]))), func(line string) bool { return slices.Contains(known, line) })
	if len(added) > 0 {
		said = append(said, fmt.Sprintf("go.sum: %d lines", len(added)))
	}
	before, err := requirements(ctx, with[goMod])
	if err != nil {
		return err
	}
	now, err := requirements(ctx, after[goMod])
	if err != nil {
		return err
	}
	if moved := movedFrom(before, now); moved != "" {
		said = append(said, "go.mod: "+moved)
	}
	if len(said) > 0 {
		j.say("moved", "%s", strings.Join(said, "; "))
	}
	return nil
}

func requirements(ctx context.Context, mod []byte) ([]modVersion, error) {
	var file modFile
	text, err := gotool.Elsewhere(ctx, map[string][]byte{goMod: mod}, "mod", "edit", "-json")
	if err == nil {
		err = json.Unmarshal(text, &file)
	}
	return file.Require, err
}

// movedFrom names one requirement that moved, those of Kubernetes before all others and as
// one, and counts the others: "k8s.io 0.36 → 0.37 and 12 more". It returns "" if none moved.
func movedFrom(before, now []modVersion) string {
	var moves []string
	for _, m := range now {
		move := m.String()
		at := slices.IndexFunc(before, func(b modVersion) bool { return b.Path == m.Path })
		switch {
		case at < 0:
		case before[at] == m:
			continue
		case slices.Contains([]string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"}, m.Path):
			move = "k8s.io " + minor(before[at].Version) + " → " + minor(m.Version)
		default:
			move = m.Path + " " + before[at].Version + " → " + m.Version
		}
		if !slices.Contains(moves, move) {
			moves = append(moves, move)
		}
	}
	if at := slices.IndexFunc(moves, func(move string) bool { return strings.HasPrefix(move, "k8s.io ") }); at > 0 {
		moves[0], moves[at] = moves[at], moves[0]
	}
	switch len(moves) {
	case 0:
		return ""
	case 1:
		return moves[0]
	}
	return fmt.Sprintf("%s and %d more", moves[0], len(moves)-1)
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
