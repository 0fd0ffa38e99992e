// SPDX-License-Identifier: Apache-2.0

package full

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// sliceMapper slices hack/fork's first patch. The slices of the last stage, which
// comes after the other patches, are apart.
func sliceMapper(d slice) (all, later []slice, err error) {
	needs, err := dependencies(d.files)
	if err != nil {
		return nil, nil, err
	}
	at, err := place(d.files, needs)
	if err != nil {
		return nil, nil, err
	}
	for i, stage := range stages {
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(d.files)), func(name string) bool { return at[name] != i })
		packed, err := d.pack(stage.name, names, needs, stage.name == switching)
		if err != nil {
			return nil, nil, err
		}
		if stage.name == switching {
			packed[0].gone = d.gone
		}
		if stage.name == last {
			later = packed
			continue
		}
		all = append(all, packed...)
	}
	return all, later, nil
}

// place finds the stage of each file: its own, or that of the last thing that it
// needs.
func place(files tree.Files, needs map[string][]string) (map[string]int, error) {
	at := map[string]int{}
	for name := range files {
		i, err := stageOf(name)
		if err != nil {
			return nil, err
		}
		at[name] = i
	}
	postpone(files, needs, at)
	for moved := true; moved; {
		moved = false
		for name, needed := range needs {
			for _, other := range needed {
				if at[other] > at[name] {
					at[name], moved = at[other], true
				}
			}
		}
	}
	return at, nil
}

// postpone moves what the switch does not need to the stage behind it. What it
// needs is what upstream's files are replaced with, and what that needs.
func postpone(files tree.Files, needs map[string][]string, at map[string]int) {
	now := slices.IndexFunc(stages, func(s stage) bool { return s.name == switching })
	needed := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		if !needed[name] {
			needed[name] = true
			for _, other := range needs[name] {
				visit(other)
			}
		}
	}
	for _, line := range tree.Lines {
		for _, gone := range line.Gone {
			if name := apiutilDir + gone.Name; len(gone.Exports) > 0 {
				if _, ours := files[name]; ours {
					visit(name)
				}
			}
		}
	}
	for name, i := range at {
		if i == now && !needed[name] {
			at[name] = now + 1
		}
	}
}

// sliceStep slices another patch of hack/fork: its code is one slice if it fits.
func sliceStep(name string, d slice) ([]slice, error) {
	needs, err := dependencies(d.files)
	if err != nil {
		return nil, err
	}
	var code, tests []string
	for _, file := range slices.Sorted(maps.Keys(d.files)) {
		if isTest(file) {
			tests = append(tests, file)
		} else {
			code = append(code, file)
		}
	}
	first, err := d.pack(name, code, needs, true)
	if err != nil {
		first, err = d.pack(name, code, needs, false)
	}
	if err != nil {
		return nil, err
	}
	first[len(first)-1].gone = d.gone
	n := 0
	for name := range d.files {
		n += d.lines(name)
	}
	if n <= Limit {
		first[0].files = d.files
		return first, nil
	}
	rest, err := d.pack(name, tests, needs, false)
	return number(append(first, rest...)), err
}

// pack packs files into as few slices as their order allows, or into one.
func (d slice) pack(stage string, names []string, needs map[string][]string, one bool) ([]slice, error) {
	var packed []slice
	room := 0
	for _, group := range ordered(names, needs) {
		n := 0
		for _, name := range group {
			n += d.lines(name)
		}
		if len(packed) == 0 || n > room && !one {
			packed, room = append(packed, slice{stage: stage, files: tree.Files{}}), Limit
		}
		last := packed[len(packed)-1].files
		for _, name := range group {
			last[name] = d.files[name]
		}
		if room -= n; room < 0 {
			return nil, fmt.Errorf("stage %q: a patch has at most %d lines, and these files, which need each other, have %d: let fewer do so: %q",
				stage, Limit, Limit-room, slices.Sorted(maps.Keys(last)))
		}
	}
	return number(packed), nil
}

func number(all []slice) []slice {
	for i := range all {
		all[i].part, all[i].of = i+1, len(all)
	}
	return all
}

// ordered puts the files into groups that need each other, and the groups in an
// order in which each needs only those before it: code, then tests, by name.
func ordered(names []string, needs map[string][]string) [][]string {
	reach := map[string]map[string]bool{}
	for _, name := range names {
		reach[name] = reachable(name, names, needs)
	}
	var groups [][]string
	done := map[string]bool{}
	for len(done) < len(names) {
		ready := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return done[name] || !isReady(name, reach, done) })
		slices.SortStableFunc(ready, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
		group := []string{ready[0]}
		for _, other := range names {
			if other != ready[0] && reach[ready[0]][other] && reach[other][ready[0]] {
				group = append(group, other)
			}
		}
		for _, name := range group {
			done[name] = true
		}
		groups = append(groups, group)
	}
	return groups
}

// isReady reports whether all that a file needs is done, or needs the file itself.
func isReady(name string, reach map[string]map[string]bool, done map[string]bool) bool {
	for other := range reach[name] {
		if !done[other] && !reach[other][name] {
			return false
		}
	}
	return true
}

// reachable are those of names that a file needs, directly or not.
func reachable(name string, names []string, needs map[string][]string) map[string]bool {
	found := map[string]bool{}
	queue := []string{name}
	for len(queue) > 0 {
		for _, other := range needs[queue[0]] {
			if !found[other] && slices.Contains(names, other) {
				found[other] = true
				queue = append(queue, other)
			}
		}
		queue = queue[1:]
	}
	return found
}

// rank puts the folders of code first, and tests behind what they test.
func rank(name string) string {
	kind := "0"
	switch {
	case strings.Contains(name, "/testdata/"):
		kind = "1"
	case isTest(name):
		kind = "2"
	}
	return kind + path.Dir(name)
}
