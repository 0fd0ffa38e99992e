// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// "go run .../hack/fork@version" works without a checkout: nothing in go.mod
// forbids it (a replace or an exclude would), and the sources are inside the tool.
func TestRunAtVersion(t *testing.T) {
	const version = "v0.99.0"
	repository := filepath.Join(t.TempDir(), "freshmapper")
	root := filepath.Join("..", "..")
	for _, name := range strings.Fields(forktest.Run(t, root, "git", "ls-files", "--cached", "--others", "--exclude-standard")) {
		if tree.Exists(filepath.Join(root, name)) { // else it was removed, and that is not yet committed
			forktest.Write(t, repository, name, forktest.Text(t, root, name))
		}
	}
	forktest.Run(t, repository, "git", "init", "-q")
	forktest.Commit(t, repository)
	forktest.Run(t, repository, "git", "tag", version)

	forktest.Proxy(t, repository, tree.Ours+"@"+version)
	dir := t.TempDir()
	said := forktest.Run(t, dir, "go", "run", tree.Ours+"/hack/fork@"+version, "-V")
	if !strings.HasPrefix(said, "fork "+version+", mapper ") || strings.Contains(said, "unreadable") {
		t.Errorf("-V said %q", said)
	}
	if help := forktest.Run(t, dir, "go", "run", tree.Ours+"/hack/fork@"+version, "-h"); !strings.Contains(help, "go run "+tree.Ours+"/hack/fork@"+version+" -into") {
		t.Errorf("-h does not say how to run it again:\n%s", help)
	}
	if help := forktest.Run(t, dir, "go", "run", tree.Ours+"/hack/release@"+version, "-h"); !strings.Contains(help, "-repo DIR") {
		t.Errorf("release -h said\n%s", help)
	}
}

// "go run" runs a program in a temporary folder or in the build cache, which may have
// any name.
func TestSelf(t *testing.T) {
	was := os.Args
	defer func() { os.Args = was }()
	cached := "/ci/cache/ca/" + strings.Repeat("0a", 32) + "-d/fork"
	for started, mine := range map[string]bool{"/tmp/go-build1/b001/exe/fork": false, cached: false, "/usr/bin/fork": true} {
		os.Args = []string{started}
		if got := self(); (got == started) != mine || !mine && !strings.HasPrefix(got, "go run ") {
			t.Errorf("started as %s it calls itself %q", started, got)
		}
	}
}
