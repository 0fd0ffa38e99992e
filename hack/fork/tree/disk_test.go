// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
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

func TestSlotRoundTrip(t *testing.T) {
	slot, manifest := stage(t)
	got, err := Read(os.DirFS(slot.Dir))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range result().Files {
		exec := got[name].Exec == want.Exec || runtime.GOOS == "windows"
		if !bytes.Equal(got[name].Data, want.Data) || !exec {
			t.Errorf("%s came back as %+v", name, got[name])
		}
	}
	loaded, err := Load(slot.Dir)
	if err != nil || !loaded.Describes(result()) || *loaded.Saved["go.mod"].Before != *manifest.Saved["go.mod"].Before || loaded.Saved["go.sum"].Before != nil {
		t.Errorf("manifest came back as %+v, %v", loaded, err)
	}
	if slot.Interrupted() {
		t.Error("something is left over")
	}
}

func TestEdits(t *testing.T) {
	tests := map[string]struct {
		edit func(dir string) error
		want []string
	}{
		"none":    {func(string) error { return nil }, nil},
		"changed": {func(dir string) error { return os.WriteFile(filepath.Join(dir, "go.mod"), nil, 0o644) }, []string{"changed go.mod"}},
		"removed": {func(dir string) error { return os.RemoveAll(filepath.Join(dir, "a")) }, []string{"removed a/b/c.go"}},
		"added":   {func(dir string) error { return os.WriteFile(filepath.Join(dir, "a/x"), nil, 0o644) }, []string{"added a/x"}},
		"linked":  {func(dir string) error { return os.Symlink("go.mod", filepath.Join(dir, "link")) }, []string{"added link"}},
		"desktop": {func(dir string) error { return os.WriteFile(filepath.Join(dir, "a/.DS_Store"), nil, 0o644) }, nil},
		"notes":   {func(dir string) error { return os.WriteFile(filepath.Join(dir, Meta, "x"), nil, 0o644) }, nil},
		"deeper": {func(dir string) error { return os.MkdirAll(filepath.Join(dir, "a", Meta), 0o755) },
			nil}, // an empty folder is nothing
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
}

func TestEditedErrorNamesThree(t *testing.T) {
	err := EditedError("d", []string{"changed a", "added b", "removed c", "changed e"})
	const want = "d was edited by hand (changed a, added b, removed c and 1 more)"
	if !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "-force") {
		t.Error(err)
	}
}

func TestPutStopsAndCleans(t *testing.T) {
	slot := Slot{Dir: filepath.Join(t.TempDir(), "tree")}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := slot.Put(ctx, result().Files, NewManifest(result())); !errors.Is(err, context.Canceled) || slot.Interrupted() {
		t.Errorf("%v, left over: %v", err, slot.Interrupted())
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

func TestLoadRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(dir); !errors.Is(err, ErrNotOurs) {
		t.Errorf("no manifest: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, Meta), 0o755); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"{": "manifest.json", `{"format": 99}`: "format 99"} {
		if err := os.WriteFile(filepath.Join(dir, Meta, manifestName), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
