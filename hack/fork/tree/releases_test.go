// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper"
)

// The tool takes every release of a line, not only the newest. Upstream changes
// files within a line: it changed the namespaced client between v0.22.0 and
// v0.22.4.
func TestEveryReleaseFitsTogether(t *testing.T) {
	for _, version := range everyRelease(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			upstream := upstreamOf(t, version)
			made, err := Generate(version, maps.Clone(upstream), freshmapper.Source)
			if err != nil {
				t.Fatal(err)
			}
			for _, dir := range changedFolders(upstream, made) {
				for _, problem := range problems(t, made, dir) {
					t.Error(problem)
				}
			}
		})
	}
}

// The check finds the faults that it is for.
func TestProblems(t *testing.T) {
	files := Files{"p/a.go": {Data: []byte(`package p

import (
	"example.com/unknown"
	"fmt"
)

func f() int {
	left := 1
	return absent + unknown.Value
}
`)}}
	got := strings.Join(problems(t, files, "p"), "\n")
	for _, want := range []string{"undefined: absent", "declared and not used: left", `"fmt" imported and not used`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "unknown.Value") {
		t.Errorf("what is imported is not looked at, but:\n%s", got)
	}
}

// everyRelease lists the releases of all lines up to the newest tested ones.
func everyRelease(t *testing.T) (versions []string) {
	t.Helper()
	for _, line := range Lines {
		newest, err := strconv.Atoi(strings.TrimPrefix(line.Newest, line.Minor+"."))
		if err != nil {
			t.Fatal(err)
		}
		for patch := range newest + 1 {
			versions = append(versions, fmt.Sprintf("%s.%d", line.Minor, patch))
		}
	}
	return versions
}

// changedFolders are those of upstream's that a made tree has changed, or added to.
func changedFolders(upstream, made Files) []string {
	theirs, folders := goDirs(upstream), map[string]bool{}
	for name, file := range made {
		if dir := path.Dir(name); theirs[dir] && strings.HasSuffix(name, ".go") && string(upstream[name].Data) != string(file.Data) {
			folders[dir] = true
		}
	}
	return slices.Sorted(maps.Keys(folders))
}

// seen matches the faults that a type check finds without the imported packages.
var seen = regexp.MustCompile(`undefined: [\w]+$|declared and not used|imported and not used|redeclared|already declared|missing return`)

// problems checks the types of the package in a folder, its tests left out.
func problems(t *testing.T, files Files, dir string) (found []string) {
	t.Helper()
	fset := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Dir(name) != dir || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, files[name].Data, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, file)
	}
	config := types.Config{
		Importer: empty{},
		Error: func(err error) {
			if seen.MatchString(err.Error()) {
				found = append(found, fmt.Sprint(err))
			}
		},
	}
	_, _ = config.Check(dir, fset, parsed, nil) // Error has them
	return found
}

// empty imports packages as empty ones: the check is not about what they hold.
type empty struct{}

func (empty) Import(name string) (*types.Package, error) {
	base := path.Base(name)
	if majorVersion.MatchString(base) {
		base = path.Base(path.Dir(name))
	}
	p := types.NewPackage(name, base)
	p.MarkComplete()
	return p, nil
}

var majorVersion = regexp.MustCompile(`^v[0-9]+$`)
