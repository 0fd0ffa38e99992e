// SPDX-License-Identifier: Apache-2.0

package adopters

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper/hack/dev/proc"
)

// trees are two copies of an operator: as it is, and forked.
type trees struct {
	entry
	stock, fork string
	forked      string // "ok", or why not
}

const controllerRuntime = "sigs.k8s.io/controller-runtime"

// copied makes the copies.
func (op entry) copied(ctx context.Context, t *testing.T) *trees {
	dir := t.TempDir()
	tr := &trees{entry: op, stock: filepath.Join(dir, "stock"), fork: filepath.Join(dir, "fork")}
	copyTo(t, tr.stock, download(ctx, t, op.Module, op.Version))
	// Modules that a repository keeps in folders of its own, and replaces with these, are
	// not in the module's zip.
	mod := readMod(ctx, t, tr.stock)
	for _, r := range mod.Replace {
		to := filepath.Join(tr.stock, filepath.FromSlash(r.New.Path))
		if _, err := os.Stat(to); err != nil && r.New.Version == "" {
			copyTo(t, to, download(ctx, t, r.Old.Path, mod.requires(r.Old.Path)))
		}
	}
	copyTo(t, tr.fork, tr.stock)
	tr.forked = "ok"
	if said, err := try(ctx, t, root, "go", "run", "./hack/fork", "-into", tr.fork); err != nil {
		tr.forked = "failed: " + said[strings.LastIndex(said, "\n")+1:]
	}
	return tr
}

func copyTo(t *testing.T, to, from string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// goEnv is for every go command: an operator may need a newer Go than ours.
var goEnv = []string{"GOWORK=off", "GOTOOLCHAIN=auto"}

func output(ctx context.Context, t *testing.T, dir string, args ...string) string {
	t.Helper()
	said, err := proc.Output(ctx, dir, goEnv, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return said
}

// download returns the folder of a module in the module cache: do not write there.
func download(ctx context.Context, t *testing.T, module, version string) string {
	t.Helper()
	var got struct{ Dir string }
	if err := json.Unmarshal([]byte(output(ctx, t, os.TempDir(), "go", "mod", "download", "-json", module+"@"+version)), &got); err != nil {
		t.Fatal(err)
	}
	return got.Dir
}

// goMod is the part of a go.mod that matters here.
type goMod struct {
	Require []struct{ Path, Version string }
	Replace []struct {
		Old, New struct{ Path, Version string }
	}
}

func readMod(ctx context.Context, t *testing.T, dir string) (mod goMod) {
	t.Helper()
	if err := json.Unmarshal([]byte(output(ctx, t, dir, "go", "mod", "edit", "-json")), &mod); err != nil {
		t.Fatal(err)
	}
	return mod
}

func (m goMod) requires(path string) string {
	for _, r := range m.Require {
		if r.Path == path {
			return r.Version
		}
	}
	return ""
}

// try runs a command, and returns also what it said.
func try(ctx context.Context, t *testing.T, dir string, args ...string) (said string, err error) {
	t.Helper()
	t.Logf("in %s: %s", dir, strings.Join(args, " "))
	var text strings.Builder
	_, err = proc.Command{Dir: dir, Env: goEnv, Args: args, Stdout: &text, Stderr: &text}.Run(ctx)
	t.Log(text.String())
	return strings.TrimSpace(text.String()), err
}

// build builds packages of a tree. It returns "ok", or what the go command says first.
func build(ctx context.Context, t *testing.T, dir, binary, packages string) string {
	t.Helper()
	said, err := try(ctx, t, dir, "go", "build", "-o", binary, packages)
	if err == nil {
		return "ok"
	}
	for line := range strings.Lines(said) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "go: downloading") {
			return "failed: " + line
		}
	}
	return "failed: " + err.Error()
}
