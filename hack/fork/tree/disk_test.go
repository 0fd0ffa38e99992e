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

func result() *Result {
	return &Result{Version: "v0.25.2", Files: Files{
		"go.mod":      []byte("module m\n"),
		"a/b/c.go":    []byte("package b\n"),
		"hack/run.sh": []byte("#!/bin/sh\n"),
	}}
}

// stage writes result into a slot's place.
func stage(t *testing.T) (Slot, *Manifest) {
	t.Helper()
	slot := Slot{Dir: filepath.Join(t.TempDir(), "tree")}
	manifest := NewManifest(result())
	if err := slot.Put(context.Background(), result().Files, manifest); err != nil {
		t.Fatal(err)
	}
	return slot, manifest
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
			slot, manifest := stage(t)
			if err := test.edit(slot.Dir); err != nil {
				t.Skip(err)
			}
			got, err := manifest.Edits(slot.Dir)
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
