// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/build"
	"go/format"
	"go/parser"
	"go/printer"
	"go/token"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// source is a file that can be changed.
type source struct {
	path    string // from the root of the repository
	header  string // what comes before its package clause
	parsed  *ast.File
	fset    *token.FileSet
	changes []*change
}

// readSource parses a file without its comments, which would get in the way.
func readSource(root, path string) (*source, error) {
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return nil, err
	}
	s := &source{path: path, fset: token.NewFileSet()}
	if s.parsed, err = parser.ParseFile(s.fset, path, text, parser.SkipObjectResolution); err != nil {
		return nil, err
	}
	s.header = string(text[:s.fset.Position(s.parsed.Package).Offset])
	s.changes = changesOf(s.fset, path, s.parsed)
	return s, nil
}

// find lists the sources that match patterns, without tests and without those that the
// Go here does not build.
func find(root string, patterns []string) ([]*source, error) {
	var sources []*source
	for _, pattern := range patterns {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(paths) == 0 {
			return nil, fmt.Errorf("no file is like %q: %w", pattern, err)
		}
		for _, path := range paths {
			built, err := build.Default.MatchFile(filepath.Split(path))
			if err != nil {
				return nil, err
			}
			if !built || strings.HasSuffix(path, "_test.go") {
				continue
			}
			if path, err = filepath.Rel(root, path); err != nil {
				return nil, err
			}
			s, err := readSource(root, filepath.ToSlash(path))
			if err != nil {
				return nil, err
			}
			sources = append(sources, s)
		}
	}
	return sources, nil
}

// choose picks n changes at random, by the hash of their keys: so nearly all are picked
// again when the code has changed elsewhere, and what was found of them still holds.
func choose(all []*change, n int, seed uint64) []*change {
	hash := func(c *change) uint64 {
		h := fnv.New64a()
		fmt.Fprintf(h, "%s %d", c.key(), seed)
		return rand.NewPCG(h.Sum64(), seed).Uint64() // FNV alone leaves like keys close together
	}
	ordered := slices.SortedFunc(slices.Values(all), func(a, b *change) int { return cmp.Compare(hash(a), hash(b)) })
	picked := map[*change]bool{}
	for _, c := range ordered[:min(n, len(all))] {
		picked[c] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(c *change) bool { return !picked[c] })
}

// overlay builds changes into copies of the sources, in dir, and returns the file
// that has the go command take those in place of the originals. The number of a
// change is its index and 1.
func overlay(root, dir string, sources []*source, changes []*change) (string, error) {
	for _, i := range inOrder(changes) {
		changes[i].build(i + 1)
	}
	replace := map[string]string{}
	write := func(path string, text []byte) error {
		replace[filepath.Join(root, path)] = filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		return os.WriteFile(replace[filepath.Join(root, path)], text, 0o644)
	}
	for _, s := range sources {
		text := bytes.NewBufferString(s.header)
		if err := format.Node(text, s.fset, s.parsed); err != nil {
			return "", fmt.Errorf("print %s: %w", s.path, err)
		}
		if err := write(s.path, text.Bytes()); err != nil {
			return "", err
		}
		if err := write(filepath.Dir(s.path)+"/mutant.go", fmt.Appendf(nil, helper, s.parsed.Name.Name)); err != nil {
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

// textOf is the text of a node in one line, not too long.
func textOf(n ast.Node) string {
	var text strings.Builder
	if err := printer.Fprint(&text, token.NewFileSet(), n); err != nil {
		return err.Error()
	}
	words := []rune(strings.Join(strings.Fields(text.String()), " "))
	const most = 100
	if len(words) > most {
		words = append(words[:most], '…')
	}
	return string(words)
}
