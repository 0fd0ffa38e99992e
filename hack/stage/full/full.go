// SPDX-License-Identifier: Apache-2.0

// Package full makes the full series: this project's mapper in the place of
// upstream's, in slices that build and pass one after the other.
//
// The files of each stage are found by patterns, so that the table of stages
// need not know them. A stage that is too large for one patch becomes several:
// what depends on what decides the order of its files.
package full

import (
	"bytes"
	"io/fs"
	"maps"
	"slices"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
	"github.com/freshmapper/freshmapper/hack/stage/series"
)

const (
	apiutilDir = "pkg/client/apiutil/"
	// Limit is how many lines a patch adds at most, with its tests.
	Limit = 1500
)

// Changes lists the series.
func Changes(base string, upstream tree.Files, ours fs.FS) ([]series.Change, error) {
	steps, err := tree.Steps(base, upstream, ours)
	if err != nil {
		return nil, err
	}
	slicesOf, last, err := sliceMapper(diff(upstream, steps[0].Files))
	if err != nil {
		return nil, err
	}
	for i, step := range steps[1:] {
		more, err := sliceStep(step.Patch, diff(steps[i].Files, step.Files))
		if err != nil {
			return nil, err
		}
		slicesOf = append(slicesOf, more...)
	}
	return apply(upstream, append(slicesOf, last...))
}

// A slice is what one patch does: file by file, what comes in its place. A file
// that goes has no data.
type slice struct {
	stage string
	part  int
	of    int
	files tree.Files
	was   tree.Files // those of files that were there before
	gone  []string
}

// diff is what leads from one tree to another.
func diff(from, to tree.Files) slice {
	d := slice{files: tree.Files{}, was: tree.Files{}}
	for name, file := range to {
		was, ok := from[name]
		if !ok || was.Exec != file.Exec || !bytes.Equal(was.Data, file.Data) {
			d.files[name] = file
		}
		if ok {
			d.was[name] = was
		}
	}
	for name := range from {
		if _, stays := to[name]; !stays {
			d.gone = append(d.gone, name)
		}
	}
	slices.Sort(d.gone)
	return d
}

// apply turns the slices into trees with messages.
func apply(upstream tree.Files, all []slice) ([]series.Change, error) {
	files := maps.Clone(upstream)
	var changes []series.Change
	for _, s := range all {
		message, err := s.message()
		if err != nil {
			return nil, err
		}
		maps.Copy(files, s.files)
		for _, name := range s.gone {
			delete(files, name)
		}
		changes = append(changes, series.Change{Message: message, Files: maps.Clone(files)})
	}
	return changes, nil
}

// lines is how many lines a file adds, with the header that upstream's files have.
func lines(file tree.File) int {
	const header = 16
	return bytes.Count(file.Data, []byte("\n")) + header
}

// lines is about how many lines a file of the slice adds. Of one that was there
// before these are no fewer than those by which it grows.
func (d slice) lines(name string) int {
	n := lines(d.files[name])
	if was, ok := d.was[name]; ok {
		return max(n-lines(was), 0)
	}
	return n
}
