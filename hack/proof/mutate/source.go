// SPDX-License-Identifier: Apache-2.0

package main

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
)

// find lists the changes that can be made to the files that match patterns, without tests
// and without what the Go here does not build.
func find(root string, patterns ...string) ([]*change, error) {
	f := &finder{}
	for _, pattern := range patterns {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(paths) == 0 {
			return nil, fmt.Errorf("no file is like %q: %w", pattern, err)
		}
		for _, path := range paths {
			if built, _ := build.Default.MatchFile(filepath.Split(path)); !built || strings.HasSuffix(path, "_test.go") {
				continue
			}
			if f.text, err = os.ReadFile(path); err != nil {
				return nil, err
			}
			f.file, f.fset = filepath.ToSlash(strings.TrimPrefix(path, root+"/")), token.NewFileSet()
			if f.parsed, err = parser.ParseFile(f.fset, f.file, f.text, parser.SkipObjectResolution); err != nil {
				return nil, err
			}
			f.find()
		}
	}
	return f.changes, nil
}

// choose picks n changes at random, by the hash of their keys: so nearly all are picked
// again when the code has changed elsewhere, and what was found of them still holds.
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

// overlay builds changes into copies of their files, in dir, and returns the file that
// has the go command take those in place of the originals.
func overlay(root, dir string, changes []*change) (string, error) {
	inFile := map[string][]*change{}
	for _, c := range changes {
		inFile[c.file] = append(inFile[c.file], c)
	}
	replace := map[string]string{}
	write := func(path string, text []byte) error {
		copied := filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		replace[filepath.Join(root, path)] = copied
		return os.WriteFile(copied, text, 0o644)
	}
	for file, those := range inFile {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return "", err
		}
		if err := write(file, with(those, text)); err != nil {
			return "", err
		}
		if err := write(filepath.Dir(file)+"/mutant.go", fmt.Appendf(nil, helper, those[0].pkg)); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, text, 0o644)
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
