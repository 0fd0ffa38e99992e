// SPDX-License-Identifier: Apache-2.0

//go:build unix

package servers_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper/hack/dev/servers"
)

var platform = runtime.GOOS + "-" + runtime.GOARCH

// assets makes a folder with programs that only say which version they are.
func assets(t *testing.T, dir, version string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kube-apiserver", "etcd"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho Kubernetes "+version+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// finder returns a Finder that finds only what a test has put into its folders.
// Whatever it cannot find it would build, but its context has ended.
func finder(t *testing.T) (f *servers.Finder, cache, store string, said *strings.Builder) {
	t.Helper()
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_DATA_HOME", filepath.Join(home, "data"))
	t.Setenv("XDG_CACHE_HOME", filepath.Join(home, "cache"))
	t.Setenv("FRESHMAPPER_CACHE", "")
	t.Setenv("FRESHMAPPER_ENVTEST_OFFLINE", "1")
	t.Setenv("KUBEBUILDER_ASSETS", "")
	said = &strings.Builder{}
	f, err := servers.New(filepath.Join("..", "..", ".."), func(format string, args ...any) { fmt.Fprintf(said, format+"\n", args...) })
	if err != nil {
		t.Fatal(err)
	}
	store = filepath.Join(home, "data", "kubebuilder-envtest", "k8s")
	if runtime.GOOS == "darwin" {
		store = filepath.Join(home, "Library", "Application Support", "io.kubebuilder.envtest", "k8s")
	}
	return f, filepath.Join(home, "cache", "freshmapper", "envtest"), store, said
}

func TestFind(t *testing.T) {
	f, cache, store, said := finder(t)
	find := func(mode servers.Mode) string {
		t.Helper()
		dir, err := f.Find(context.Background(), mode)
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	cached := assets(t, filepath.Join(cache, "k8s", "1.31.2-"+platform), "v1.31.2")
	if dir := find(servers.Latest); dir != cached {
		t.Errorf("with a download of an earlier run: %s", dir)
	}
	assets(t, filepath.Join(store, "1.9.0-"+platform), "v1.30.0")
	stored := assets(t, filepath.Join(store, "1.32.10-"+platform), "v1.32.10")
	assets(t, filepath.Join(store, "1.32.9-"+platform), "v1.32.9")
	old := assets(t, filepath.Join(store, "1.29.1-"+platform), "v1.29.1")
	assets(t, filepath.Join(store, "1.99.1-other-machine"), "v1.99.1")
	if dir := find(servers.Latest); dir != stored {
		t.Errorf("with a store: %s", dir)
	}
	if dir := find(servers.Legacy); dir != old {
		t.Errorf("an old one: %s", dir)
	}
	given := assets(t, t.TempDir(), "v1.40.0")
	t.Setenv("KUBEBUILDER_ASSETS", given)
	if dir := find(servers.Latest); dir != given {
		t.Errorf("with KUBEBUILDER_ASSETS: %s", dir)
	}
	if dir := find(servers.Legacy); dir != old || !strings.Contains(said.String(), `its version is "Kubernetes v1.40.0", and legacy means 1.26 to 1.29`) {
		t.Errorf("with KUBEBUILDER_ASSETS that do not fit: %s\n%s", dir, said)
	}
}

func TestFindBuiltHere(t *testing.T) {
	f, cache, _, _ := finder(t)
	text, err := os.ReadFile(filepath.Join("..", "..", "envtest", "latest", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "k8s.io/kubernetes v")
	version := strings.Fields(after)[0]
	want := assets(t, filepath.Join(cache, version+"-"+platform), "v"+version)
	if dir, err := f.Find(context.Background(), servers.Latest); dir != want || err != nil {
		t.Errorf("%s, %v", dir, err)
	}
}

// A run that is ended while it builds leaves nothing but the log.
func TestFindEnds(t *testing.T) {
	f, cache, _, _ := finder(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if dir, err := f.Find(ctx, servers.Latest); err == nil {
		t.Errorf("found %s", dir)
	}
	left, err := filepath.Glob(filepath.Join(cache, ".tmp.*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestStore(t *testing.T) {
	f, _, store, _ := finder(t)
	from := assets(t, filepath.Join(store, "1.28.15-"+platform), "v1.28.15")
	dir := t.TempDir()
	env, err := f.Store(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "darwin" && (len(env) != 1 || env[0] != "XDG_DATA_HOME="+dir) {
		t.Errorf("the environment: %v", env)
	}
	found, err := filepath.Glob(filepath.Join(dir, "*", "k8s", "1.28.0-"+platform, "*"))
	if err != nil || (len(found) != 3 && runtime.GOOS != "darwin") {
		t.Fatalf("%v, %v", found, err)
	}
	for _, name := range found {
		target, err := os.Readlink(name)
		if filepath.Base(name) == "kubectl" {
			if err == nil {
				t.Errorf("kubectl leads to %s", target)
			}
		} else if target != filepath.Join(from, filepath.Base(name)) {
			t.Errorf("%s leads to %s", name, target)
		}
	}
	if _, err := f.Store(context.Background(), dir); err != nil {
		t.Errorf("again: %v", err)
	}
}
