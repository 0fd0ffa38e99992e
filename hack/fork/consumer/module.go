// SPDX-License-Identifier: Apache-2.0

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
	"path/filepath"
	"slices"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/cli"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

const (
	goMod = "go.mod"
	goSum = "go.sum"
)

// module is the consumer's module as the go command sees it.
type module struct {
	shown string   // the folder as the user names it
	dir   string   // the same, absolute
	env   []string // for every go command in it
	flags string   // GOFLAGS
	mod   modFile
	work  string   // the go.work that is in effect and uses it, or ""
	used  []string // the folders of the modules that it uses
}

// modFile is what "go mod edit -json" and "go work edit -json" have to say.
type modFile struct {
	Module  struct{ Path string }
	Require []modVersion
	Replace []replace
	Use     []struct{ DiskPath string }
}

type replace struct{ Old, New modVersion }

// modVersion is a module, or the folder that replaces one.
type modVersion struct{ Path, Version, Dir string }

func (v modVersion) String() string { return strings.TrimSpace(v.Path + " " + v.Version) }

// ourReplace is the line of a go.mod that makes it use our tree.
var ourReplace = replace{Old: modVersion{Path: tree.Module}, New: modVersion{Path: "./" + place}}

// required is the controller-runtime that a go.mod requires, "" if it requires none.
func (f modFile) required() string {
	at := slices.IndexFunc(f.Require, func(r modVersion) bool { return r.Path == tree.Module })
	if at < 0 {
		return ""
	}
	return f.Require[at].Version
}

// forked reports whether a go.mod replaces controller-runtime with our tree.
func (f modFile) forked() bool { return slices.Contains(f.Replace, ourReplace) }

// replaced is the folder, below dir or absolute, that controller-runtime is replaced with,
// "" for none or for a module.
func (f modFile) replaced(dir string) (with string, chosen bool) {
	for _, r := range f.Replace {
		if r.Old.Path != tree.Module {
			continue
		}
		if chosen = true; r.New.Version == "" {
			with = below(dir, r.New.Path)
		}
	}
	return with, chosen
}

// below is where a path of a go.mod or a go.work in dir leads.
func below(dir, path string) string {
	if path = filepath.FromSlash(path); filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

func openModule(ctx context.Context, shown string) (*module, error) {
	dir, err := filepath.Abs(shown)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", shown, err)
	}
	m := &module{shown: shown, dir: dir}
	if !isDir(dir) {
		return nil, fmt.Errorf("%s is not a folder: name the one that holds your go.mod", shown)
	}
	var env struct{ GOMOD, GOWORK, GOFLAGS string }
	if err := m.parse(ctx, &env, "env", "-json", "GOMOD", "GOWORK", "GOFLAGS"); err != nil {
		return nil, err
	}
	m.flags = env.GOFLAGS
	switch {
	case !tree.Exists(m.path(goMod)):
		return nil, fmt.Errorf(
			"no go.mod in %s: name the folder of your go.mod (the go command finds %s)",
			shown,
			cmp.Or(strings.TrimPrefix(env.GOMOD, os.DevNull), "none"),
		)
	case strings.Contains(m.flags, "-modfile"):
		return nil, fmt.Errorf(
			"GOFLAGS is %s, but the replace line goes into %s: run this without -modfile, "+
				"then bring the line into that other file",
			m.flags,
			m.show(m.path(goMod)),
		)
	}
	if m.mod, err = m.read(ctx, dir); err != nil || env.GOWORK == "" || env.GOWORK == "off" {
		return m, err
	}
	return m, m.workspace(ctx, env.GOWORK)
}

func (m *module) path(name string) string { return filepath.Join(m.dir, filepath.FromSlash(name)) }

// show names a path as the user would write it.
func (m *module) show(path string) string { return filepath.Join(m.shown, relativeTo(m.dir, path)) }

func relativeTo(dir, path string) string {
	if rel, err := filepath.Rel(dir, path); err == nil {
		path = rel
	}
	return filepath.ToSlash(path)
}

func (m *module) read(ctx context.Context, dir string) (mod modFile, err error) {
	err = m.parse(ctx, &mod, "mod", "edit", "-json", filepath.Join(dir, goMod))
	return mod, err
}

func (m *module) parse(ctx context.Context, to any, args ...string) error {
	out, err := cli.Go(ctx, m.dir, m.env, io.Discard, args...)
	if err == nil {
		err = json.Unmarshal(out, to)
	}
	return err
}

// workspace reads the go.work that is in effect. One that doesn't use this
// module says nothing about it, so it is switched off.
func (m *module) workspace(ctx context.Context, file string) error {
	var uses modFile
	if err := m.parse(ctx, &uses, "work", "edit", "-json", file); err != nil {
		return err
	}
	root := filepath.Dir(file)
	for _, use := range uses.Use {
		m.used = append(m.used, below(root, use.DiskPath))
	}
	if !contains(m.used, m.dir) {
		m.env, m.used = []string{"GOWORK=off"}, nil
		return nil
	}
	m.work = file
	if contains(m.used, m.path(place)) { // "go work use -r ." does that
		return fmt.Errorf(
			"%s uses the tree as a module of the workspace, so that no version of %s is selected: "+
				"run go work edit -dropuse=./%s in %s",
			file,
			tree.Module,
			relativeTo(root, m.path(place)),
			quoted(root),
		)
	}
	for _, r := range uses.Replace {
		if r.Old.Path == tree.Module {
			return fmt.Errorf(
				"%s replaces %s with %s, which would hide the fork: drop that replace first",
				file,
				tree.Module,
				r.New,
			)
		}
	}
	return nil
}

func contains(folders []string, dir string) bool {
	return slices.ContainsFunc(folders, func(name string) bool { return sameFile(name, dir) })
}

// sameFile reports whether two names lead to the same file, which need not be there.
func sameFile(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return a == b || errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// requires makes sure that a fork has something to replace, without a network. In a
// workspace another module may require a newer release.
func (m *module) requires() error {
	if own := m.mod.Module.Path; own == tree.Module || own == tree.Ours {
		return fmt.Errorf("%s is %s itself: name the folder of your program", m.shown, own)
	}
	if m.mod.required() == "" {
		return fmt.Errorf("%s does not require %s: nothing to fork (go get %s@%s adds it)",
			m.show(m.path(goMod)), tree.Module, tree.Module, tree.Newest())
	}
	if _, err := tree.LineOf(m.mod.required()); err != nil && m.work == "" {
		return fmt.Errorf(
			"%s requires a release that has no fork: %w; v0.19 can use the RESTMapper alone",
			m.show(m.path(goMod)),
			err,
		)
	}
	return nil
}

// listed is what the build uses of controller-runtime. The version is the one that it
// would use without a replace.
type listed struct {
	Version string
	Replace *modVersion
}

// list asks the go command, which may fail if a tree is missing. Then go.mod counts.
func (m *module) list(ctx context.Context) (got listed, err error) {
	if dir, _ := m.mod.replaced(m.dir); dir != "" && !isDir(dir) {
		return listed{Version: m.mod.required(), Replace: &modVersion{Dir: dir}}, nil
	}
	// -mod=readonly, whatever GOFLAGS says: asking must not change a file.
	err = m.parse(ctx, &got, "list", "-mod=readonly", "-m", "-json", tree.Module)
	return got, err
}

// selected is the version of controller-runtime that the build really uses.
// sibling is the tree of this tool's that another module of the workspace has,
// which serves this one, too.
func (m *module) selected(ctx context.Context) (version, sibling string, err error) {
	got, err := m.list(ctx)
	if err != nil {
		return "", "", err
	}
	// By folder: in a workspace the path is relative to go.work.
	if r := got.Replace; r != nil && !sameFile(r.Dir, m.path(place)) {
		if _, _, err := tree.Open(r.Dir); err != nil {
			return "", "", fmt.Errorf(
				"%s is replaced with %s by another module of the workspace: drop that replace first",
				tree.Module,
				r,
			)
		}
		return got.Version, r.Dir, nil
	}
	return got.Version, "", nil
}

// vendor is the vendor folder that the go command builds from, if there is one,
// and the command that writes it.
func (m *module) vendor() (dir, command string) {
	switch {
	case containsAny(m.flags, "-mod=mod", "-mod=readonly"):
	case isDir(m.path("vendor")):
		return m.path("vendor"), "go mod vendor"
	case m.work != "" && isDir(filepath.Join(filepath.Dir(m.work), "vendor")):
		return filepath.Join(filepath.Dir(m.work), "vendor"), "go work vendor"
	}
	return "", ""
}

// contents are the consumer's go.mod and go.sum, by name. One that is not there is empty.
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
	lost := slices.DeleteFunc(
		newLines(now, was),
		func(line string) bool { return !strings.HasPrefix(line, tree.Module+" ") },
	)
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
