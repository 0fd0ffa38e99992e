// SPDX-License-Identifier: Apache-2.0

// Package full makes the full series: this project's mapper in the place of
// upstream's, in slices that build and pass their tests one after the other.
package full

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
	"github.com/freshmapper/freshmapper/hack/stage/series"
)

// Limit is how many lines a slice adds at most, with its tests.
const Limit = 1500

// table lists the slices: the purpose of each, then its files.
//
//go:embed slices.txt
var table string

// messages are the commit messages, by purpose.
//
//go:embed messages
var messages embed.FS

// A slice is one patch of the series.
type slice struct {
	purpose string
	part    int // a purpose may need several slices
	files   []string
}

// Changes lists the series. If hack/fork has a patch with the name of a slice, that
// patch makes the slice's files; else hack/fork's first patch does, which puts the
// mapper in.
func Changes(base string, upstream tree.Files, ours fs.FS) ([]series.Change, error) {
	steps, err := tree.Steps(base, upstream, ours)
	if err != nil {
		return nil, err
	}
	all, parts := parse(table)
	files := maps.Clone(upstream)
	var changes []series.Change
	for _, s := range all {
		from := steps[0].Files
		if i := slices.IndexFunc(steps, func(step tree.Step) bool { return step.Patch == s.purpose }); i >= 0 {
			from = steps[i].Files
		}
		for _, name := range s.files {
			if file, ok := from[name]; ok {
				files[name] = file
			} else {
				delete(files, name) // upstream's, or of a newer release
			}
		}
		message, err := s.message(parts[s.purpose])
		if err != nil {
			return nil, err
		}
		changes = append(changes, series.Change{Message: message, Files: maps.Clone(files)})
	}
	return changes, complete(files, steps[len(steps)-1].Files)
}

// parse returns the slices, and how many there are of each purpose.
func parse(table string) (all []slice, parts map[string]int) {
	parts = map[string]int{}
	for _, paragraph := range strings.Split(table, "\n\n")[1:] { // the first says what this is
		fields := strings.Fields(paragraph)
		purpose := strings.TrimSuffix(fields[0], ":")
		parts[purpose]++
		all = append(all, slice{purpose: purpose, part: parts[purpose], files: fields[1:]})
	}
	return all, parts
}

func (s slice) message(of int) (string, error) {
	text, err := messages.ReadFile("messages/" + s.purpose + ".txt")
	if err != nil || of == 1 {
		return string(text), err
	}
	subject, body, _ := strings.Cut(string(text), "\n")
	return fmt.Sprintf("%s (%d of %d)\n%s", subject, s.part, of, body), nil
}

// complete returns an error if the series does not end with the fork.
func complete(got, want tree.Files) error {
	is, should := got.Digests(), want.Digests()
	wrong := maps.Clone(is)
	maps.Copy(wrong, should)
	maps.DeleteFunc(wrong, func(name, _ string) bool { return is[name] == should[name] })
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("no slice brings what the fork makes of %s: write each file into a slice of hack/stage/full/slices.txt",
		strings.Join(slices.Sorted(maps.Keys(wrong)), ", "))
}
