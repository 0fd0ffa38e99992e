// SPDX-License-Identifier: Apache-2.0

package full

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

func TestStageOf(t *testing.T) {
	for name, want := range map[string]string{
		"internal/snapshot/group.go":      "snapshot",
		"internal/snapshot/group_test.go": "snapshot",
		"internal/fakeapi/server.go":      "server",
		"internal/fakeapi/server_test.go": last,
		"restmapper.go":                   switching,
		"requests_test.go":                "lifecycle",
		"testdata/requests/a.txt":         "lifecycle",
	} {
		if i, err := stageOf(apiutilDir + name); err != nil || stages[i].name != want {
			t.Errorf("%s: stage %d, %v; want %s", name, i, err, want)
		}
	}
	for name, want := range map[string]string{
		apiutilDir + "internal/new/new.go":      "belongs to no stage",
		apiutilDir + "internal/new/new_test.go": "belongs to no stage",
		"pkg/cache/cache.go":                    "is outside of",
	} {
		if _, err := stageOf(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A file that two stages claim is an error, and not the first one's.
func TestStagesExcludeEachOther(t *testing.T) {
	old := stages
	t.Cleanup(func() { stages = old })
	stages = append(slices.Clone(old), stage{name: "second", code: []string{"internal/..."}})
	if _, err := stageOf(apiutilDir + "internal/reload/reload.go"); err == nil || !strings.Contains(err.Error(), `two stages, "engine" and "second"`) {
		t.Errorf("error: %v", err)
	}
}

func source(text string) tree.File { return tree.File{Data: []byte(text)} }

const at = apiutilDir + "internal/snapshot/"

func example() tree.Files {
	return tree.Files{
		at + "a.go": source("package snapshot\n\nimport (\n\t\"fmt\"\n\t\"strings\"\n)\n\n// A is a type.\ntype A struct{ b *B }\n\nfunc (a *A) String() string { return fmt.Sprint(a.b) }\n\n" +
			"// Low needs nothing.\nfunc Low() int { return len(strings.TrimSpace(\"\")) }\n"),
		at + "b.go":             source("package snapshot\n\n// B needs A.\ntype B struct{ a *A }\n\nfunc (a *A) More() int { return Low() }\n"),
		at + "c.go":             source("package snapshot\n\nfunc C(a A) int { return a.More() }\n"),
		at + "d.go":             source("package snapshot\n\nvar a = 1 // no use of A\n"),
		at + "c_test.go":        source("package snapshot\n\nimport \"testing\"\n\nfunc TestC(t *testing.T) { help(t) }\n"),
		at + "help_test.go":     source("package snapshot\n\nimport \"testing\"\n\nfunc help(t *testing.T) {}\n"),
		at + "testdata/one.txt": source("1\n"),
	}
}

func TestDependencies(t *testing.T) {
	needs, err := dependencies(example())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"a.go":         "b.go",
		"b.go":         "a.go",
		"c.go":         "a.go b.go",
		"d.go":         "",
		"c_test.go":    "a.go b.go c.go d.go help_test.go testdata/one.txt",
		"help_test.go": "a.go b.go c.go d.go testdata/one.txt",
	} {
		if got := strings.ReplaceAll(strings.Join(needs[at+name], " "), at, ""); got != want {
			t.Errorf("%s needs %q, want %q", name, got, want)
		}
	}
}

func TestOrdered(t *testing.T) {
	files := example()
	needs, err := dependencies(files)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	got := strings.ReplaceAll(fmt.Sprint(ordered(names, needs)), at, "")
	if want := "[[a.go b.go] [c.go] [d.go] [testdata/one.txt] [help_test.go] [c_test.go]]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// What is too large for one slice is split between declarations, so that each
// part stands by itself and the last is the file as it is.
func TestSplit(t *testing.T) {
	files := example()
	long := func(name string) string {
		return "\n// " + name + " is long.\nfunc " + name + "() {\n" + strings.Repeat("\t_ = 0\n", 500) + "}\n"
	}
	files[at+"a.go"] = source(string(files[at+"a.go"].Data) + long("One") + long("Two"))
	files[at+"b.go"] = source(string(files[at+"b.go"].Data) + long("Three"))
	parts, err := split("snapshot", []string{at + "a.go", at + "b.go"}, files)
	if err != nil || len(parts) != 2 {
		t.Fatalf("%d parts, %v", len(parts), err)
	}
	first := parts[0]
	for name, file := range first {
		if n := lines(file); n > Limit {
			t.Errorf("%s has %d lines", name, n)
		}
		if _, err := dependencies(first); err != nil {
			t.Error(err)
		}
	}
	if text := string(first[at+"a.go"].Data); strings.Contains(text, "func Two") && strings.Contains(string(first[at+"b.go"].Data), "func Three") {
		t.Errorf("everything is in the first part:\n%s", text)
	}
	last := tree.Files{}
	for _, part := range parts {
		for name, file := range part {
			last[name] = file
		}
	}
	for name, file := range last {
		if string(file.Data) != string(files[name].Data) {
			t.Errorf("%s is not whole in the end", name)
		}
	}
	files[at+"a.go"] = source(string(files[at+"a.go"].Data) + long("One") + "\n// Huge\nfunc Huge() {\n" + strings.Repeat("\t_ = 0\n", 1000) + "}\n")
	if _, err := split("snapshot", []string{at + "a.go", at + "b.go"}, files); err == nil || !strings.Contains(err.Error(), `stage "snapshot"`) {
		t.Errorf("error: %v", err)
	}
}

// An import goes with the last that uses it.
func TestSplitImports(t *testing.T) {
	files := example()
	long := "\nfunc Long() {\n" + strings.Repeat("\t_ = 0\n", 700) + "}\n\nfunc Long2() {\n" + strings.Repeat("\t_ = 0\n", 700) + "}\n"
	files[at+"a.go"] = source(strings.Replace(string(files[at+"a.go"].Data), "// A is", long+"\n// A is", 1))
	parts, err := split("snapshot", []string{at + "a.go"}, files)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(parts[0][at+"a.go"].Data); strings.Contains(text, "strings") != strings.Contains(text, "Low()") || !strings.HasPrefix(text, "package snapshot\n") {
		t.Errorf("the first part is\n%.300s", text)
	}
}
