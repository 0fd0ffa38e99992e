// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/build"
	"go/parser"
	"go/token"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// find lists the changes that can be made to the files that match patterns, without tests
// and without what the Go here does not build.
func find(t *testing.T, root string, patterns ...string) []*change {
	t.Helper()
	f := &finder{}
	for _, pattern := range patterns {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("no file matches %q: %v", pattern, err)
		}
		for _, path := range paths {
			if built, err := build.Default.MatchFile(filepath.Split(path)); err != nil {
				t.Fatal(err)
			} else if built && !strings.HasSuffix(path, "_test.go") {
				f.read(t, root, path)
			}
		}
	}
	return f.changes
}

func (f *finder) read(t *testing.T, root, path string) {
	t.Helper()
	var err error
	if f.text, err = os.ReadFile(path); err == nil {
		f.file, f.fset = filepath.ToSlash(strings.TrimPrefix(path, root+"/")), token.NewFileSet()
		f.parsed, err = parser.ParseFile(f.fset, f.file, f.text, parser.SkipObjectResolution)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.find()
}

// choose picks n changes at random, by the hash of their keys. So if other code
// changes, it picks nearly all of them again, and their results still hold.
func choose(all []*change, n int, seed uint64) []*change {
	hash := func(c *change) uint64 {
		h := fnv.New64a()
		fmt.Fprintf(h, "%s %d", c.key(), seed)
		return rand.NewPCG(h.Sum64(), seed).Uint64() // FNV alone leaves like keys close together
	}
	chosen := slices.SortedFunc(slices.Values(all), func(a, b *change) int { return cmp.Compare(hash(a), hash(b)) })[:min(n, len(all))]
	slices.SortFunc(chosen, func(a, b *change) int { return cmp.Compare(a.id, b.id) })
	return chosen
}

// helper is the file that each changed package gets.
const helper = `package %s

import (
	"os"
	"strconv"
)

var theMutant, _ = strconv.Atoi(os.Getenv("MUTANT"))

func mutated(id int) bool { return id == theMutant }

func mutatedChoice[T any](id int, would, is T) T {
	if mutated(id) {
		return would
	}
	return is
}

func mutatedNumber[T ~int | ~int64 | ~uint64 | ~float64](id int, n T) T {
	if mutated(id) {
		return n + 1
	}
	return n
}
`

// overlay builds changes into copies of their files, in dir. It returns the file
// that makes the go command use the copies in place of the originals.
func overlay(t *testing.T, root, dir string, changes []*change) string {
	t.Helper()
	write := func(name string, text []byte) string {
		name = filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(name, text, 0o644); err != nil {
			t.Fatal(err)
		}
		return name
	}
	inFile := map[string][]*change{}
	for _, c := range changes {
		inFile[c.file] = append(inFile[c.file], c)
	}
	replace := map[string]string{}
	for file, those := range inFile {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(root, file)] = write(file, with(those, text))
		mutant := filepath.Dir(file) + "/mutant.go"
		replace[filepath.Join(root, mutant)] = write(mutant, fmt.Appendf(nil, helper, those[0].pkg))
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	return write("overlay.json", text)
}

// with is the text of a file with changes in it, each around those that are inside of it.
func with(changes []*change, text []byte) []byte {
	slices.SortStableFunc(changes, func(a, b *change) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end))
	})
	before, after := map[int]string{}, map[int]string{}
	for _, c := range changes {
		before[c.start] += c.before
		after[c.end] = c.after + after[c.end]
	}
	var out bytes.Buffer
	for i, b := range text {
		out.WriteString(after[i] + before[i])
		out.WriteByte(b)
	}
	return out.Bytes()
}
