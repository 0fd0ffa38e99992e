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

// What needs each other comes in one slice, however the rest is packed. If that is
// too large, it is an error that names these files and no others.
func TestPack(t *testing.T) {
	files := example()
	files[at+"a.go"] = source(string(files[at+"a.go"].Data) + "\nfunc Long() {\n" + strings.Repeat("\t_ = 0\n", Limit-60) + "}\n")
	d := slice{files: files}
	needs, err := dependencies(files)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{at + "a.go", at + "b.go", at + "c.go", at + "d.go"}
	packed, err := d.pack("snapshot", names, needs, false)
	if err != nil || len(packed) != 2 || packed[0].files[at+"a.go"].Data == nil || packed[0].files[at+"b.go"].Data == nil {
		t.Errorf("%d slices, %v", len(packed), err)
	}
	files[at+"b.go"] = source(string(files[at+"b.go"].Data) + strings.Repeat("// long\n", 100))
	if _, err := d.pack("snapshot", names, needs, false); err == nil ||
		!strings.Contains(err.Error(), `stage "snapshot"`) || !strings.Contains(err.Error(), "b.go") || strings.Contains(err.Error(), "c.go") {
		t.Errorf("error: %v", err)
	}
}
