// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/freshmapper/freshmapper/hack/dev/proc"
)

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
	version := filepath.Join(dir, filepath.FromSlash(storePath()), "1.28.0-"+f.platform)
	if err := os.MkdirAll(version, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of the store: %w", err)
	}
	for _, program := range append(programs[:len(programs):len(programs)], "kubectl") {
		if err := link(filepath.Join(assets, program), filepath.Join(version, program)); err != nil {
			return nil, fmt.Errorf("fill the store: %w", err)
		}
	}
	if runtime.GOOS != "darwin" {
		return []string{"XDG_DATA_HOME=" + dir}, nil
	}
	// Only HOME leads to the store there, and Go's caches should not move with it.
	said, err := proc.Output(ctx, "", nil, "go", "env", "GOPATH", "GOMODCACHE", "GOCACHE")
	paths := strings.Split(said, "\n")
	if err != nil || len(paths) != 3 {
		return nil, fmt.Errorf("ask go env for its caches: %q: %w", said, err)
	}
	return []string{"GOPATH=" + paths[0], "GOMODCACHE=" + paths[1], "GOCACHE=" + paths[2], "HOME=" + dir}, nil
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
