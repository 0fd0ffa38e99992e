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
	was      contents       // what it has of the consumer's files
	tree     bool           // there is a tree of ours
	replaced bool           // go.mod has our replace directive
	foreign  string         // what else go.mod replaces controller-runtime with
	dropping string         // the flag of go mod edit that drops that replace
	edits    []string       // what somebody changed in the tree

	interrupted string // what is half done, in words; "" if nothing
}

// healthy reports whether a run was here and ended well.
func (s *state) healthy() bool {
	return s.tree && s.replaced && s.interrupted == "" && len(s.edits) == 0
}

func (j *job) look() (*state, error) {
	s := &state{}
	for _, r := range j.mod.Replace {
		switch {
		case r.Old.Path != tree.Module:
		case r.Old.Version == "" && r.New == modVersion{Path: "./" + place}:
			s.replaced = true
		default:
			s.foreign, s.dropping = r.New.String(), "-dropreplace="+r.Old.Path
			if r.Old.Version != "" {
				s.dropping += "@" + r.Old.Version
			}
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
	if tree.Exists(above) && !isDir(above) {
		return fmt.Errorf("%s is in the way, the tree goes into a folder of that name: move it away", j.show(path.Dir(place)))
	}
	current := j.slot.Current()
	if !tree.Exists(current) {
		return nil
	}
	manifest, err := tree.Load(current)
	switch {
	case errors.Is(err, tree.ErrNotOurs):
		return fmt.Errorf("%s is in the way, it %w: move it away", j.show(place), tree.ErrNotOurs)
	case err != nil && !j.Force:
		return fmt.Errorf("%w (-force gives the tree up)", err)
	}
	s.tree, s.manifest = true, manifest
	if manifest == nil {
		return nil
	}
	if s.was, err = j.saved(manifest); err != nil {
		return err
	}
	s.edits, err = manifest.Edits(current)
	return err
}

// halfDone returns a text that names what an interrupted run left.
func (j *job) halfDone(s *state) string {
	left := j.slot.Leftovers()
	for _, name := range j.tracked() {
		if temp := tempName(j.path(name)); tree.Exists(temp) {
			left = append(left, temp)
		}
	}
	for i, name := range left {
		left[i] = j.relative(name)
	}
	switch {
	case len(left) > 0:
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
