// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
	"github.com/freshmapper/freshmapper/hack/stage/series"
	"github.com/freshmapper/freshmapper/hack/stage/small"
)

const author = "A U Thor <author@example.com>"

var newest = sync.OnceValues(func() (tree.Files, error) {
	return tree.Upstream(context.Background(), tree.Newest(), nil)
})

// stock is the newest release, for the caller to edit.
func stock(t *testing.T) tree.Files {
	t.Helper()
	files, err := newest()
	if err != nil {
		t.Fatal(err)
	}
	return maps.Clone(files)
}

// made makes a series for the newest release.
func made(t *testing.T) []series.Patch {
	t.Helper()
	changes, err := small.Changes(stock(t))
	if err != nil {
		t.Fatal(err)
	}
	patches, err := series.Make(context.Background(), author, stock(t), changes)
	if err != nil {
		t.Fatal(err)
	}
	return patches
}

// git runs git, as somebody.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	return forktest.Run(t, dir, "git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgSign=false"}, args...)...)
}

// repository makes a git repository of the newest release.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, file := range stock(t) {
		if err := file.Write(dir, name); err != nil {
			t.Fatal(err)
		}
	}
	git(t, dir, "init", "-q")
	git(t, dir, "add", "-A", "-f")
	git(t, dir, "commit", "-q", "-m", "upstream")
	return dir
}

// apply applies a patch with git am, and makes sure that it is one that upstream
// could take, and that the tree is then the one it was made from.
func apply(t *testing.T, dir string, patch series.Patch) {
	t.Helper()
	name := filepath.Join(t.TempDir(), patch.File)
	if err := os.WriteFile(name, patch.Mail, 0o644); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "am", "-q", name)
	said := func(format string) string {
		return strings.TrimSpace(git(t, dir, "log", "-1", "--check", "--format="+format))
	}
	subject, body := said("%s"), said("%b")
	if !strings.HasPrefix(subject, "✨ ") && !strings.HasPrefix(subject, "🐛 ") || strings.Contains(subject, "#") || len(subject) > 72 {
		t.Errorf("upstream would not take the title %q", subject)
	}
	if len(body) < 200 || strings.Contains(body, "diff --git") || strings.Contains(body, "#") {
		t.Errorf("the message is\n%s", body)
	}
	if by := said("%an <%ae>"); by != author {
		t.Errorf("the author is %s", by)
	}
	if whitespace := said(""); whitespace != "" {
		t.Errorf("whitespace:\n%s", whitespace)
	}
	sameTree(t, dir, patch.Files)
}

// sameTree compares a checkout with a tree.
func sameTree(t *testing.T, dir string, want tree.Files) {
	t.Helper()
	tracked := strings.Split(strings.TrimSpace(git(t, dir, "ls-files")), "\n")
	for _, name := range tracked {
		data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if file, ok := want[name]; err != nil || !ok || !bytes.Equal(data, file.Data) {
			t.Errorf("%s is not what the patch was made from: %v", name, err)
		}
	}
	for name := range want {
		if !slices.Contains(tracked, name) {
			t.Errorf("%s is missing", name)
		}
	}
}
