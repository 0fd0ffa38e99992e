// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/freshmapper/freshmapper"
	"github.com/freshmapper/freshmapper/hack/dev/servers"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// apiServers are those that upstream's tests run on.
type apiServers struct {
	latest, legacy string   // folders
	store          []string // environment that leads to the legacy one
}

// servers finds API servers. It makes dir a setup-envtest store.
func (c *checkout) servers(ctx context.Context, dir string) (found apiServers, err error) {
	finder, err := servers.New(c.root, c.say)
	if err != nil {
		return found, err
	}
	if found.legacy, err = finder.Find(ctx, servers.Legacy); err != nil {
		return found, err
	}
	if found.store, err = finder.Store(ctx, dir); err != nil {
		return found, err
	}
	found.latest, err = finder.Find(ctx, servers.Latest)
	return found, err
}

// env is the environment for tests on the latest server, or on the legacy one.
func (s apiServers) env(legacy bool) []string {
	assets := s.latest
	if legacy {
		assets = s.legacy
	}
	return append(slices.Clone(s.store), "KUBEBUILDER_ASSETS="+assets)
}

// newest are the newest tested releases of all lines, oldest first.
func newest() []string {
	var versions []string
	for _, line := range tree.Lines {
		versions = append(versions, line.Newest)
	}
	return versions
}

// copyTree copies a folder of the module cache, which is read-only.
func copyTree(to, from string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return nil
}

// fork writes a forked tree with all of upstream's files.
func fork(ctx context.Context, dir, version string, c *checkout) error {
	return tree.Create(ctx, tree.Request{Dir: dir, Version: version, Ours: freshmapper.Source, Full: true, Out: c.stderr})
}

// ownServer reports whether upstream's test of the mapper finds the server without
// aggregated discovery itself, in setup-envtest's store. In v0.20 it does not.
func ownServer(dir string) bool {
	text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(mapperTest)))
	return err == nil && bytes.Contains(text, []byte("DownloadBinaryAssets"))
}

func sameFile(one, other, name string) error {
	a, err := os.ReadFile(filepath.Join(one, filepath.FromSlash(name)))
	if err != nil {
		return err
	}
	b, err := os.ReadFile(filepath.Join(other, filepath.FromSlash(name)))
	if err == nil && !bytes.Equal(a, b) {
		err = fmt.Errorf("%s of the forked tree is not upstream's", name)
	}
	return err
}

// mapperTest is upstream's test of the mapper, below a tree.
const mapperTest = "pkg/client/apiutil/restmapper_test.go"
