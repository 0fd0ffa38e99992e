// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/cli"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// refs are those of a repository of releases, sorted: refs/heads/fresh-0.25,
// refs/tags/v0.25.2-fresh.1, …
type refs []string

// ours matches a branch of releases, here or in a remote repository.
var ours = regexp.MustCompile(`^refs/(heads|remotes/.*)/fresh-0\.`)

// openRepository looks at what is in dir, and writes nothing. There need not be anything.
func openRepository(ctx context.Context, dir string) (refs, error) {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) || (err == nil && len(entries) == 0):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look at %s: %w", dir, err)
	case !tree.Exists(filepath.Join(dir, ".git")):
		return nil, fmt.Errorf("%s is not empty and no git repository: choose a new folder", dir)
	}
	listed, err := cli.Git(ctx, dir, nil, nil, "for-each-ref", "--format=%(refname)")
	if err != nil {
		return nil, err
	}
	all := strings.Fields(listed)
	if len(all) > 0 && !slices.ContainsFunc(all, ours.MatchString) {
		return nil, fmt.Errorf("%s is a git repository of something else: it has no branch fresh-0.x; choose a new folder", dir)
	}
	changes, err := cli.Git(ctx, dir, nil, nil, "status", "--porcelain")
	if first, _, _ := strings.Cut(changes, "\n"); err == nil && first != "" {
		err = fmt.Errorf("%s has changes that are not committed (%s): commit them elsewhere, or choose a new folder", dir, strings.TrimSpace(first))
	}
	return all, err
}

// newest is the number of the newest tag of a version, 0 if there is none.
func (r refs) newest(version string) (newest int) {
	for _, ref := range r {
		if number, of := strings.CutPrefix(ref, "refs/tags/"+version+"-fresh."); of {
			n, _ := strconv.Atoi(number) // it fails for somebody else's tag
			newest = max(newest, n)
		}
	}
	return newest
}

// base returns the ref from which a branch continues. Without a local branch, as in
// a fresh clone, it is the remote's. It is "" if the branch is new.
func (r refs) base(branch string) string {
	for _, ref := range r {
		if ours.MatchString(ref) && strings.HasSuffix(ref, "/"+branch) {
			return ref
		}
	}
	return ""
}

// checkTip returns an error unless a branch ends with a tag of the fork: an edition is a whole
// tree, so what somebody has committed would be lost behind it.
func checkTip(ctx context.Context, dir, ref string) error {
	_, err := cli.Git(ctx, dir, nil, nil, "describe", "--exact-match", "--match=v*-fresh.*", ref)
	if err != nil {
		err = fmt.Errorf("%s does not end with a tag of the fork (%w): fetch the tags, or move that commit to a branch of your own (git branch mine %[1]s; git checkout -B %[3]s TAG)",
			ref, err, path.Base(ref))
	}
	return err
}
