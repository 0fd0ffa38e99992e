// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/gotool"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// contents are go.mod and go.sum, by name. Nil: the file is not there.
type contents map[string][]byte

func (j *job) current() (contents, error) {
	now := contents{}
	for _, name := range []string{goMod, goSum} {
		data, err := os.ReadFile(j.path(name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read %s: %w", j.show(name), err)
		}
		now[name] = data
	}
	return now, nil
}

// write changes those files that are to change, go.mod last. On failure they are as they
// were.
func (j *job) write(want contents) error {
	found, err := j.current()
	if err != nil {
		return err
	}
	for _, name := range []string{goSum, goMod} {
		if !same(j.now[name], want[name]) && !same(j.now[name], found[name]) {
			return fmt.Errorf("%s was changed by another program meanwhile: run this again", j.show(name))
		}
	}
	for _, name := range []string{goSum, goMod} {
		if same(j.now[name], want[name]) {
			continue
		}
		if err := replaceFile(j.path(name), want[name]); err != nil {
			if name == goMod && !same(j.now[goSum], want[goSum]) {
				err = errors.Join(err, replaceFile(j.path(goSum), j.now[goSum]))
			}
			return fmt.Errorf("write %s: %w", j.show(name), err)
		}
	}
	return nil
}

func same(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

func tempName(name string) string {
	return filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+".freshmapper-tmp")
}

// replaceFile writes a file through a rename, keeping its mode and following links, or
// removes it if data is nil.
func replaceFile(name string, data []byte) error {
	for to, err := os.Readlink(name); err == nil; to, err = os.Readlink(name) {
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(name), to)
		}
		name = to
	}
	if data == nil {
		return os.Remove(name)
	}
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(name); err == nil {
		mode = info.Mode().Perm()
	}
	err := os.WriteFile(tempName(name), data, mode)
	if err == nil {
		err = os.Chmod(tempName(name), mode) // the umask may have taken some of it
	}
	if err == nil {
		err = os.Rename(tempName(name), name)
	}
	return err
}

// readFiles reads go.mod and go.sum, and finds out what undoing makes of them: byte for byte
// what they were or, where the user changed one since, that file without what the tool put
// there.
func (j *job) readFiles(ctx context.Context) (err error) {
	j.now, err = j.current()
	if j.before = j.now; err != nil || !j.hasTree && !j.mod.forked() {
		return err
	}
	j.before = contents{}
	for name, now := range j.now {
		was, known := j.saved(name)
		j.before[name] = now
		switch {
		case known && (sumOf(now) == sumOf(was) || sumOf(now) == j.manifest.Saved[name].Written):
			j.before[name] = was
		case name == goSum:
			j.before[name] = withSums(now, was)
		case j.mod.forked():
			j.before[name], err = editMod(ctx, now, "-dropreplace="+tree.Module)
		}
	}
	return err
}

// saved is a file as it was before the first run.
func (j *job) saved(name string) (was []byte, known bool) {
	if j.manifest == nil {
		return nil, false
	}
	saved, known := j.manifest.Saved[name]
	if saved.Before != nil {
		was = []byte(*saved.Before)
	}
	return was, known
}

func sumOf(data []byte) string {
	if data == nil {
		return ""
	}
	return tree.Digest(unixLines(data)) // a checkout may have changed the line ends
}

func unixLines(data []byte) []byte { return bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")) }

// splitLines splits a file into its lines; the last one is empty.
func splitLines(data []byte) []string { return strings.SplitAfter(string(unixLines(data)), "\n") }

// linesLike gives data the line ends that a file had.
func linesLike(was, data []byte) []byte {
	if bytes.Contains(was, []byte("\r\n")) {
		return bytes.ReplaceAll(unixLines(data), []byte("\n"), []byte("\r\n"))
	}
	return data
}

// editMod runs "go mod edit" on the text of a go.mod.
func editMod(ctx context.Context, mod []byte, flag string) ([]byte, error) {
	edited, err := gotool.Elsewhere(ctx, map[string][]byte{goMod: mod}, "mod", "edit", "-print", flag)
	return linesLike(mod, edited), err
}

// withSums puts controller-runtime's lines of an earlier go.sum back into one
// that lost them: "go mod tidy" drops the sums of a module that a folder
// replaces, and without them the module would not build after an undo.
func withSums(now, was []byte) []byte {
	lost, lines := false, splitLines(now)
	for _, line := range newLines(now, was) {
		if strings.HasPrefix(line, tree.Module+" ") {
			at := slices.IndexFunc(lines, func(other string) bool { return other > line || other == "" })
			lost, lines = true, slices.Insert(lines, at, line)
		}
	}
	if !lost {
		return now
	}
	return linesLike(now, []byte(strings.Join(lines, "")))
}
