// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/gotool"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// contents are the consumer's files that a run may change, by path relative to
// the consumer. Nil: the file is not there.
type contents map[string][]byte

// tracked names them. The order is the one to write them in: go.mod last,
// because its replace directive is what makes the fork take effect.
func (j *job) tracked() []string {
	names := []string{goSum, goMod}
	if j.work != "" { // in a workspace the go command adds missing sums here
		names = slices.Insert(names, 0, j.relative(filepath.Join(filepath.Dir(j.work), "go.work.sum")))
	}
	return names
}

func (j *job) current() (contents, error) {
	now := contents{}
	for _, name := range j.tracked() {
		data, err := os.ReadFile(j.path(name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read %s: %w", j.show(name), err)
		}
		now[name] = data
	}
	return now, nil
}

// restore writes those files that are not so already.
func (j *job) restore(want contents) error {
	for _, name := range j.tracked() {
		if err := os.RemoveAll(tempName(j.path(name))); err != nil {
			return fmt.Errorf("remove a leftover of an interrupted run: %w", err)
		}
		if err := replaceFile(j.path(name), want[name]); err != nil {
			return fmt.Errorf("write %s: %w", j.show(name), err)
		}
	}
	return nil
}

func tempName(name string) string {
	return filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+".freshmapper-tmp")
}

// replaceFile writes name through a rename, keeping its mode and following a
// link, or removes it if data is nil. A file that has the data is not touched.
func replaceFile(name string, data []byte) error {
	if real, err := filepath.EvalSymlinks(name); err == nil {
		name = real
	}
	now, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) && data == nil {
		return nil
	}
	if data == nil {
		return os.Remove(name)
	}
	if err == nil && bytes.Equal(now, data) {
		return nil
	}
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(name); err == nil {
		mode = info.Mode().Perm()
	}
	if err := os.WriteFile(tempName(name), data, mode); err != nil {
		return err
	}
	if err := os.Chmod(tempName(name), mode); err != nil { // the umask may have taken some of it
		return err
	}
	return os.Rename(tempName(name), name)
}

// baseline is what undoing would make of the consumer's files: byte for byte
// what they were, or, where the user changed one since, that file without what
// the tool put there. Without a fork it is what they are.
func (j *job) baseline(ctx context.Context, s *state) (contents, error) {
	now, err := j.current()
	if err != nil || (!s.tree && !s.replaced) {
		return now, err
	}
	before := contents{}
	mod, touched, err := j.modBefore(ctx, s, now[goMod])
	if err != nil {
		return nil, err
	}
	before[goMod] = mod
	for _, name := range j.tracked() {
		if name == goMod {
			continue
		}
		if before[name], err = j.sumBefore(s, name, now[name], touched); err != nil {
			return nil, err
		}
	}
	return before, nil
}

// modBefore is baseline for go.mod. touched: the user changed it since.
func (j *job) modBefore(ctx context.Context, s *state, now []byte) (before []byte, touched bool, err error) {
	was, known, err := j.saved(s, goMod)
	if err != nil {
		return nil, false, err
	}
	if known && j.unchanged(s, goMod, now, was) {
		return was, false, nil
	}
	if !s.replaced {
		return now, true, nil
	}
	before, err = editMod(ctx, now, "-dropreplace="+tree.Module)
	return before, true, err
}

// sumBefore is baseline for go.sum and go.work.sum.
func (j *job) sumBefore(s *state, name string, now []byte, touched bool) ([]byte, error) {
	was, known, err := j.saved(s, name)
	if err != nil {
		return nil, err
	}
	if known && j.unchanged(s, name, now, was) {
		return was, nil
	}
	if known && !touched && !s.manifest.Complete {
		return was, nil // the difference is what an interrupted build added
	}
	return withSums(now, was), nil
}

// unchanged: the user has left the file as the tool did, or has put it back.
func (j *job) unchanged(s *state, name string, now, was []byte) bool {
	return bytes.Equal(now, was) || sumOf(now) == s.manifest.Saved[name].Written
}

// saved is a file as it was before the first run, not known if the copy is missing: a
// .gitignore may have kept it out of the repository.
func (j *job) saved(s *state, name string) (data []byte, known bool, err error) {
	if s.manifest == nil {
		return nil, false, nil
	}
	saved, known := s.manifest.Saved[name]
	if !known {
		return nil, false, nil
	}
	data, err = j.slot.ReadCopy(saved)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return data, err == nil, err
}

func sumOf(data []byte) string {
	if data == nil {
		return ""
	}
	return tree.Digest(data)
}

// tellMissingSum names what keeps the module from building without the fork: "go get"
// of a newer controller-runtime adds no sums of it while a folder replaces it.
func (j *job) tellMissingSum(ctx context.Context) error {
	if err := j.reload(ctx); err != nil {
		return err
	}
	now, err := j.current()
	if err != nil {
		return err
	}
	for _, r := range j.mod.Require {
		if r.Path == tree.Module && !bytes.Contains(now[goSum], []byte(r.Path+" "+r.Version+" h1:")) {
			j.say(goSum, "note: it has no sum of %s %s, go mod tidy adds it", r.Path, r.Version)
		}
	}
	return nil
}

// editMod runs "go mod edit" on the text of a go.mod.
func editMod(ctx context.Context, mod []byte, flag string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "freshmapper-")
	if err != nil {
		return nil, fmt.Errorf("make a folder to edit go.mod in: %w", err)
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, goMod)
	if err := os.WriteFile(name, mod, 0o644); err != nil {
		return nil, fmt.Errorf("edit a copy of go.mod: %w", err)
	}
	if _, err := gotool.Run(ctx, dir, []string{"GOWORK=off"}, "mod", "edit", flag); err != nil {
		return nil, err
	}
	return os.ReadFile(name)
}

// withSums puts controller-runtime's lines of an earlier go.sum back into one
// that lost them: "go mod tidy" drops the sums of a module that a folder
// replaces, and without them the module would not build after an undo.
func withSums(now, was []byte) []byte {
	lines := gotool.SplitLines(string(now))
	for _, line := range gotool.SplitLines(string(was)) {
		if !strings.HasPrefix(line, tree.Module+" ") || slices.Contains(lines, line) {
			continue
		}
		at := slices.IndexFunc(lines, func(other string) bool { return other > line })
		if at < 0 {
			at = len(lines)
		}
		lines = slices.Insert(lines, at, line)
	}
	if len(lines) == 0 {
		return now
	}
	return []byte(strings.Join(lines, ""))
}

// copyName is what a file is called in the manifest's folder. It must not be
// go.mod: that would make the folder a module.
func copyName(name string) string { return path.Base(name) + ".before" }
