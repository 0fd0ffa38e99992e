// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestHistories(t *testing.T) {
	t.Chdir("..") // where the command is run
	out := t.TempDir()
	if err := run(context.Background(), options{histories: 5, seed: 1}, out); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(out, "histories.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"checked 20 random histories", "| aggregated | 1 | 5 |", "| legacy | 1 | 5 |"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page does not say %q:\n%s", want, page)
		}
	}
}

// A run that does not come to an end is no run without failures.
func TestBrokenRun(t *testing.T) {
	t.Chdir("..")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := run(ctx, options{histories: 1, seed: 1}, t.TempDir()); err == nil {
		t.Error("no error")
	}
}
