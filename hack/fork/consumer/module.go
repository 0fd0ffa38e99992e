// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"context"
	"encoding/json"
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

const (
	goMod = "go.mod"
	goSum = "go.sum"
)

// module is the consumer's module as the go command sees it.
type module struct {
	shown string   // the folder as the user names it
	dir   string   // the same, absolute
	env   []string // for every go command in it
	work  string   // the go.work that is in effect and uses it, or ""
	used  []string // the folders of the modules that it uses
	flags string   // GOFLAGS
	mod   modFile
}

// modFile is what "go mod edit -json" and "go work edit -json" have to say.
type modFile struct {
	Module  struct{ Path string }
	Require []struct{ Path, Version string }
	Replace []replace
	Use     []struct{ DiskPath string }
}

type replace struct{ Old, New modVersion }

type modVersion struct{ Path, Version string }

func (v modVersion) String() string { return strings.TrimSpace(v.Path + " " + v.Version) }

// ours reports whether r is the directive that this tool writes.
func (r replace) ours() bool {
	return r.Old == modVersion{Path: tree.Module} && r.New == modVersion{Path: "./" + place}
}

// dropping is the flag of "go mod edit" that drops r: one for a single version needs it.
func (r replace) dropping() string {
	if r.Old.Version == "" {
		return "-dropreplace=" + r.Old.Path
	}
	return "-dropreplace=" + r.Old.Path + "@" + r.Old.Version
}

func openModule(ctx context.Context, shown string) (*module, error) {
	dir, err := filepath.Abs(shown)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", shown, err)
	}
	m := &module{shown: shown, dir: dir}
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no folder %s: name the one that holds your go.mod", shown)
	}
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", shown, err)
	}
	if !info.IsDir() || !exists(m.path(goMod)) {
		return nil, fmt.Errorf("no go.mod in %s: name the folder that holds your go.mod", shown)
	}
	if err := m.environment(ctx); err != nil {
		return nil, err
	}
	if err := m.reload(ctx); err != nil {
		return nil, err
	}
	return m, m.workspace(ctx)
}

// path is where a file of the consumer's is.
func (m *module) path(name string) string { return filepath.Join(m.dir, filepath.FromSlash(name)) }

// show is path as the user would write it.
func (m *module) show(name string) string {
	return filepath.Join(m.shown, filepath.FromSlash(name))
}

// reload reads go.mod.
func (m *module) reload(ctx context.Context) error {
	m.mod = modFile{}
	return m.parse(ctx, &m.mod, "mod", "edit", "-json")
}

func (m *module) parse(ctx context.Context, to any, args ...string) error {
	out, err := gotool.Run(ctx, m.dir, m.env, args...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, to); err != nil {
		return fmt.Errorf("read the output of go %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// environment reads what has a say in which go.mod and go.work are in effect.
func (m *module) environment(ctx context.Context) error {
	var env struct{ GOWORK, GOFLAGS string }
	if err := m.parse(ctx, &env, "env", "-json", "GOWORK", "GOFLAGS"); err != nil {
		return err
	}
	if m.flags = env.GOFLAGS; strings.Contains(m.flags, "-modfile") {
		return fmt.Errorf("GOFLAGS is %s, but the replace line goes into %s: run this without -modfile, then bring the line into that other file", m.flags, m.show(goMod))
	}
	if env.GOWORK != "off" {
		m.work = env.GOWORK
	}
	return nil
}

// workspace reads the go.work that is in effect. One that doesn't use this
// module says nothing about it, so it is switched off.
func (m *module) workspace(ctx context.Context) error {
	if m.work == "" {
		return nil
	}
	var work modFile
	if err := m.parse(ctx, &work, "work", "edit", "-json", m.work); err != nil {
		return err
	}
	used := work.folders(filepath.Dir(m.work))
	if !contains(used, m.dir) {
		m.work, m.env = "", []string{"GOWORK=off"}
		return nil
	}
	m.used = used
	if contains(m.used, m.path(place)) { // "go work use -r ." does that
		return fmt.Errorf("%s uses the tree as a module of the workspace, so that no version of %s is selected: run go work edit -dropuse=./%s in %s",
			m.work, tree.Module, filepath.ToSlash(relativeTo(filepath.Dir(m.work), m.path(place))), quoted(filepath.Dir(m.work)))
	}
	for _, r := range work.Replace {
		if r.Old.Path == tree.Module {
			return fmt.Errorf("%s replaces %s with %s, which would hide the fork: drop that replace first", m.work, tree.Module, r.New)
		}
	}
	return nil
}

// folders are those of the modules that a go.work in root uses.
func (f modFile) folders(root string) []string {
	var folders []string
	for _, use := range f.Use {
		name := filepath.FromSlash(use.DiskPath)
		if !filepath.IsAbs(name) {
			name = filepath.Join(root, name)
		}
		folders = append(folders, name)
	}
	return folders
}

func contains(folders []string, dir string) bool {
	return slices.ContainsFunc(folders, func(name string) bool { return sameFile(name, dir) })
}

func sameFile(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

// requires makes sure that a fork has something to replace.
func (m *module) requires() error {
	if m.mod.Module.Path == tree.Module {
		return fmt.Errorf("%s is %s itself: name the folder of a program that uses it", m.shown, tree.Module)
	}
	if m.mod.requires() {
		return nil
	}
	return fmt.Errorf("%s does not require %s: nothing to fork (go get %s@%s adds it)",
		m.show(goMod), tree.Module, tree.Module, tree.Newest())
}

func (f modFile) requires() bool {
	for _, r := range f.Require {
		if r.Path == tree.Module {
			return true
		}
	}
	return false
}

// selected is the version of controller-runtime that the build really uses.
// sibling is the tree of this tool's that another module of the workspace has,
// which serves this one, too.
func (m *module) selected(ctx context.Context) (version, sibling string, err error) {
	var got struct {
		Version string
		Replace *struct{ Path, Version, Dir string }
	}
	// -mod=readonly, whatever GOFLAGS says: asking must not change a file.
	if err := m.parse(ctx, &got, "list", "-mod=readonly", "-m", "-json", tree.Module); err != nil {
		return "", "", err
	}
	// By folder: in a workspace the path is relative to go.work.
	if r := got.Replace; r != nil && !sameFile(r.Dir, m.path(place)) {
		if _, err := tree.Load(r.Dir); err == nil {
			return got.Version, r.Dir, nil
		}
		return "", "", fmt.Errorf("%s is replaced with %s by another module of the workspace: drop that replace first",
			tree.Module, modVersion{r.Path, r.Version})
	}
	if _, err := tree.LineOf(got.Version); err != nil {
		return "", "", err
	}
	return got.Version, "", nil
}

// vendor is the vendor folder that the go command builds from, if there is one,
// and the command that writes it.
func (m *module) vendor() (dir, command string) {
	if strings.Contains(m.flags, "-mod=mod") || strings.Contains(m.flags, "-mod=readonly") {
		return "", ""
	}
	if isDir(m.path("vendor")) {
		return m.path("vendor"), "go mod vendor"
	}
	if m.work == "" {
		return "", ""
	}
	if dir := filepath.Join(filepath.Dir(m.work), "vendor"); isDir(dir) {
		return dir, "go work vendor"
	}
	return "", ""
}

// vendored refuses a vendor folder, which the go command would build from
// instead of the tree.
func (m *module) vendored() error {
	dir, command := m.vendor()
	if dir == "" {
		return nil
	}
	flag := "-mod=mod"
	if command == "go work vendor" {
		flag = "-mod=readonly" // a workspace does not allow the other
	}
	return fmt.Errorf("%s would hide the fork: remove it, run this again, then %s (or set GOFLAGS=%s to build without it)",
		m.show(filepath.ToSlash(relativeTo(m.dir, dir))), command, flag)
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}
