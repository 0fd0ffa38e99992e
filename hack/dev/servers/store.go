// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/freshmapper/freshmapper/hack/dev/proc"
)

// store is where setup-envtest keeps what it has downloaded, version V in a folder
// V-<platform>, as controller-runtime's
// envtest.SetupEnvtestDefaultBinaryAssetsDirectory has it.
func store() string {
	home := os.Getenv("HOME")
	if runtime.GOOS == "darwin" {
		return storeIn(home)
	}
	return storeIn(cmp.Or(os.Getenv("XDG_DATA_HOME"), filepath.Join(home, ".local", "share")))
}

// storeIn is the store below what HOME says on macOS, XDG_DATA_HOME elsewhere.
func storeIn(dir string) string {
	if runtime.GOOS == "darwin" {
		return filepath.Join(dir, "Library", "Application Support", "io.kubebuilder.envtest", "k8s")
	}
	return filepath.Join(dir, "kubebuilder-envtest", "k8s")
}

// Store puts links to the legacy server where a test that asks envtest to download
// 1.28.0 looks first, and returns what makes it look there, as NAME=VALUE. With
// all three files in place envtest asks no server for anything. What is there
// already stays: dir may be a store in use.
func (f *Finder) Store(ctx context.Context, dir string) (env []string, err error) {
	assets, err := f.Find(ctx, Legacy)
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("find the folder of the store: %w", err)
	}
	version := filepath.Join(storeIn(dir), "1.28.0-"+platform)
	if err := os.MkdirAll(version, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of the store: %w", err)
	}
	for _, program := range []string{"kube-apiserver", "etcd", "kubectl"} {
		if err := link(filepath.Join(assets, program), filepath.Join(version, program)); err != nil {
			return nil, fmt.Errorf("fill the store: %w", err)
		}
	}
	if runtime.GOOS != "darwin" {
		return []string{"XDG_DATA_HOME=" + dir}, nil
	}
	// Only HOME leads to the store there, and Go's caches should not move with it.
	for _, name := range []string{"GOPATH", "GOMODCACHE", "GOCACHE"} {
		value, err := proc.Output(ctx, "", nil, "go", "env", name)
		if err != nil {
			return nil, fmt.Errorf("find Go's caches: %w", err)
		}
		env = append(env, name+"="+value)
	}
	return append(env, "HOME="+dir), nil
}

// link makes a link to a program, unless there is one already that can be
// followed. In place of a program that is missing it puts the placeholder.
func link(program, name string) error {
	if _, err := os.Stat(name); err == nil {
		return nil
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := os.Stat(program); err != nil {
		return placeholder(name)
	}
	return os.Symlink(program, name)
}

// placeholder writes what stands for kubectl, which envtest looks for but runs
// only if a test asks for it.
func placeholder(name string) error {
	const script = `#!/bin/sh
echo "this is not kubectl but a placeholder that hack/envtest.sh wrote: install kubectl to use it" >&2
exit 1
`
	return os.WriteFile(name, []byte(script), 0o755)
}

// Pair are the servers that upstream's tests run on.
type Pair struct {
	Latest, Legacy string   // folders
	Store          []string // environment that leads to the legacy one
}

// FindPair finds both servers. It makes dir a setup-envtest store.
func FindPair(ctx context.Context, root, dir string, say func(format string, args ...any)) (p Pair, err error) {
	f, err := New(root, say)
	if err == nil {
		p.Legacy, err = f.Find(ctx, Legacy)
	}
	if err == nil {
		p.Store, err = f.Store(ctx, dir)
	}
	if err == nil {
		p.Latest, err = f.Find(ctx, Latest)
	}
	return p, err
}

// ForMapper is the environment for upstream's tests of the mapper in a tree. In v0.20
// both parts of its test take the same server, which has to be the old one. In later
// lines the part without aggregated discovery finds its server in the store.
func (p Pair) ForMapper(tree string) []string {
	text, err := os.ReadFile(filepath.Join(tree, "pkg", "client", "apiutil", "restmapper_test.go"))
	if err == nil && bytes.Contains(text, []byte("DownloadBinaryAssets")) {
		return p.Env(p.Latest)
	}
	return p.Env(p.Legacy)
}

// Env is the environment for tests on one of the servers.
func (p Pair) Env(assets string) []string {
	return append(p.Store[:len(p.Store):len(p.Store)], "KUBEBUILDER_ASSETS="+assets)
}
