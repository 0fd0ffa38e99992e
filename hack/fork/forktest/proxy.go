// SPDX-License-Identifier: Apache-2.0

package forktest

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Proxy has the go command get a module with git, from a folder that stands in
// for its host, and returns the folder of what it got, in the form of a proxy.
func Proxy(t *testing.T, repository, module string) string {
	t.Helper()
	// The go command keeps an index of each module version for good. Here the same
	// version is something else in each run.
	t.Setenv("GODEBUG", "goindex=0")
	path, _, _ := strings.Cut(module, "@")
	cache := t.TempDir()
	t.Cleanup(func() { Scrap(t, cache) })
	cmd := exec.Command("go", "mod", "download", module)
	cmd.Dir = t.TempDir()
	cmd.Env = append(cmd.Environ(), "GOWORK=off", "GOMODCACHE="+cache, "GOPROXY=direct", "GONOSUMDB=*",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://"+filepath.ToSlash(repository)+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+strings.TrimSuffix(path, ".git"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(cache, "cache", "download")
}

// Scrap removes folders of a module cache, whose files are read-only.
func Scrap(t *testing.T, folders ...string) {
	t.Helper()
	for _, folder := range folders {
		_ = filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				err = os.Chmod(name, 0o755)
			}
			return err
		})
		if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	}
}
