// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestEdits(t *testing.T) {
	files := Files{"go.mod": []byte("module m\n"), "a/b/c.go": []byte("package b\n")}
	write := func(name string) func(string) error {
		return func(dir string) error { return Write(dir, name, nil) }
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
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for name, data := range files {
				if err := Write(dir, name, data); err != nil {
					t.Fatal(err)
				}
			}
			if err := test.edit(dir); err != nil {
				t.Skip(err)
			}
			got, err := NewManifest("v0.25.2", files).Edits(dir)
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
