// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

func TestHelp(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := run([]string{"-h"}, &stdout, &stderr); code != 0 || stderr.Len() > 0 {
		t.Errorf("code %d, stderr %q", code, &stderr)
	}
	for _, want := range []string{"-o DIR", "-base", "-author", "git am", tree.Newest()} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, &stdout)
		}
	}
}

func TestUsage(t *testing.T) {
	forktest.Chdir(t, t.TempDir())
	forktest.Write(t, "taken", "notes.txt", "mine\n")
	for args, want := range map[string]string{
		"":                   "-o DIR is missing",
		"-o a b":             `unexpected argument "b"`,
		"-o a -base v0.19.0": "v0.19.0 is not supported",
		"-o a -author me":    "-author \"me\"",
		"-o taken":           "notes.txt",
		"-x":                 "not defined",
	} {
		t.Run(args, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(strings.Fields(args), &stdout, &stderr)
			said := stderr.String()
			if code != 1 || !strings.Contains(said, want) || strings.Count(said, "\n") != 1 || stdout.Len() > 0 {
				t.Errorf("code %d, stdout %q, stderr %q", code, &stdout, said)
			}
		})
	}
	if _, err := os.Stat("a"); err == nil {
		t.Error("a run that failed has left its folder")
	}
}

func TestStageReplacesEarlierSeries(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "series")
	forktest.Write(t, dir, "0009-old.patch", "")
	for range 2 {
		var stdout, stderr bytes.Buffer
		if code := run([]string{"-o", dir}, &stdout, &stderr); code != 0 {
			t.Fatal(&stderr)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 5 || strings.Count(stdout.String(), "\n") != 10 {
			t.Fatalf("%v, %v\n%s", entries, err, &stdout)
		}
		for i, entry := range entries {
			if !strings.HasPrefix(entry.Name(), "000"+string(rune('1'+i))+"-") {
				t.Errorf("%s is there", entry.Name())
			}
		}
	}
}
