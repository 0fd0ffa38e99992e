// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// put writes a small tree.
func put(t *testing.T) (dir string, m *Manifest) {
	t.Helper()
	files := Files{
		"go.mod":      []byte("module m\n"),
		"a/b/c.go":    []byte("package b\n"),
		"hack/run.sh": []byte("#!/bin/sh\n"),
	}
	dir, m = filepath.Join(t.TempDir(), "tree"), NewManifest("v0.25.2", files)
	err := Place(dir).Stage(context.Background(), files)
	if err == nil {
		err = Place(dir).Put(m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir, m
}

func TestEdits(t *testing.T) {
	write := func(name string) func(string) error {
		return func(dir string) error { return os.WriteFile(filepath.Join(dir, name), nil, 0o644) }
	}
	tests := map[string]struct {
		edit func(dir string) error
		want []string
	}{
		"none":    {func(string) error { return nil }, nil},
		"changed": {write("go.mod"), []string{"changed go.mod"}},
		"removed": {func(dir string) error { return os.RemoveAll(filepath.Join(dir, "a")) }, []string{"removed a/b/c.go"}},
		"added":   {write("a/x"), []string{"added a/x"}},
		"linked":  {func(dir string) error { return os.Symlink("go.mod", filepath.Join(dir, "link")) }, []string{"added link"}},
		"desktop": {write("a/.DS_Store"), nil},
		"notes":   {write(Meta + "/x"), nil},
		"an empty folder is nothing": {func(dir string) error { return os.MkdirAll(filepath.Join(dir, "a", Meta), 0o755) },
			nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir, manifest := put(t)
			if err := test.edit(dir); err != nil {
				t.Skip(err)
			}
			got, err := manifest.Edits(dir)
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
	err := EditedError("d", []string{"changed a", "added b", "removed c", "changed e"})
	if !strings.HasPrefix(err.Error(), "d was edited by hand (changed a, added b, removed c and 1 more)") {
		t.Error(err)
	}
}
