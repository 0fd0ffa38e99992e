// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/freshmapper/freshmapper/hack/dev/proc"
)

// operator is a published module.
type operator struct {
	Name, Module, Version, Home string
}

// trees are two copies of an operator: as it is, and forked.
type trees struct {
	operator
	stock, fork string
	said        string // what the fork tool said
	forked      error
}

const controllerRuntime = "sigs.k8s.io/controller-runtime"

// goMod is what of a go.mod matters here.
type goMod struct {
	Go      string
	Require []struct{ Path, Version string }
	Replace []struct {
		Old, New struct{ Path, Version string }
	}
}

func (m *goMod) requires(path string) string {
	for _, r := range m.Require {
		if r.Path == path {
			return r.Version
		}
	}
	return ""
}

// trees makes the copies, unless they are there from a run that kept them.
func (op operator) trees(ctx context.Context, dir string) (*trees, error) {
	t := &trees{operator: op, stock: filepath.Join(dir, "stock"), fork: filepath.Join(dir, "fork")}
	for _, side := range []string{t.stock, t.fork} {
		if _, err := os.Stat(side); err == nil {
			continue
		}
		progress("%s: copy to %s", op.Name, side)
		if err := download(ctx, op.Module, op.Version, side); err != nil {
			return nil, err
		}
		if err := fillIn(ctx, side); err != nil {
			return nil, err
		}
	}
	progress("%s: go run ./hack/fork -into %s", op.Name, t.fork)
	var said bytes.Buffer
	_, t.forked = proc.Command{Dir: root, Env: goEnv, Args: []string{"go", "run", "./hack/fork", "-into", t.fork}, Stdout: &said, Stderr: &said}.Run(ctx)
	t.said = strings.TrimSpace(said.String())
	fmt.Fprintln(os.Stderr, t.said)
	return t, ctx.Err()
}

// goEnv is for every go command: an operator may need a newer Go than ours.
var goEnv = []string{"GOWORK=off", "GOTOOLCHAIN=auto"}

// download puts a module into a folder that may be written to.
func download(ctx context.Context, module, version, to string) error {
	text, err := proc.Output(ctx, os.TempDir(), goEnv, "go", "mod", "download", "-json", module+"@"+version)
	if err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	var got struct{ Dir string }
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		return err
	}
	return filepath.WalkDir(got.Dir, func(name string, entry fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(got.Dir, name)
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), data, 0o644)
	})
}

// fillIn puts modules that a repository keeps in folders of its own, and replaces
// with these, where they are in the repository: a module zip leaves them out.
func fillIn(ctx context.Context, dir string) error {
	mod, err := readMod(ctx, dir)
	if err != nil {
		return err
	}
	for _, r := range mod.Replace {
		to := filepath.Join(dir, filepath.FromSlash(r.New.Path))
		if _, err := os.Stat(to); r.New.Version != "" || err == nil {
			continue
		}
		if err := download(ctx, r.Old.Path, mod.requires(r.Old.Path), to); err != nil {
			return err
		}
	}
	return nil
}

func readMod(ctx context.Context, dir string) (*goMod, error) {
	text, err := proc.Output(ctx, dir, goEnv, "go", "mod", "edit", "-json")
	if err != nil {
		return nil, err
	}
	mod := &goMod{}
	return mod, json.Unmarshal([]byte(text), mod)
}

// build returns "ok", or what the go command says first.
func build(ctx context.Context, dir string) string {
	return quietly(ctx, dir, "go", "build", "-o", os.DevNull, "./...")
}

func quietly(ctx context.Context, dir string, args ...string) string {
	var said bytes.Buffer
	_, err := proc.Command{Dir: dir, Env: goEnv, Args: args, Stdout: &said, Stderr: &said}.Run(ctx)
	if err == nil {
		return "ok"
	}
	fmt.Fprintf(os.Stderr, "%v\n%s", err, &said)
	return "failed: " + firstLine(said.String(), err)
}

func firstLine(said string, err error) string {
	for line := range strings.Lines(said) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "go: downloading") {
			return line
		}
	}
	return err.Error()
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "==> "+format+"\n", args...) }
