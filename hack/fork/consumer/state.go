// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// state is what an earlier run, or the user, has left in the consumer.
type state struct {
	manifest *tree.Manifest // of the tree that is there; nil: none, or unreadable
	tree     bool           // there is a tree of ours
	replaced bool           // go.mod has our replace directive
	foreign  string         // what else go.mod replaces controller-runtime with
	dropping string         // the flag of go mod edit that drops that replace
	edits    []string       // what somebody changed in the tree

	interrupted string // what is half done, in words; "" if nothing
}

// healthy: a run was here and ended well.
func (s *state) healthy() bool {
	return s.tree && s.replaced && s.interrupted == "" && len(s.edits) == 0
}

// absent: no run was ever here, or it was undone.
func (s *state) absent() bool { return !s.tree && !s.replaced && s.interrupted == "" }

func (j *job) look() (*state, error) {
	s := &state{}
	for _, r := range j.mod.Replace {
		switch {
		case r.Old.Path != tree.Module:
		case r.ours():
			s.replaced = true
		default:
			s.foreign, s.dropping = r.New.String(), r.dropping()
		}
	}
	if err := j.lookAtTree(s); err != nil {
		return nil, err
	}
	s.interrupted = j.halfDone(s)
	return s, nil
}

func (j *job) lookAtTree(s *state) error {
	above := filepath.Dir(j.slot.Dir)
	if exists(above) && !isDir(above) {
		return fmt.Errorf("%s is in the way, the tree goes into a folder of that name: move it away", j.show(path.Dir(place)))
	}
	if !exists(j.slot.Current()) {
		return nil
	}
	manifest, err := tree.Load(j.slot.Current())
	switch {
	case errors.Is(err, tree.ErrNotOurs):
		return fmt.Errorf("%s is in the way, it %w: move it away", j.show(place), tree.ErrNotOurs)
	case err != nil && !j.Force:
		return fmt.Errorf("%w (-force gives the tree up)", err)
	}
	s.tree, s.manifest = true, manifest
	if manifest != nil {
		s.edits, err = manifest.Edits(j.slot.Current())
		return err
	}
	return nil
}

// halfDone returns a text that names what an interrupted run left.
func (j *job) halfDone(s *state) string {
	left := j.slot.Leftovers()
	for _, name := range j.tracked() {
		if temp := tempName(j.path(name)); exists(temp) {
			left = append(left, temp)
		}
	}
	switch {
	case len(left) > 0:
		for i, name := range left {
			left[i] = j.relative(name)
		}
		return "left over: " + strings.Join(left, ", ")
	case s.tree && s.manifest == nil:
		return place + " has an unreadable manifest"
	case s.tree && !s.manifest.Complete:
		return place + " was not finished"
	case s.tree && !s.replaced && s.foreign == "":
		return place + " is there, but go.mod does not replace controller-runtime"
	case s.replaced && !s.tree:
		return "go.mod replaces controller-runtime, but " + place + " is missing"
	}
	return ""
}

// relative names a path below the consumer, or near it, for a reader.
func (j *job) relative(name string) string {
	return filepath.ToSlash(relativeTo(j.dir, name))
}

func relativeTo(dir, name string) string {
	if rel, err := filepath.Rel(dir, name); err == nil {
		return rel
	}
	return name
}
