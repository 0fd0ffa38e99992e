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

// tracked names them. The order is the one to restore them in: go.mod first, because
// without its replace directive every later run sees that the tree is half undone.
func (j *job) tracked() []string {
	names := []string{goMod, goSum}
	if j.work != "" { // in a workspace the go command adds missing sums here
		names = append(names, j.relative(filepath.Join(filepath.Dir(j.work), "go.work.sum")))
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
	switch {
	case data == nil && errors.Is(err, fs.ErrNotExist): // a link to nowhere stays
		return nil
	case data == nil:
		return os.Remove(name)
	case err == nil && bytes.Equal(now, data):
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
	before, touched := contents{}, false // touched: the user changed go.mod
	for _, name := range j.tracked() {   // go.mod first
		was, known := s.was[name]
		switch {
		case known && (sumOf(now[name]) == sumOf(was) || sumOf(now[name]) == s.manifest.Saved[name].Written):
			before[name] = was
		case name == goMod:
			touched = true
			if before[name] = now[name]; s.replaced {
				before[name], err = editMod(ctx, now[name], "-dropreplace="+tree.Module)
			}
		case known && !touched && !s.manifest.Complete:
			before[name] = was // the difference is what an interrupted build added
		default:
			before[name] = withSums(now[name], was)
		}
	}
	return before, err
}

// saved are the consumer's files as they were before the first run. One whose copy is
// missing is not among them: a .gitignore may have kept it out of the repository.
func (j *job) saved(m *tree.Manifest) (contents, error) {
	was := contents{}
	for name, saved := range m.Saved {
		if saved.Copy == "" {
			was[name] = nil
			continue
		}
		data, err := os.ReadFile(filepath.Join(j.slot.Current(), tree.Meta, filepath.Base(saved.Copy)))
		if err == nil {
			was[name] = data
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read the copy of %s: %w", name, err)
		}
	}
	return was, nil
}

// saves says where each file is kept as it was before, and what it holds now.
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

// copyName is what a file is called in the manifest's folder. It must not be
// go.mod: that would make the folder a module.
func copyName(name string) string { return path.Base(name) + ".before" }

func sumOf(data []byte) string {
	if data == nil {
		return ""
	}
	return tree.Digest(unixLines(data))
}

// unixLines takes back what a checkout may have done to line ends.
func unixLines(data []byte) []byte { return bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")) }

// editMod runs "go mod edit" on the text of a go.mod.
func editMod(ctx context.Context, mod []byte, flag string) ([]byte, error) {
	return gotool.Elsewhere(ctx, map[string][]byte{goMod: mod}, "mod", "edit", "-print", flag)
}

// withSums puts controller-runtime's lines of an earlier go.sum back into one
// that lost them: "go mod tidy" drops the sums of a module that a folder
// replaces, and without them the module would not build after an undo.
func withSums(now, was []byte) []byte {
	lines := gotool.SplitLines(string(unixLines(now)))
	for _, line := range gotool.SplitLines(string(unixLines(was))) {
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

// tellMissingSum names what keeps the module from building without the fork: "go get"
// of a newer controller-runtime adds no sums of it while a folder replaces it.
func (j *job) tellMissingSum() error {
	now, err := j.current()
	for _, r := range j.mod.Require {
		if err == nil && r.Path == tree.Module && !bytes.Contains(now[goSum], []byte(r.Path+" "+r.Version+" h1:")) {
			j.say(goSum, "note: it has no sum of %s %s, go mod tidy adds it", r.Path, r.Version)
		}
	}
	return err
}
