// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func result() *Result {
	return &Result{Version: "v0.25.2", Files: Files{
		"go.mod":      {Data: []byte("module m\n")},
		"a/b/c.go":    {Data: []byte("package b\n")},
		"hack/run.sh": {Data: []byte("#!/bin/sh\n"), Exec: true},
	}}
}

// stage writes result into a slot's place.
func stage(t *testing.T) (Slot, *Manifest) {
	t.Helper()
	slot := Slot{Dir: filepath.Join(t.TempDir(), "tree")}
	manifest := NewManifest(result())
	text := "module was\n"
	manifest.Saved = map[string]Saved{"go.mod": {Before: &text, Written: "1"}, "go.sum": {}}
	if err := slot.Put(context.Background(), result().Files, manifest); err != nil {
		t.Fatal(err)
	}
	return slot, manifest
}

func TestRoundTrip(t *testing.T) {
	slot, manifest := stage(t)
	if got, err := Read(os.DirFS(slot.Dir)); err != nil || !reflect.DeepEqual(got, result().Files) {
		t.Errorf("the tree came back as %+v, %v", got, err)
	}
	loaded, err := Load(slot.Dir)
	if err != nil || !loaded.Describes(result()) || !reflect.DeepEqual(loaded, manifest) {
		t.Errorf("manifest came back as %+v, %v", loaded, err)
	}
	if slot.Interrupted() {
		t.Error("something is left over")
	}
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

// A Put that is taken back, also by a later run, leaves the tree that was there.
func TestPutIsTakenBack(t *testing.T) {
	for name, takeBack := range map[string]func(Slot) error{
		"reverted": Slot.Revert,
		"killed":   Slot.Clear,
		"killed between two renames": func(s Slot) error {
			return errors.Join(os.Rename(s.Dir, s.staged()), s.Clear())
		},
		"cancelled": func(s Slot) error {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if err := errors.Join(s.Revert(), s.Put(ctx, result().Files, NewManifest(result()))); !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			slot, _ := stage(t)
			next := Files{"go.mod": {Data: []byte("module next\n")}}
			put := func(want string, then func(Slot) error) {
				t.Helper()
				err := slot.Put(context.Background(), next, NewManifest(&Result{Files: next}))
				if err == nil {
					err = then(slot)
				}
				data, _ := os.ReadFile(filepath.Join(slot.Dir, "go.mod"))
				if err != nil || string(data) != want || slot.Interrupted() {
					t.Errorf("%q, want %q; %v", data, want, err)
				}
			}
			put("module m\n", takeBack)
			put("module next\n", Slot.Keep)
			put("", func(s Slot) error { return errors.Join(s.Keep(), s.Remove(), s.Remove()) })
		})
	}
}
