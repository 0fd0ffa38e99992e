// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/cli"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// contents are go.mod and go.sum, by name. One that is not there is empty.
type contents map[string][]byte

func (j *job) current() (contents, error) {
	now := contents{}
	for _, name := range []string{goMod, goSum} {
		data, err := os.ReadFile(j.path(name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read %s: %w", j.show(j.path(name)), err)
		}
		now[name] = data
	}
	return now, nil
}

// unchanged returns an error if a file that is to change was changed by somebody else since
// it was read.
func (j *job) unchanged(want contents) error {
	found, err := j.current()
	for name, now := range j.now {
		if err == nil && !bytes.Equal(now, want[name]) && !bytes.Equal(now, found[name]) {
			err = fmt.Errorf("%s was changed by another program meanwhile: run this again", j.show(j.path(name)))
		}
	}
	return err
}

// write changes those files that are to change, go.mod last.
func (j *job) write(want contents) (err error) {
	for _, name := range []string{goSum, goMod} {
		switch data := want[name]; {
		case bytes.Equal(data, j.now[name]):
		case len(data) == 0:
			err = os.Remove(j.path(name))
		default:
			err = replaceFile(j.path(name), data)
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", j.show(j.path(name)), err)
		}
	}
	return nil
}

// replaceFile replaces a file in one step. It keeps its mode, and what leads to it if it is a link.
func replaceFile(name string, data []byte) error {
	if to, err := filepath.EvalSymlinks(name); err == nil {
		name = to
	}
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(name); err == nil {
		mode = info.Mode().Perm()
	}
	aside := tree.Place(name).Scratch()
	err := os.WriteFile(aside, data, mode)
	if err == nil {
		err = os.Chmod(aside, mode) // whatever the umask is
	}
	if err == nil {
		err = os.Rename(aside, name)
	}
	return errors.Join(err, os.RemoveAll(aside))
}

// readFiles reads go.mod and go.sum, and finds out what undoing makes of them: byte for byte
// what they were or, where the user changed one since, that file without what the tool put
// there.
func (j *job) readFiles(ctx context.Context) (err error) {
	j.before = contents{}
	if j.now, err = j.current(); err != nil {
		return err
	}
	for name, now := range j.now {
		saved, known := j.manifest.Saved[name]
		j.before[name] = now
		switch {
		case known && slices.Contains([]string{saved.Written, sumOf([]byte(saved.Before))}, sumOf(now)):
			j.before[name] = []byte(saved.Before)
		case name == goSum:
			j.before[name] = withSums(now, []byte(saved.Before))
		case j.mod.forked():
			j.before[name], err = j.editMod(ctx, "-dropreplace="+tree.Module)
		}
	}
	return err
}

// editMod is what "go mod edit" makes of go.mod.
func (j *job) editMod(ctx context.Context, flag string) ([]byte, error) {
	return cli.Go(ctx, j.dir, j.env, io.Discard, "mod", "edit", "-print", flag)
}

// sumOf is the same whatever line ends a checkout gave the file.
func sumOf(data []byte) string { return tree.Digest(unixLines(data)) }

func unixLines(data []byte) []byte { return bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")) }

// splitLines splits a file into its lines; the last one is empty.
func splitLines(data []byte) []string { return strings.SplitAfter(string(unixLines(data)), "\n") }

// newLines are the lines that a file did not have before.
func newLines(before, now []byte) []string {
	known := append(splitLines(before), "")
	return slices.DeleteFunc(splitLines(now), func(line string) bool { return slices.Contains(known, line) })
}

// withSums puts controller-runtime's lines of an earlier go.sum back into one
// that lost them: "go mod tidy" drops the sums of a module that a folder
// replaces, and without them the module would not build after an undo.
func withSums(now, was []byte) []byte {
	lost := slices.DeleteFunc(newLines(now, was), func(line string) bool { return !strings.HasPrefix(line, tree.Module+" ") })
	if len(lost) == 0 {
		return now
	}
	lines := splitLines(now)
	for _, line := range lost {
		at := slices.IndexFunc(lines, func(other string) bool { return other > line || other == "" })
		lines = slices.Insert(lines, at, line)
	}
	return []byte(strings.Join(lines, ""))
}
