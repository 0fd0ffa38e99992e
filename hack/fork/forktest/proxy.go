// SPDX-License-Identifier: Apache-2.0

package forktest

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// Proxy makes the go command get a module with git, from a folder that stands in
// for its host. From then on the go command gets it from a proxy, as it gets all
// else. Proxy returns the module cache, which has nothing of the module before and
// after.
func Proxy(t *testing.T, repository, module string) (cache string) {
	t.Helper()
	// The go command keeps an index of each module version for good. In this test
	// the same version has other contents in each run.
	t.Setenv("GODEBUG", "goindex=0")
	name, _, _ := strings.Cut(module, "@")
	t.Setenv("GOFLAGS", os.Getenv("GOFLAGS")+" -modcacherw") // so that it can be removed
	got := t.TempDir()
	cmd := exec.Command("go", "mod", "download", module)
	cmd.Dir = t.TempDir()
	cmd.Env = append(cmd.Environ(), "GOWORK=off", "GOMODCACHE="+got, "GOPROXY=direct", "GONOSUMDB=*",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://"+filepath.ToSlash(repository)+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+strings.TrimSuffix(name, ".git"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	env := strings.Fields(Run(t, cmd.Dir, "go", "env", "GOMODCACHE", "GOPROXY"))
	owner := path.Dir(name)
	clean := func() {
		for _, has := range []string{owner, filepath.Join("cache", "download", owner)} {
			if err := os.RemoveAll(filepath.Join(env[0], has)); err != nil {
				t.Error(err)
			}
		}
	}
	clean()
	t.Cleanup(clean)
	t.Setenv("GOPROXY", "file://"+filepath.ToSlash(filepath.Join(got, "cache", "download"))+","+env[1])
	t.Setenv("GONOSUMDB", owner)
	return env[0]
}
