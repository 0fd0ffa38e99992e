// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/freshmapper/freshmapper/hack/fork/cli"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

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
	args := slices.Concat([]string{"build", "-v", "-x=false", "-buildvcs=false", "-o", os.DevNull}, flags, []string{"./..."})
	_, err := cli.Go(ctx, j.dir, j.env, &progress{say: j.say, began: time.Now(), said: time.Now()}, args...)
	return err
}

// progress says now and then that a build goes on. "go build -v" writes the name of each
// package that it compiles, and what it downloads.
type progress struct {
	say         func(what, format string, args ...any)
	began, said time.Time
	packages    int
}

func (p *progress) Write(written []byte) (int, error) {
	for _, line := range strings.Split(strings.TrimSpace(string(written)), "\n") {
		doing, download := strings.CutPrefix(line, "go: ")
		if !download && strings.ContainsAny(line, " \t") {
			continue // what a compiler says
		}
		if !download {
			doing = "compiling " + line
			p.packages++
		}
		if now := time.Now(); now.Sub(p.said) >= beat {
			p.said = now
			p.say("build", "%s: %s (%d packages so far)", now.Sub(p.began).Round(time.Second), doing, p.packages)
		}
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
		return fmt.Errorf("%s does not build because a dependency can't be had: %s", j.Dir, cause)
	}
	return fmt.Errorf("%s does not build with the fork: %s (does it without? go build ./...)", j.Dir, strings.TrimSpace(lines[0]))
}

// unavailable reports whether in this line the go command says that it could not
// get a module, or may not use it. That has nothing to do with the fork.
func unavailable(line string) bool {
	return containsAny(line,
		": reading ", ": Get ", "dial tcp", "404 Not Found", "410 Gone", "403 Forbidden", "module lookup disabled",
		"unrecognized import path", "unknown revision", "checksum mismatch", "verifying ", "no required module provides")
}
