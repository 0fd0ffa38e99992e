// SPDX-License-Identifier: Apache-2.0

package series

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper/hack/fork/forktest"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

func text(s string) tree.File { return tree.File{Data: []byte(s)} }

// git applies what we write and gets what we meant, for many random changes at
// once: files that come, go and change anywhere, with and without a last newline.
func TestDiffApplies(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	from, to := tree.Files{}, tree.Files{}
	for i := range 400 {
		name := fmt.Sprintf("dir%d/file%d", i%7, i)
		before := randomLines(rng, rng.IntN(40))
		after := randomEdit(rng, before)
		if i%10 > 0 {
			from[name] = text(before)
		}
		if i%11 > 0 {
			to[name] = text(after)
		}
	}
	to["run.sh"] = tree.File{Data: []byte("#!/bin/sh\n"), Exec: true}
	from["empty"], to["nothing"] = text(""), text("")
	applied(t, from, to)
}

func randomLines(rng *rand.Rand, n int) string {
	var out strings.Builder
	for range n {
		fmt.Fprintln(&out, []string{"{", "}", "", "return", "x", "yy"}[rng.IntN(6)])
	}
	return out.String()
}

func randomEdit(rng *rand.Rand, before string) string {
	edited := lines(before)
	for range rng.IntN(5) {
		at := rng.IntN(len(edited) + 1)
		switch {
		case rng.IntN(2) == 0:
			edited = slices.Insert(edited, at, fmt.Sprintf("line %d\n", rng.IntN(3)))
		case at < len(edited):
			edited = slices.Delete(edited, at, min(len(edited), at+1+rng.IntN(3)))
		}
	}
	after := strings.Join(edited, "")
	if rng.IntN(4) == 0 {
		after = strings.TrimSuffix(after, "\n")
	}
	return after
}

// applied fails the test unless git makes to of from with our diff.
func applied(t *testing.T, from, to tree.Files) {
	t.Helper()
	diff, err := diffTrees(from, to)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, dir, from)
	forktest.Run(t, dir, "git", "init", "-q")
	patch := filepath.Join(t.TempDir(), "patch")
	if err := os.WriteFile(patch, []byte(diff), 0o644); err != nil {
		t.Fatal(err)
	}
	forktest.Run(t, dir, "git", "apply", "--whitespace=nowarn", patch)
	wantTree(t, dir, to)
}

func write(t *testing.T, dir string, files tree.Files) {
	t.Helper()
	for name, file := range files {
		forktest.Write(t, dir, name, string(file.Data))
		if file.Exec {
			if err := os.Chmod(filepath.Join(dir, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// wantTree compares a folder, git's own aside, with a tree.
func wantTree(t *testing.T, dir string, want tree.Files) {
	t.Helper()
	got := forktest.Snapshot(t, dir)
	for name, file := range want {
		is, ok := got[name]
		switch {
		case !ok:
			t.Errorf("%s is missing", name)
		case !strings.HasSuffix(is, tree.Digest(file.Data)):
			t.Errorf("%s is different", name)
		case strings.HasPrefix(is, "-rwx") != file.Exec:
			t.Errorf("%s has mode %.10s", name, is)
		}
	}
	for name, is := range got {
		if _, ok := want[name]; !ok && is != "folder" {
			t.Errorf("%s should not be there", name)
		}
	}
}

func TestDiffText(t *testing.T) {
	const from = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n"
	tests := map[string]struct{ to, want string }{
		"none": {from, ""},
		"one":  {strings.Replace(from, "6\n", "six\n", 1), "@@ -3,7 +3,7 @@\n 3\n 4\n 5\n-6\n+six\n 7\n 8\n 9\n"},
		"near": {strings.NewReplacer("2\n3", "3", "9\n", "").Replace(from),
			"@@ -1,12 +1,10 @@\n 1\n-2\n 3\n 4\n 5\n 6\n 7\n 8\n-9\n 10\n 11\n 12\n"},
		"far": {strings.NewReplacer("1\n2\n", "2\n", "12\n", "").Replace(from),
			"@@ -1,4 +1,3 @@\n-1\n 2\n 3\n 4\n@@ -9,4 +8,3 @@\n 9\n 10\n 11\n-12\n"},
		"no newline": {strings.TrimSuffix(from, "\n"),
			"@@ -9,4 +9,4 @@\n 9\n 10\n 11\n-12\n+12\n\\ No newline at end of file\n"},
		"gone": {"", "@@ -1,12 +0,0 @@\n-" + strings.ReplaceAll(strings.TrimSuffix(from, "\n"), "\n", "\n-") + "\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := diffLines(from, test.to); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

func TestDiffRefuses(t *testing.T) {
	for want, files := range map[string][2]tree.Files{
		"not text":    {{}, {"a": text("\x00")}},
		"CRLF":        {{"a": text("a\r\n")}, {}},
		"its mode":    {{"a": text("a")}, {"a": {Data: []byte("a"), Exec: true}}},
		"would quote": {{}, {"a b": text("")}},
	} {
		_, err := diffTrees(files[0], files[1])
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
