// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
	if !slices.ContainsFunc(all, ours.MatchString) {
		return nil, fmt.Errorf("%s is a git repository of something else: it has no branch fresh-0.x; choose a new folder", dir)
	}
	changes, err := cli.Git(ctx, dir, nil, nil, "status", "--porcelain")
	if first, _, _ := strings.Cut(changes, "\n"); err == nil && first != "" {
		err = fmt.Errorf("%s has changes that are not committed (%s): commit them elsewhere, or choose a new folder", dir, strings.TrimSpace(first))
	}
	return all, err
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
